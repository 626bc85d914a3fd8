"""Figures of several contenders, round by round: as a table with ratios to one of them, and as JSON.

bench/report.py knows two brokers; here are as many contenders as come, each compared with the reference of its measure
in the same setting and the same round.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from bench.report import render_number


@dataclass(frozen=True, slots=True)
class Target:
    """A goal: the median ratio to `reference` is at least (where more is better; else at most) `bound`."""

    reference: str
    bound: float


@dataclass(frozen=True, slots=True)
class Measure:
    name: str
    unit: str
    is_more_better: bool
    targets: Mapping[str, Target] = field(default_factory=dict, hash=False, compare=False)
    """By contender."""
    limits: Mapping[tuple[str, str], float] = field(default_factory=dict, hash=False, compare=False)
    """Goals in the measure's own unit, by setting and contender: the median is at least, or at most, this."""
    reference: str = ""
    """Instead of the contest's, where other contenders take part."""


class Contest:
    """One table. A ratio is a contender's figure over the reference's, of the same setting and round."""

    def __init__(self, title: str, *, reference: str) -> None:
        self.title = title
        self.reference = reference
        self.notes: list[str] = []
        """What a reader of the table must know, a sentence or two each."""
        self._values: dict[tuple[Measure, str], dict[str, list[float]]] = {}

    def add(self, measure: Measure, setting: str, contender: str, value: float) -> None:
        self._values.setdefault((measure, setting), {}).setdefault(contender, []).append(value)

    def values(self, measure: Measure, setting: str, contender: str) -> list[float]:
        return self._values[measure, setting][contender]

    def contenders(self, measure: Measure, setting: str) -> list[str]:
        return list(self._values.get((measure, setting), {}))

    def ratios(self, measure: Measure, setting: str, contender: str, reference: str) -> list[float]:
        """One for each round that both took part in; none where there is no reference."""
        of_setting = self._values[measure, setting]
        pairs = zip(of_setting[contender], of_setting.get(reference, []), strict=False)
        return [mine / other for mine, other in pairs if other]

    def reference_of(self, measure: Measure) -> str:
        return measure.reference or self.reference

    def verdict(self, measure: Measure, setting: str, contender: str) -> str:
        sign = ">=" if measure.is_more_better else "<="
        limit = measure.limits.get((setting, contender))
        if limit is not None:
            value = median(self.values(measure, setting, contender))
            is_met = value >= limit if measure.is_more_better else value <= limit
            return f"{'met' if is_met else 'MISSED'}: wanted {sign} {render_number(limit)} {measure.unit}"
        target = measure.targets.get(contender)
        if target is None:
            return ""
        ratios = self.ratios(measure, setting, contender, target.reference)
        if not ratios:
            return ""
        ratio = median(ratios)
        is_met = ratio >= target.bound if measure.is_more_better else ratio <= target.bound
        wanted = f"wanted {sign} {target.bound:g}"
        if target.reference == self.reference_of(measure):
            return f"{'met' if is_met else 'MISSED'}: {wanted}"
        return f"{'met' if is_met else 'MISSED'}: {ratio:.2f} of {target.reference}, {wanted}"

    def render(self) -> str:
        rows: list[tuple[str, ...]] = [
            ("measure", "setting", "contender", "median", "", "spread", self._ratio_heading(), "spread", "")
        ]
        for (measure, setting), contenders in self._values.items():
            rows += [self._row(measure, setting, contender) for contender in contenders]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        is_number = {3, 6}
        lines = [
            "  ".join(
                cell.rjust(width) if column in is_number else cell.ljust(width)
                for column, (cell, width) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in rows
        ]
        lines.insert(1, "-" * max(map(len, lines)))
        return "\n".join([self.title, "", *lines, *self._render_notes()])

    def _ratio_heading(self) -> str:
        references = {self.reference_of(measure) for measure, _ in self._values}
        return f"/ {self.reference}" if references <= {self.reference} else "/ reference"

    def _render_notes(self) -> list[str]:
        """Below an empty line, where there are any. Measures with a reference of their own are told too."""
        of_measures: dict[str, list[str]] = {}
        for measure in dict.fromkeys(measure for measure, _ in self._values):
            of_measures.setdefault(self.reference_of(measure), []).append(measure.name)
        told = [f"The reference is {name} for: {'; '.join(of)}." for name, of in of_measures.items()]
        notes = [*(told if len(told) > 1 else []), *self.notes]
        return ["", *(f"- {note}" for note in notes)] if notes else []

    def _row(self, measure: Measure, setting: str, contender: str) -> tuple[str, ...]:
        values = self.values(measure, setting, contender)
        reference = self.reference_of(measure)
        is_reference = contender == reference
        ratios = [] if is_reference else self.ratios(measure, setting, contender, reference)
        return (
            measure.name,
            setting,
            contender,
            render_number(median(values)),
            measure.unit,
            _spread([render_number(bound) for bound in (min(values), max(values))]),
            f"{median(ratios):.2f}" if ratios else "",
            _spread([f"{bound:.2f}" for bound in (min(ratios), max(ratios))]) if ratios else "",
            self.verdict(measure, setting, contender)
            or ("more is better" if measure.is_more_better else "less is better"),
        )

    def render_markdown(self) -> str:
        """The same rows as `render`, for a page."""
        lines = [
            f"| measure | setting | contender | median | spread | | {self._ratio_heading()} |",
            "|---|---|---|---|---|---|---|",
        ]
        for (measure, setting), contenders in self._values.items():
            for contender in contenders:
                name, _, who, number, unit, spread, ratio, ratio_spread, _ = self._row(
                    measure, setting, contender
                )
                lines.append(
                    f"| {name} | {setting} | {who} | {number} | {spread} | {unit} | {ratio} {ratio_spread} |"
                )
        return "\n".join([*lines, *self._render_notes()])

    def as_json(self) -> dict[str, Any]:
        return {
            "title": self.title,
            "reference": self.reference,
            "notes": self.notes,
            "lines": [
                {
                    "measure": measure.name,
                    "unit": measure.unit,
                    "is_more_better": measure.is_more_better,
                    "setting": setting,
                    "values": contenders,
                }
                for (measure, setting), contenders in self._values.items()
            ],
        }


def replace_between(page: str, name: str, text: str) -> str:
    """The page with `text` between the marks `<!-- bench NAME -->` and `<!-- end NAME -->`."""
    begin, end = f"<!-- bench {name} -->", f"<!-- end {name} -->"
    before, found_begin, rest = page.partition(begin)
    _, found_end, after = rest.partition(end)
    if not found_begin or not found_end:
        raise ValueError(
            f"the page has no place for {name}: it needs a line {begin} and a line {end} below it"
        )
    return f"{before}{begin}\n{text}\n{end}{after}"


def _spread(bounds: list[str]) -> str:
    least, most = bounds
    return f"[{least} - {most}]"
