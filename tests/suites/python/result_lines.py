"""A pytest plugin that writes a line for every test at its end, as `java/headrace/suites/ResultLines.java` does.

Outcome, class or module, test, milliseconds and reason, with tabs between them, in the file that
HEADRACE_SUITE_RESULTS names.
"""

import os
from pathlib import Path

import pytest

_failed: set[str] = set()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.skipped:
        _write("SKIPPED", report, str(report.longrepr[2] if isinstance(report.longrepr, tuple) else ""))
    elif report.failed and report.nodeid not in _failed:  # once, if the test and what cleans up fail
        _failed.add(report.nodeid)
        _write("FAILED", report, _told(report))
    elif report.when == "teardown" and report.passed and report.nodeid not in _failed | _skipped:
        _write("SUCCESSFUL", report, "")


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """A module that cannot be imported has no tests that could tell."""
    if report.failed:
        _line(
            "FAILED", Path(report.nodeid).stem, "the module", 0, str(report.longrepr).strip().splitlines()[-1]
        )


_skipped: set[str] = set()


def _told(report: pytest.TestReport) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    return str(crash.message if crash is not None else report.longrepr)


def _write(outcome: str, report: pytest.TestReport, reason: str) -> None:
    if outcome == "SKIPPED":
        _skipped.add(report.nodeid)
    path, _, place = report.nodeid.partition("::")
    place, bracket, parameters = place.partition("[")
    group, _, test = place.rpartition("::")
    _line(
        outcome, group or Path(path).stem, test + bracket + parameters, round(report.duration * 1000), reason
    )


def _line(outcome: str, group: str, test: str, milliseconds: int, reason: str) -> None:
    fields = (outcome, group, test, str(milliseconds), " ".join(reason.split()))
    with open(os.environ["HEADRACE_SUITE_RESULTS"], "a") as file:
        file.write("\t".join(field.replace("\t", " ") for field in fields) + "\n")
