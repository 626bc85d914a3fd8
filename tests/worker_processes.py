"""Workers that are processes of their own, so that a test can kill them with -9."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager


class WorkerProcesses:
    """A program that prints `ready`, in as many processes as are started."""

    def __init__(self, *command: str) -> None:
        self._command = [sys.executable, *command]
        self.running: list[subprocess.Popen[str]] = []
        self.killed: dict[int, float] = {}
        """When each was certainly gone, by its process id."""

    def start(self) -> None:
        process = subprocess.Popen(
            self._command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self.running.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"

    def kill(self, index: int) -> None:
        process = self.running.pop(index)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        self.killed[process.pid] = time.monotonic()

    def stop(self) -> None:
        for process in self.running:
            process.terminate()
        for process in self.running:
            process.communicate()


@contextmanager
def process_group(*command: str, environment: Mapping[str, str]) -> "Iterator[subprocess.Popen[bytes]]":
    """A module's command in a process group of its own, all of which is killed at the end."""
    process = subprocess.Popen(
        [sys.executable, "-m", *command],
        env={**os.environ, **environment},
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
