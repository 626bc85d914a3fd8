"""`make test` in two processes: every folder runs in one of them, and a failure in any fails the whole."""

import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
PASSES, FAILS = "def test_it():\n    pass\n", "def test_it():\n    assert False\n"


@pytest.mark.parametrize(
    ("texts", "status"),
    [
        ([PASSES, PASSES], 0),
        ([FAILS, PASSES], 1),
        ([PASSES, FAILS], 1),
    ],
)
def test_all_parts_decide_and_all_are_shown(texts: list[str], status: int, tmp_path: Path) -> None:
    for folder, text in zip(("fresh", "spark"), texts, strict=True):
        (tmp_path / "tests" / folder).mkdir(parents=True)
        (tmp_path / "tests" / folder / "test_one.py").write_text(text)
    (tmp_path / "tools").mkdir()
    tool = tmp_path / "tools" / "run_tests.py"
    tool.write_text((REPOSITORY / "tools" / "run_tests.py").read_text())
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --import-mode=importlib\n")
    ran = subprocess.run(
        [sys.executable, str(tool)], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert ran.returncode == status, ran.stdout + ran.stderr
    words = [f"1 {'passed' if text is PASSES else 'failed'}" for text in texts]
    first, _, second = ran.stdout.partition("\n=== ")
    assert words[0] in first
    assert words[1] in second
