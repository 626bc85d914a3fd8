"""The results of other projects' test suites, as `make suites` has kept them; for docs/reference/suites.md."""

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "tests" / "suites" / "results.json"
PASSED, FAILED, NOT_APPLICABLE = "passed", "failed", "not applicable"


def overview() -> str:
    lines = ["| suite | version | run on | passed | failed | not applicable |", "|---|---|---|--:|--:|--:|"]
    for name, suite in _kept().items():
        counts = (str(sum(group[kind] for group in suite["groups"].values())) for kind in _KINDS)
        lines.append(f"| [{name}](#{name}) | {suite['version']} | {suite['day']} | {' | '.join(counts)} |")
    return "\n".join(lines) + "\n"


def details() -> str:
    return "\n".join(_section(name, suite) for name, suite in _kept().items())


def _kept() -> dict[str, Any]:
    kept: dict[str, Any] = json.loads(RESULTS.read_text())
    return kept


_KINDS = (PASSED, FAILED, NOT_APPLICABLE)


def _section(name: str, suite: dict[str, Any]) -> str:
    lines = [f"## {name}", "", "| tests | passed | failed | not applicable |", "|---|--:|--:|--:|"]
    for group, counts in suite["groups"].items():
        lines.append(f"| `{group}` | {' | '.join(str(counts[kind]) for kind in _KINDS)} |")
    lines.append("")
    if suite[FAILED]:
        lines += ["| failed | what it said |", "|---|---|"]
        lines += [f"| `{test}` | {_cell(reason)} |" for test, reason in suite[FAILED].items()]
        lines.append("")
    if suite[NOT_APPLICABLE]:
        lines += ["| not applicable because | tests |", "|---|---|"]
        for reason, tests in suite[NOT_APPLICABLE].items():
            lines.append(f"| {_cell(reason)} | {', '.join(f'`{test}`' for test in tests)} |")
        lines.append("")
    return "\n".join(lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")
