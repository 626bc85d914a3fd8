"""Unit tests start no programs: `make unit` is the inner loop, and one start costs as much as a hundred tests."""

import os
import sys


def _refuse_programs(event: str, arguments: tuple[object, ...]) -> None:
    if event == "subprocess.Popen" and os.environ.get("PYTEST_CURRENT_TEST", "").startswith("tests/unit/"):
        raise AssertionError(f"a unit test starts {arguments[0]!r}; its place is tests/integration")


sys.addaudithook(_refuse_programs)
