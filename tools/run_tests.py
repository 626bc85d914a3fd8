"""`make test`: every test, in two processes at once, because most of them wait (for Kafka's timers, for a JVM).

What the first says is shown as it comes; what the second says is shown when both are done. A folder that is in
neither list goes to the first, so none is forgotten.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

SECOND = ("docs", "integration", "spark", "web")
TESTS = Path(__file__).resolve().parents[1] / "tests"


def main(arguments: list[str]) -> int:
    folders = sorted(path for path in TESTS.iterdir() if path.is_dir() and any(path.rglob("test_*.py")))
    first = [str(path) for path in folders if path.name not in SECOND]
    second = [str(path) for path in folders if path.name in SECOND]
    pytest = [sys.executable, "-m", "pytest", "--durations=15", *arguments]
    with tempfile.TemporaryFile("w+") as output:
        beside = subprocess.Popen([*pytest, *second], stdout=output, stderr=subprocess.STDOUT)
        try:
            here = subprocess.run([*pytest, *first], check=False).returncode
            there = beside.wait()
        finally:
            beside.terminate()
            beside.wait()
        output.seek(0)
        print(f"\n=== {', '.join(SECOND)}\n{output.read()}", flush=True)
    return here or there


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
