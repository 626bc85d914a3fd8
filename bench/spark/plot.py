"""Slow work on Spark as a picture: rows a second by number of tasks, each contender a line."""

import math
from collections.abc import Sequence
from statistics import median

from bench.contest import Contest
from bench.spark.run import PARTITIONS, SLOW, SLOW_MS, TASKS
from bench.spark.steps import CONTENDERS

WIDTH, HEIGHT, LEFT, TOP = 460, 280, 70, 40
RATE_MIN, RATE_MAX = 200.0, 4_000.0
COLORS = dict(zip(CONTENDERS, ("#c05621", "#2b6cb0", "#2f855a"), strict=True))
SETTING = "headrace"


def draw(contest: Contest) -> str:
    """Both axes by doubling, so that a rate that grows with the tasks is a straight line."""
    lines: list[tuple[str, str, Sequence[tuple[int, float]]]] = [
        (f"{1000 // SLOW_MS} a second each", "#999", [(tasks, tasks * 1000 / SLOW_MS) for tasks in TASKS])
    ]
    for contender, color in COLORS.items():
        rates = [
            (tasks, median(contest.values(SLOW[tasks], SETTING, contender)))
            for tasks in TASKS
            if contender in contest.contenders(SLOW[tasks], SETTING)
        ]
        if rates:
            lines.append((contender, color, rates))
    parts = [_scale()]
    for number, (name, color, points) in enumerate(lines):
        places = " ".join(f"{x:.1f},{y:.1f}" for x, y in (_at(*point) for point in points))
        y = TOP + 14 + 18 * number
        line = f'stroke="{color}" stroke-width="2"' + (' stroke-dasharray="2 4"' if not number else "")
        parts.append(
            f'<polyline points="{places}" fill="none" {line}/>'
            f'<line x1="{LEFT + 14}" y1="{y - 4}" x2="{LEFT + 44}" y2="{y - 4}" {line}/>'
            f'<text x="{LEFT + 52}" y="{y}">{name}</text>'
        )
    title = f"rows/s, {SLOW_MS} ms of waiting each, {PARTITIONS} partitions, by number of tasks"
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + WIDTH + 30}" height="{TOP + HEIGHT + 40}" '
        f'font-family="sans-serif" font-size="12">\n<rect width="100%" height="100%" fill="white"/>\n'
        f'<text x="{LEFT}" y="22" font-weight="bold">{title}</text>\n{body}\n</svg>\n'
    )


def _at(tasks: int, rate: float) -> tuple[float, float]:
    part = math.log(rate / RATE_MIN) / math.log(RATE_MAX / RATE_MIN)
    return LEFT + WIDTH * math.log2(tasks / TASKS[0]) / math.log2(TASKS[-1] / TASKS[0]), TOP + HEIGHT * (
        1 - part
    )


def _scale() -> str:
    bottom = TOP + HEIGHT + 18
    tasks = [
        f'<text x="{_at(each, RATE_MIN)[0]:.1f}" y="{bottom}" text-anchor="middle">{each}</text>'
        for each in TASKS
    ]
    rates = [
        f'<line x1="{LEFT}" y1="{y:.1f}" x2="{LEFT + WIDTH}" y2="{y:.1f}" stroke="#e5e5e5"/>'
        f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{rate:,}</text>'
        for rate in (200, 500, 1_000, 2_000, 4_000)
        for y in (_at(TASKS[0], rate)[1],)
    ]
    return "\n".join([*tasks, *rates])
