"""`make test`: every test, in two processes at once, because most of them wait (for Kafka's timers, for a JVM).

With three, two cores are so busy that tests fail by their clocks. What the first says is shown as it comes; what
the others say is shown when all are done. A folder that is in no list
goes to the first, so none is forgotten.
"""

import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

BESIDE = (("cluster", "integration", "spark"),)
TESTS = Path(__file__).resolve().parents[1] / "tests"


def main(arguments: list[str]) -> int:
    folders = sorted(path for path in TESTS.iterdir() if path.is_dir() and any(path.rglob("test_*.py")))
    pytest = [sys.executable, "-m", "pytest", "--durations=15", *arguments]
    first = [str(path) for path in folders if not any(path.name in names for names in BESIDE)]
    statuses = []
    with ExitStack() as stack:
        others = []
        for names in BESIDE:
            chosen = [str(path) for path in folders if path.name in names]
            if chosen:
                output = stack.enter_context(tempfile.TemporaryFile("w+"))
                other = subprocess.Popen([*pytest, *chosen], stdout=output, stderr=subprocess.STDOUT)
                stack.callback(_end, other)
                others.append((names, other, output))
        if first:
            statuses.append(subprocess.run([*pytest, *first], check=False).returncode)
        for names, other, output in others:
            statuses.append(other.wait())
            output.seek(0)
            print(f"\n=== {', '.join(names)}\n{output.read()}", flush=True)
    return max(statuses, key=abs, default=0)


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    process.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
