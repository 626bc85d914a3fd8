"""`make test` and `make verify`: every folder runs, and a failure in any of them fails the whole."""

import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
PASSES, FAILS = "def test_it():\n    pass\n", "def test_it():\n    assert False\n"
VERIFIES = f"import pytest\n@pytest.mark.verify\n{PASSES}"


def run(folders: dict[str, str], tmp_path: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    for folder, text in folders.items():
        (tmp_path / "tests" / folder).mkdir(parents=True)
        (tmp_path / "tests" / folder / "test_one.py").write_text(text)
    (tmp_path / "tools").mkdir()
    tool = tmp_path / "tools" / "run_tests.py"
    tool.write_text((REPOSITORY / "tools" / "run_tests.py").read_text())
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\naddopts = --import-mode=importlib\nmarkers =\n    verify: in make verify only\n"
    )
    command = [sys.executable, str(tool), "-m", "not verify", *arguments]
    return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize(
    ("folders", "status"),
    [
        ({"fresh": PASSES, "spark": PASSES, "unit": VERIFIES}, 0),
        ({"fresh": PASSES, "spark": FAILS, "unit": PASSES}, 1),
        ({"fresh": VERIFIES}, 5),
    ],
)
def test_all_folders_decide_and_all_are_shown(folders: dict[str, str], status: int, tmp_path: Path) -> None:
    ran = run(folders, tmp_path)
    assert ran.returncode == status, ran.stdout + ran.stderr
    shown, _, summary = ran.stdout.partition("\n=== All folders\n")
    said = {PASSES: "1 passed", FAILS: "1 failed", VERIFIES: "1 deselected"}
    for folder, text in folders.items():
        assert said[text] in shown.partition(f"\n=== {folder}\n")[2].partition("\n=== ")[0]
        assert any(line.split()[0] == folder and said[text] in line for line in summary.splitlines())


def test_some_folders_run_alone(tmp_path: Path) -> None:
    ran = run({"fresh": PASSES, "spark": FAILS}, tmp_path, "--folders=fresh")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "spark" not in ran.stdout
