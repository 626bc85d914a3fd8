"""`python -m tests.suites [SUITE ...]`: runs other projects' suites, and writes their results into the documentation.

A suite that cannot run on this machine is left out, with the reason, and its results stay as they are.
"""

import argparse
import datetime
import json
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tests.suites import apache, franz_go, programs, python_suites
from tests.suites.results import Outcome, SuiteRun, excused, excuses, stale

ROOT = Path(__file__).resolve().parents[2]
RESULTS = Path(__file__).with_name("results.json")
SUITES: dict[str, Callable[[], SuiteRun]] = {
    **{one.suite: partial(apache.run, one) for one in apache.SELECTIONS},
    programs.SUITE: programs.run,
    **{one.suite: partial(franz_go.run, one) for one in franz_go.VARIANTS},
    **{one.suite: partial(python_suites.run, one) for one in python_suites.SUITES},
}


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.suites", description=__doc__)
    parser.add_argument("suite", nargs="*", help=f"one of {', '.join(SUITES)}; all of them without one")
    named = parser.parse_args(arguments).suite
    unknown = sorted(set(named) - SUITES.keys())
    if unknown:
        parser.error(f"unknown suite {unknown[0]}; there are {', '.join(SUITES)}")
    is_good = True
    for name in named or SUITES:
        print(f"=== {name}", flush=True)
        is_good &= report(SUITES[name]())
    subprocess.run([sys.executable, "tools/generate_docs.py"], cwd=ROOT, check=True)
    return 0 if is_good else 1


def report(run: SuiteRun) -> bool:
    """Prints a suite's results and keeps them; whether nothing failed that has no excuse."""
    if run.left_out:
        print(f"left out: {run.left_out}", flush=True)
        return True
    known = excuses()
    judged, needless = excused(run, known), stale(run, known)
    for result in judged.of(Outcome.FAILED):
        print(f"FAILED {result.id} ({result.seconds:.0f} s): {result.reason}")
    for excuse in needless:
        print(f"STALE cannot_apply.toml excuses {excuse.tests}, which did not fail")
    print(", ".join(f"{len(judged.of(outcome))} {outcome}" for outcome in Outcome), flush=True)
    keep(judged)
    return not judged.of(Outcome.FAILED) and not needless


def keep(run: SuiteRun, path: Path = RESULTS) -> None:
    """Puts a run into the file that the documentation's page is made of."""
    kept = json.loads(path.read_text()) if path.is_file() else {}
    kept[run.suite] = summary(run, datetime.datetime.now(datetime.UTC).date())
    ordered = {name: kept[name] for name in (*SUITES, *sorted(kept.keys() - SUITES.keys())) if name in kept}
    path.write_text(json.dumps(ordered, indent=1) + "\n")


def summary(run: SuiteRun, day: datetime.date) -> dict[str, object]:
    groups = sorted({one.group for one in run.results})
    reasons: dict[str, list[str]] = {}
    for one in run.of(Outcome.NOT_APPLICABLE):
        reasons.setdefault(one.reason, []).append(one.id)
    return {
        "version": run.version,
        "day": day.isoformat(),
        "groups": {
            group: {str(outcome): sum(one.group == group for one in run.of(outcome)) for outcome in Outcome}
            for group in groups
        },
        "failed": {one.id: one.reason for one in run.of(Outcome.FAILED)},
        "not applicable": dict(sorted(reasons.items())),
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
