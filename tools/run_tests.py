"""`make test` and `make verify`: the tests of one tier, two folders at a time.

Each folder of `tests/` runs in a pytest process of its own, so the JVMs that it starts end with it. Two processes run
at once, because most tests wait (for Kafka's timers, for a JVM); with three, two cores are so busy that tests fail by
their clocks. The slowest folders start first. A folder that is not in the list runs too, after those.

The output of a folder is in `build/tests/FOLDER.txt` while it runs, and is printed when it has ended. With
`--folders=unit,property` only these run; all other arguments are passed on to pytest.
"""

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
    "conformance",
    "unit",
    "web",
    "integration",
    "compat",
    "simulation",
    "property",
    "docs",
    "cluster",
)
FOLDERS = "--folders="
NO_TESTS = 5
"""pytest's status when it has selected no test: a folder may have none of a tier."""
LOOK_S = 0.1


@dataclass(frozen=True, slots=True)
class Run:
    folder: str
    process: "subprocess.Popen[bytes]"
    output: Path
    started_at: float


def main(arguments: list[str]) -> int:
    named = [one.removeprefix(FOLDERS).split(",") for one in arguments if one.startswith(FOLDERS)]
    arguments = [one for one in arguments if not one.startswith(FOLDERS)]
    waiting = named[-1] if named else folders()
    running: list[Run] = []
    results: list[tuple[str, int]] = []
    outputs = ROOT / "build" / "tests"
    outputs.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        while waiting or running:
            while waiting and len(running) < AT_ONCE:
                folder = waiting.pop(0)
                path = outputs / f"{folder}.txt"
                run = _start(folder, arguments, path, stack.enter_context(path.open("wb")))
                stack.callback(_end, run.process)
                running.append(run)
            for run in [one for one in running if one.process.poll() is not None]:
                running.remove(run)
                results.append((_show(run), run.process.returncode))
            time.sleep(LOOK_S)
    print("\n=== All folders\n" + "\n".join(line for line, _ in results), flush=True)
    return _status([status for _, status in results])


def folders() -> list[str]:
    """Every folder with tests in it, the slowest first."""
    found = {path.name for path in (ROOT / "tests").iterdir() if any(path.rglob("test_*.py"))}
    return [name for name in SLOWEST_FIRST if name in found] + sorted(found.difference(SLOWEST_FIRST))


def _start(folder: str, arguments: list[str], path: Path, output: IO[bytes]) -> Run:
    command = [sys.executable, "-m", "pytest", "--durations=15", *arguments, f"tests/{folder}"]
    process = subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT)
    return Run(folder, process, path, time.monotonic())


def _show(run: Run) -> str:
    """Prints what it said; returns a line for the summary."""
    text = run.output.read_text(errors="replace").rstrip()
    print(f"\n=== {run.folder}\n{text}", flush=True)
    last = text.rpartition("\n")[2].strip("= ")
    return f"{run.folder:<12} {time.monotonic() - run.started_at:5.0f} s  status {run.process.returncode}  {last}"


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
