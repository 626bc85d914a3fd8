"""Draws docs/concepts/states.svg: the states of a record and what moves it. `make docs` runs it.

Where things stand on the paper is written here; what they say comes from the engine's TRANSITIONS. A step between two
states that has no arrow here cannot be drawn, and is an error. The colors are readable on light and dark paper.
"""

from dataclasses import dataclass
from pathlib import Path

from headrace.share.states import FINAL, TRANSITIONS, RecordState

TARGET = Path(__file__).resolve().parent.parent / "docs" / "concepts" / "states.svg"
S = RecordState
WIDTH, HEIGHT = 132, 40
PLACES = {
    S.AVAILABLE: (100, 110),
    S.ACQUIRED: (400, 110),
    S.ACKNOWLEDGED: (690, 110),
    S.ARCHIVED: (400, 330),
    S.ARCHIVING: (690, 220),
}


@dataclass(frozen=True, slots=True)
class Arrow:
    path: str
    label: tuple[int, int]
    anchor: str = "middle"


ARROWS = {
    (S.AVAILABLE, S.AVAILABLE): Arrow("M75 90 C60 40 140 40 125 88", (100, 44)),
    (S.AVAILABLE, S.ACQUIRED): Arrow("M166 102 H332", (250, 94)),
    (S.ACQUIRED, S.AVAILABLE): Arrow("M334 118 H168", (250, 136)),
    (S.ACQUIRED, S.ACQUIRED): Arrow("M375 90 C360 40 440 40 425 88", (400, 44)),
    (S.ACQUIRED, S.ACKNOWLEDGED): Arrow("M466 110 H622", (545, 102)),
    (S.ACQUIRED, S.ARCHIVED): Arrow("M400 130 V308", (392, 250), "end"),
    (S.AVAILABLE, S.ARCHIVED): Arrow("M100 130 C110 280 200 330 332 330", (150, 318), "end"),
    (S.ACQUIRED, S.ARCHIVING): Arrow("M440 130 C470 200 540 220 622 220", (470, 240), "start"),
    (S.ARCHIVING, S.ARCHIVED): Arrow("M690 240 C680 310 580 330 468 330", (650, 318), "start"),
}
HEAD = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 780 370" font-family="sans-serif" font-size="13">
<title>The states of a record in a share group</title>
<defs><marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" orient="auto">
<path d="M0 0 L10 5 L0 10 z" fill="#7a8699"/></marker></defs>
"""


def causes() -> dict[tuple[RecordState, RecordState], list[str]]:
    found: dict[tuple[RecordState, RecordState], list[str]] = {}
    for (before, cause), after in TRANSITIONS.items():
        found.setdefault((before, after), []).append(cause.name.lower().replace("_", " "))
    return found


def render() -> str:
    parts = [HEAD]
    for step, names in causes().items():
        arrow = ARROWS[step]
        parts.append(
            f'<path d="{arrow.path}" fill="none" stroke="#7a8699" stroke-width="1.6" marker-end="url(#tip)"/>\n'
        )
        parts += _label(arrow, names)
    for state, (x, y) in PLACES.items():
        color = "#0f766e" if state in FINAL else "#1d4ed8"
        parts.append(
            f'<rect x="{x - WIDTH // 2}" y="{y - HEIGHT // 2}" width="{WIDTH}" height="{HEIGHT}" rx="8" '
            f'fill="{color}"/>\n'
            f'<text x="{x}" y="{y + 5}" text-anchor="middle" fill="#ffffff">{state.name}</text>\n'
        )
    return "".join([*parts, "</svg>\n"])


def _label(arrow: Arrow, names: list[str]) -> list[str]:
    """Long lists go over several lines."""
    (x, y), lines = arrow.label, [", ".join(names)]
    if len(lines[0]) > 30:
        lines = [f"{name}," for name in names[:-1]] + names[-1:]
    return [
        f'<text x="{x}" y="{y + 17 * number}" text-anchor="{arrow.anchor}" fill="#7a8699">{line}</text>\n'
        for number, line in enumerate(lines)
    ]
