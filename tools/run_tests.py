"""`make test` and `make verify`: the tests of one tier, several folders at a time.

Each folder of `tests/` runs in a pytest process of its own, so the JVMs that it starts end with it. Two processes run
at once, or as many as `--at-once=` says, because most tests wait (for Kafka's timers, for a JVM). The slowest folders
start first. A folder that is not in the list runs too, after those.

The output of a folder is in `build/tests/FOLDER.txt` while it runs, and is printed when it has ended. With
`--folders=unit,property` only these run; all other arguments are passed on to pytest.

With `--again`, which CI uses, the tests that failed run once more when everything else has ended, and so does a folder
whose process was ended by a signal: foreign clients are native code and can crash. What passes then is reported as
flaky and does not fail the run; a flaky test is still a bug. More than a few failures are not run again.
"""

import json
import shutil
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO

ROOT = Path(__file__).resolve().parents[1]
AT_ONCE = 2
SLOWEST_FIRST = (
    "spark",
    "integration",
    "conformance",
    "web",
    "unit",
    "simulation",
    "docs",
    "property",
    "compat",
    "cluster",
)
FOLDERS = "--folders="
LANES = "--at-once="
AGAIN = "--again"
MOST_AGAIN = 8
"""More failures than this in one folder have a cause of their own, and are not run again."""
FAILED = 1
"""pytest's status when tests failed."""
NO_TESTS = 5
"""pytest's status when it has selected no test: a folder may have none of a tier."""
LOOK_S = 0.1


@dataclass(frozen=True, slots=True)
class Run:
    folder: str
    process: "subprocess.Popen[bytes]"
    output: Path
    started_at: float


@dataclass(frozen=True, slots=True)
class Result:
    folder: str
    line: str
    status: int


def main(arguments: list[str]) -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # the folders end, too
    named = [one.removeprefix(FOLDERS).split(",") for one in arguments if one.startswith(FOLDERS)]
    lanes = [int(one.removeprefix(LANES)) for one in arguments if one.startswith(LANES)]
    is_again = AGAIN in arguments
    arguments = [one for one in arguments if not one.startswith((FOLDERS, LANES)) and one != AGAIN]
    results = _run(named[-1] if named else folders(), arguments, at_once=lanes[-1] if lanes else AT_ONCE)
    lines = [result.line for result in results]
    if is_again and (failed := [result for result in results if _may_run_again(result)]):
        again = _run([result.folder for result in failed], [*arguments, "--last-failed"], at_once=1)
        results = [result for result in results if result not in failed] + again
        lines += [f"{result.line}  (run again)" for result in again]
        flaky = [result.folder for result in again if result.status == 0]
        lines += [f"flaky: {', '.join(flaky)}: what failed there at first has passed"] if flaky else []
    print("\n=== All folders\n" + "\n".join(lines), flush=True)
    return _status([result.status for result in results])


def _run(waiting: list[str], arguments: list[str], *, at_once: int) -> list[Result]:
    """Runs the folders, and shows what each of them said."""
    waiting = list(waiting)
    running: list[Run] = []
    results: list[Result] = []
    outputs = ROOT / "build" / "tests"
    outputs.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        while waiting or running:
            while waiting and len(running) < at_once:
                folder = waiting.pop(0)
                path = outputs / f"{folder}.txt"
                run = _start(folder, arguments, path, stack.enter_context(path.open("wb")))
                stack.callback(_end, run.process)
                running.append(run)
            for run in [one for one in running if one.process.poll() is not None]:
                running.remove(run)
                results.append(_show(run))
            time.sleep(LOOK_S)
    return results


def folders() -> list[str]:
    """Every folder with tests in it, the slowest first."""
    found = {path.name for path in (ROOT / "tests").iterdir() if any(path.rglob("test_*.py"))}
    return [name for name in SLOWEST_FIRST if name in found] + sorted(found.difference(SLOWEST_FIRST))


def _start(folder: str, arguments: list[str], path: Path, output: IO[bytes]) -> Run:
    cache = f"cache_dir={_cache(folder)}"
    command = [sys.executable, "-m", "pytest", "--durations=15", "-o", cache, *arguments, f"tests/{folder}"]
    process = subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT)
    return Run(folder, process, path, time.monotonic())


def _cache(folder: str) -> Path:
    """What pytest remembers of a folder; in one place for all, processes that end together would overwrite it."""
    return ROOT / "build" / "tests" / f"{folder}.cache"


def _may_run_again(result: Result) -> bool:
    if result.status < 0:
        # Nothing is known of what failed: the whole folder runs again.
        shutil.rmtree(_cache(result.folder), ignore_errors=True)
        return True
    remembered = _cache(result.folder) / "v" / "cache" / "lastfailed"
    return (
        result.status == FAILED
        and remembered.exists()
        and 0 < len(json.loads(remembered.read_text())) <= MOST_AGAIN
    )


def _show(run: Run) -> Result:
    """Prints what it said."""
    text = run.output.read_text(errors="replace").rstrip()
    print(f"\n=== {run.folder}\n{text}", flush=True)
    last = text.rpartition("\n")[2].strip("= ")
    status = run.process.returncode
    line = f"{run.folder:<12} {time.monotonic() - run.started_at:5.0f} s  status {status}  {last}"
    return Result(run.folder, line, status)


def _status(statuses: list[int]) -> int:
    failed = [status for status in statuses if status not in (0, NO_TESTS)]
    if failed:
        return max(failed, key=abs)
    return 0 if 0 in statuses else NO_TESTS


def _end(process: "subprocess.Popen[bytes]") -> None:
    if process.poll() is None:
        process.terminate()
        process.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
