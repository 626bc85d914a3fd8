"""The examples of the task queue run, and their accounts hold."""

import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
WAIT_S = 110


def run(*command: str, cwd: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=WAIT_S)


@pytest.mark.parametrize("example", ["images", "emails", "fraud"])
def test_an_example_holds_its_account(example, tmp_path):
    ran = run(sys.executable, str(REPOSITORY / "examples" / f"{example}.py"), cwd=tmp_path)

    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.rstrip().endswith("the account holds")
    assert list(tmp_path.iterdir()) == [], "it leaves nothing behind"
