"""Slow work: 5 ms of waiting a record, 2 partitions, more and more share consumers against a consumer group.

A consumer group has work for as many consumers as there are partitions; a share group for as many as come.
"""

import math
from collections.abc import Callable
from itertools import count
from pathlib import Path
from statistics import median

from bench.brokers import Apache, BrokerProcess, Headrace, Policy, Running
from bench.contest import Contest, Measure
from bench.tasks import run_client
from bench.wire import Connection, create_topic

PARTITIONS = 2
RECORDS = 120_000
SHARE_CONSUMERS = (1, 2, 4, 8, 16, 32)
GROUP_CONSUMERS = (2, 4)
CEILING = 1 / 0.005
"""What one consumer could do if nothing but the waiting took time."""
TOPIC = "slow"
REFERENCE = "group, 2 consumers"
RATE = Measure("5 ms of waiting a record", "records/s", True)
_groups = count(1)


def _name(kind: str, consumers: int) -> str:
    return f"{kind}, {consumers} consumer{'s' if consumers > 1 else ''}"


def run_slow(
    contest: Contest, folder: Path, *, rounds: int, seconds: float, say: Callable[[str], None]
) -> None:
    """Both brokers, one after the other: next to an idle JVM ours would still share its cores."""
    brokers: tuple[BrokerProcess, ...] = (Headrace(folder, bytecode=folder / "bytecode"), Apache(folder))
    for broker in brokers:
        try:
            running = broker.start(Policy.PAGE_CACHE)
            with Connection(running.bootstrap_servers) as admin:
                create_topic(admin, TOPIC, partitions=PARTITIONS)
            fill = {"records": RECORDS, "per-batch": 150, "partitions": PARTITIONS}
            run_client("share", "fill", running, TOPIC, **fill)
            for round_number in range(rounds):
                for kind, sizes in (("group", GROUP_CONSUMERS), ("share", SHARE_CONSUMERS)):
                    for consumers in sizes if round_number % 2 == 0 else reversed(sizes):
                        say(f"slow work: {broker.name}, round {round_number + 1}: {_name(kind, consumers)}")
                        rate = _rate(running, kind, consumers, seconds)
                        contest.add(RATE, broker.name, _name(kind, consumers), rate)
        finally:
            broker.stop()


def _rate(broker: Running, kind: str, consumers: int, seconds: float) -> float:
    options = {"consumers": consumers, "partitions": PARTITIONS, "seconds": seconds}
    figures = run_client("fleet", kind, broker, TOPIC, group=f"slow-{next(_groups)}", **options)
    return figures.records / figures.seconds


WIDTH, HEIGHT, LEFT, TOP = 520, 320, 70, 40
COLORS = {"headrace": "#2b6cb0", "apache": "#c05621"}
RATE_MIN, RATE_MAX = 100.0, 10_000.0


def _at(consumers: int, rate: float) -> tuple[float, float]:
    x = LEFT + WIDTH * math.log2(consumers) / math.log2(SHARE_CONSUMERS[-1])
    part = math.log(rate / RATE_MIN) / math.log(RATE_MAX / RATE_MIN)
    return x, TOP + HEIGHT * (1 - part)


def _line(points: list[tuple[int, float]], color: str, *, dashes: str = "") -> str:
    places = " ".join(f"{x:.1f},{y:.1f}" for x, y in (_at(consumers, rate) for consumers, rate in points))
    return (
        f'<polyline points="{places}" fill="none" stroke="{color}" stroke-width="2"'
        + (f' stroke-dasharray="{dashes}"' if dashes else "")
        + "/>"
    )


def draw(contest: Contest) -> str:
    """Both axes by doubling, so that a rate that grows with the consumers is a straight line."""
    parts = [_line([(size, size * CEILING) for size in SHARE_CONSUMERS], "#999", dashes="2 4")]
    for size in SHARE_CONSUMERS:
        x, _ = _at(size, RATE_MIN)
        parts.append(f'<text x="{x:.1f}" y="{TOP + HEIGHT + 18}" text-anchor="middle">{size}</text>')
    for rate in (100.0, 200.0, 500.0, 1000.0, 2000.0, 5000.0, 10_000.0):
        _, y = _at(1, rate)
        parts.append(
            f'<line x1="{LEFT}" y1="{y:.1f}" x2="{LEFT + WIDTH}" y2="{y:.1f}" stroke="#e5e5e5"/>'
            f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{rate:,.0f}</text>'
        )
    legend = [("200 a second each", "#999", "2 4")]
    for broker, color in COLORS.items():
        for kind, sizes, dashes in (("share", SHARE_CONSUMERS, ""), ("group", GROUP_CONSUMERS, "7 4")):
            points = [(size, median(contest.values(RATE, broker, _name(kind, size)))) for size in sizes]
            parts.append(_line(points, color, dashes=dashes))
            for consumers, rate in points:
                x, y = _at(consumers, rate)
                parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{color}"/>')
            legend.append(
                (f"{kind} group on {broker}".replace("group group", "consumer group"), color, dashes)
            )
    for number, (text, color, dashes) in enumerate(legend):
        y = TOP + 14 + 18 * number
        dash = f' stroke-dasharray="{dashes}"' if dashes else ""
        parts.append(
            f'<line x1="{LEFT + 14}" y1="{y - 4}" x2="{LEFT + 44}" y2="{y - 4}" stroke="{color}"'
            f' stroke-width="2"{dash}/><text x="{LEFT + 52}" y="{y}">{text}</text>'
        )
    title = f"records/s, 5 ms of waiting each, {PARTITIONS} partitions, by number of consumers"
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + WIDTH + 30}" height="{TOP + HEIGHT + 40}" '
        f'font-family="sans-serif" font-size="12">\n<rect width="100%" height="100%" fill="white"/>\n'
        f'<text x="{LEFT}" y="22" font-weight="bold">{title}</text>\n{body}\n</svg>\n'
    )
