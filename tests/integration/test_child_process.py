"""A child process ends when it is told to, and also when the process that started it is killed."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from headrace.testing.child_process import ChildProcess

SLEEPER = [sys.executable, "-c", "import time; print('here', flush=True); time.sleep(600)"]


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def wait_until_gone(pid: int) -> None:
    deadline = time.monotonic() + 10
    while is_alive(pid):
        assert time.monotonic() < deadline, f"process {pid} is still there"
        time.sleep(0.01)


def test_a_stopped_process_is_gone_and_its_signal_is_its_returncode(tmp_path: Path) -> None:
    process = ChildProcess(SLEEPER, output=tmp_path / "out")
    assert process.is_running
    assert process.stop() == -signal.SIGTERM
    assert not is_alive(process.pid)


def test_a_killed_process_leaves_its_output(tmp_path: Path) -> None:
    process = ChildProcess(SLEEPER, output=tmp_path / "out")
    while "here" not in process.output_text():
        time.sleep(0.01)
    process.kill()
    assert process.returncode == -signal.SIGKILL
    assert process.output_tail() == "here"


def test_a_process_that_ends_by_itself_gives_its_status(tmp_path: Path) -> None:
    process = ChildProcess([sys.executable, "-c", "raise SystemExit(3)"], output=tmp_path / "out")
    assert process.wait(10) == 3
    assert process.stop() == 3


def test_a_command_that_does_not_exist_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="no-such-command could not be started"):
        ChildProcess([tmp_path / "no-such-command"], output=tmp_path / "out")


def test_a_child_dies_with_the_process_that_started_it(tmp_path: Path) -> None:
    script = f"""
import sys, pathlib
from headrace.testing.child_process import ChildProcess
process = ChildProcess({SLEEPER!r}, output=pathlib.Path({str(tmp_path / "out")!r}))
print(process.pid, flush=True)
sys.stdin.read()
"""
    parent = subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    assert is_alive(pid)
    parent.kill()
    parent.communicate()
    wait_until_gone(pid)
