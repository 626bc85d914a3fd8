"""What a suite said of each test, and what we make of it."""

import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from fnmatch import fnmatchcase
from pathlib import Path

LIST = Path(__file__).with_name("cannot_apply.toml")
REASON_LENGTH = 300


class Outcome(StrEnum):
    PASSED = "passed"
    FAILED = "failed"
    NOT_APPLICABLE = "not applicable"


OUTCOMES = {
    "SUCCESSFUL": Outcome.PASSED,
    "FAILED": Outcome.FAILED,
    "ABORTED": Outcome.NOT_APPLICABLE,
    "SKIPPED": Outcome.NOT_APPLICABLE,
}


@dataclass(frozen=True, slots=True)
class Result:
    """One test of a suite: `group` is its class or package, `reason` says why it did not pass."""

    group: str
    test: str
    outcome: Outcome
    seconds: float
    reason: str = ""

    @property
    def id(self) -> str:
        return f"{self.group}.{self.test}"


@dataclass(frozen=True, slots=True)
class Excuse:
    """A pattern of tests that cannot apply, with the reason."""

    suite: str
    tests: str
    reason: str

    def covers(self, suite: str, result: Result) -> bool:
        return self.suite == suite and fnmatchcase(result.id, self.tests.replace("[", "[[]"))


@dataclass(frozen=True, slots=True)
class SuiteRun:
    """All results of one suite. `left_out` says why it did not run at all."""

    suite: str
    version: str
    results: tuple[Result, ...] = ()
    left_out: str = ""

    def of(self, outcome: Outcome) -> list[Result]:
        return [one for one in self.results if one.outcome is outcome]


def excuses(path: Path = LIST) -> list[Excuse]:
    return [Excuse(**entry) for entry in tomllib.loads(path.read_text()).get("test", [])]


def excused(run: SuiteRun, known: Sequence[Excuse]) -> SuiteRun:
    """The same with failures that an excuse covers as not applicable."""

    def judged(result: Result) -> Result:
        found = next((one for one in known if one.covers(run.suite, result)), None)
        if result.outcome is not Outcome.FAILED or found is None:
            return result
        return replace(result, outcome=Outcome.NOT_APPLICABLE, reason=found.reason)

    return replace(run, results=tuple(map(judged, run.results)))


def stale(run: SuiteRun, known: Iterable[Excuse]) -> list[Excuse]:
    """Excuses for tests that the run has had, none of which they were needed for. `run` is not excused yet."""
    covered = [
        (excuse, [one for one in run.results if excuse.covers(run.suite, one)])
        for excuse in known
        if excuse.suite == run.suite
    ]
    return [
        excuse
        for excuse, found in covered
        if found and not any(one.outcome is Outcome.FAILED for one in found)
    ]


def read_lines(path: Path) -> list[Result]:
    """The lines that a listener of ours (`java/`, `python/result_lines.py`) has written so far."""
    whole_lines = path.read_text().rpartition("\n")[0] if path.is_file() else ""
    return [_result(*line.split("\t")) for line in whole_lines.split("\n") if line]


def _result(status: str, group: str, test: str, milliseconds: str, reason: str) -> Result:
    shown = reason if len(reason) <= REASON_LENGTH else reason[: REASON_LENGTH - 3] + "..."
    return Result(group.rpartition(".")[2], test, OUTCOMES[status], int(milliseconds) / 1000, shown)
