"""From figures of rounds to ratios: one ratio a round, then their median and spread; as a table and as JSON."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any

from bench.tasks import Line

OURS, APACHE = "headrace", "apache"
EXPLANATION = (
    "Ratios are headrace / apache, one from each round: their median and, in brackets, the least and the most.\n"
    "page cache: acks=all is answered when the operating system has the bytes (headrace.flush=os; Apache's default).\n"
    "fsync: it is answered when the disk has them (headrace.flush=fsync; Apache's topics with flush.messages=1)."
)


@dataclass(slots=True)
class Series:
    """What one line gave, round by round, on each broker."""

    line: Line
    policy: str
    values: dict[str, list[float]] = field(default_factory=lambda: {OURS: [], APACHE: []})

    @property
    def ratios(self) -> list[float]:
        return [ours / apache for ours, apache in zip(self.values[OURS], self.values[APACHE], strict=True)]

    @property
    def ratio(self) -> float:
        return median(self.ratios)

    @property
    def verdict(self) -> str:
        """Against the target, where there is one; the direction in words where there is none."""
        target, limit = self.line.target, self.line.limit
        if limit is not None:
            is_met = median(self.values[OURS]) < limit
            return f"{'met' if is_met else 'MISSED'}: wanted < {limit:g} {self.line.unit}"
        if target is None:
            return "more is better" if self.line.is_more_better else "less is better"
        is_met = self.ratio >= target if self.line.is_more_better else self.ratio <= target
        bound = f"{'>=' if self.line.is_more_better else '<='} {target:g}"
        return f"{'met' if is_met else 'MISSED'}: wanted {bound}"


class Results:
    """All series of a run, in the order in which they first came."""

    def __init__(self) -> None:
        self._series: dict[tuple[Line, str], Series] = {}
        self.spins_s: list[float] = []

    def add(self, line: Line, policy: str, broker: str, value: float) -> None:
        series = self._series.setdefault((line, policy), Series(line, policy))
        series.values[broker].append(value)

    @property
    def series(self) -> list[Series]:
        return list(self._series.values())

    @property
    def noise(self) -> float:
        """How much longer the slowest run of a fixed piece of work took than the quickest: 0 on a quiet machine."""
        return max(self.spins_s) / min(self.spins_s) - 1 if self.spins_s else 0.0

    def as_json(self, machine: dict[str, object]) -> dict[str, Any]:
        return {
            "machine": {**machine, "noise": self.noise, "spins_s": self.spins_s},
            "lines": [
                {
                    **asdict(series.line),
                    "policy": series.policy,
                    "values": series.values,
                    "ratio": series.ratio,
                    "ratio_min": min(series.ratios),
                    "ratio_max": max(series.ratios),
                }
                for series in self.series
            ],
        }


NOISE_MAX = 0.25
RISE_MAX = 0.2


def render_caveats(results: Results, *, load: float, cores: int) -> list[str]:
    """What speaks against citing these figures: a busy machine, or a JVM whose compiler was still at work."""
    caveats = []
    if results.noise > NOISE_MAX or load > cores / 2:
        caveats.append(
            f"The machine was busy (load {load:.2f} on {cores} cores; a fixed piece of work varied by"
            f" {results.noise:.0%}): the ratios show a direction, not a size."
        )
    rising = [
        f"{series.line.measure} ({series.line.client}, {series.policy})"
        for series in results.series
        if series.line.is_more_better and _rise(series.values[APACHE]) > RISE_MAX
    ]
    if rising:
        caveats.append(
            "Apache Kafka was still getting faster from its first round to its last, so it was not warm: "
            + ", ".join(rising)
            + "."
        )
    return caveats


def _rise(values: Sequence[float]) -> float:
    return values[-1] / values[0] - 1 if len(values) > 1 else 0.0


HEADINGS = ("measure", "client", "durability", "headrace", "apache", "", "ratio", "spread", "")


def render_table(all_series: Sequence[Series]) -> str:
    rows = [HEADINGS, *(_row(series) for series in all_series if series.line.is_shown)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADINGS))]
    is_number = {3, 4, 6}
    lines = []
    for row in rows:
        cells = [
            cell.rjust(width) if column in is_number else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    lines.insert(1, "-" * max(map(len, lines)))
    return "\n".join(lines)


def _row(series: Series) -> tuple[str, ...]:
    ratios = series.ratios
    return (
        series.line.measure,
        series.line.client,
        series.policy,
        render_number(median(series.values[OURS])),
        render_number(median(series.values[APACHE])),
        series.line.unit,
        f"{series.ratio:.2f}",
        f"[{min(ratios):.2f} - {max(ratios):.2f}]",
        series.verdict,
    )


def render_number(value: float) -> str:
    """Three digits that count, thousands apart: 312,000; 4.71; 0.083."""
    if value >= 1000:
        return f"{float(f'{value:.3g}'):,.0f}"
    return f"{value:.3g}"
