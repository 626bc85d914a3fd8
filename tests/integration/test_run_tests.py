"""`make test` and `make verify`: every folder runs, and a failure in any of them fails the whole."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
PASSES, FAILS = "def test_it():\n    pass\n", "def test_it():\n    assert False\n"
VERIFIES = f"import pytest\n@pytest.mark.verify\n{PASSES}"
SECOND_TIME = """
from pathlib import Path
def test_it():
    mark = Path("{mark}")
    if not mark.exists():
        mark.touch()
        {failure}
"""


def lay_out(folders: dict[str, str], tmp_path: Path, *arguments: str) -> list[str]:
    """The command that runs them."""
    for folder, text in folders.items():
        (tmp_path / "tests" / folder).mkdir(parents=True)
        (tmp_path / "tests" / folder / "test_one.py").write_text(text)
    (tmp_path / "tools").mkdir()
    tool = tmp_path / "tools" / "run_tests.py"
    tool.write_text((REPOSITORY / "tools" / "run_tests.py").read_text())
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\naddopts = --import-mode=importlib\nmarkers =\n    verify: in make verify only\n"
    )
    return [sys.executable, str(tool), "-m", "not verify", *arguments]


def run(folders: dict[str, str], tmp_path: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    command = lay_out(folders, tmp_path, *arguments)
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


@pytest.mark.parametrize("failure", ["assert False", "import os; os.kill(os.getpid(), 11)"])
def test_what_passes_when_it_runs_again_is_reported_and_fails_nothing(failure: str, tmp_path: Path) -> None:
    flaky = SECOND_TIME.format(mark=tmp_path / "mark", failure=failure)
    ran = run({"fresh": PASSES, "spark": flaky}, tmp_path, "--again")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "flaky: spark" in ran.stdout
    assert ran.stdout.count("=== fresh") == 1


@pytest.mark.parametrize("failure", ["assert False", "import os; os.kill(os.getpid(), 11)"])
def test_what_fails_twice_fails_the_run(failure: str, tmp_path: Path) -> None:
    fails = f"def test_it():\n    {failure}\n"
    ran = run({"fresh": PASSES, "spark": fails}, tmp_path, "--again")
    assert ran.returncode != 0
    assert "flaky" not in ran.stdout
    assert ran.stdout.count("=== spark") == 2


def test_many_failures_are_not_run_again(tmp_path: Path) -> None:
    fails = "".join(f"def test_{number}():\n    assert False\n" for number in range(9))
    ran = run({"spark": fails}, tmp_path, "--again")
    assert ran.returncode == 1
    assert ran.stdout.count("=== spark") == 1


def test_only_what_failed_runs_again(tmp_path: Path) -> None:
    flaky = SECOND_TIME.format(mark=tmp_path / "mark", failure="assert False")
    ran = run({"spark": f"{flaky}\ndef test_other():\n    pass\n"}, tmp_path, "--again")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "1 failed, 1 passed" in ran.stdout
    _, _, again = ran.stdout.partition("=== spark")[2].partition("=== spark")
    assert "1 passed" in again
    assert "2 passed" not in again


def test_a_part_of_a_folder_runs_again_although_the_list_of_verify_names_others_of_it(tmp_path: Path) -> None:
    failed = "tests/stories/test_blog.py::test_a_group_is_set_back_to_the_earliest_offset[headrace_server]"
    remembered = tmp_path / "v" / "cache" / "lastfailed"
    remembered.parent.mkdir(parents=True)
    remembered.write_text(json.dumps({failed: True}))
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-o", f"cache_dir={tmp_path}"]
    again = subprocess.run(
        [*command, "--last-failed", "-m", "not verify", "tests/stories"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert again.returncode == 0, again.stdout + again.stderr
    assert failed in again.stdout


def test_tests_are_collected_without_the_cache_of_pytest() -> None:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--collect-only", "-q", "tests/tidy"]
    collected = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=60)
    assert collected.returncode == 0, collected.stdout + collected.stderr


def test_what_runs_ends_with_it(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    waits = f"""
import signal
from pathlib import Path
def test_it():
    with Path("{pipe}").open("w") as file:
        file.write("here")
        file.flush()
        signal.pause()
"""
    command = lay_out({"fresh": waits}, tmp_path)
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE) as tool, pipe.open() as file:
        assert file.read(4) == "here"
        tool.terminate()
        assert file.read() == "", "the other end is closed when its process has ended"
    assert tool.returncode == 128 + signal.SIGTERM
