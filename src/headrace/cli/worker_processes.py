"""Several processes of `headrace worker`, and `--reload`: starts them, forwards signals, starts anew what has died.

A child has a pipe from us as its standard input. When we are gone, however that came, the pipe ends and the child
drains and stops.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from types import FrameType

from headrace.cli.failures import say

SUPERVISED = "HEADRACE_WORKER_SUPERVISED"
LOOK_S = 0.3
YOUNG_S = 5.0
"""A process that fails so soon after its first start has something wrong with it: all end with its status."""
AGAIN_S = 1.0
STOP_S = 120.0
SKIPPED = {"node_modules", "site-packages", "__pycache__", "build", "dist"}
FILES_MAX = 20_000


class Supervisor:
    """`command(number)` is the command of a child; numbers begin at 0."""

    def __init__(
        self, command: Callable[[int], list[str]], count: int, *, folder: Path | None = None
    ) -> None:
        self._command = command
        self._children: list[subprocess.Popen[bytes] | None] = [None] * count
        self._started_s = [0.0] * count
        self._folder = folder
        """Whose Python files are watched; None for none."""
        self._files = read_times(folder)
        self._wake = threading.Event()
        self._signals = 0
        self._signal: int = signal.SIGTERM

    def run(self) -> int:
        before = {number: signal.signal(number, self._signaled) for number in (signal.SIGINT, signal.SIGTERM)}
        begin_s = time.monotonic()
        try:
            for number in range(len(self._children)):
                self._start(number)
            return self._watch(begin_s)
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            self._end()

    def _watch(self, begin_s: float) -> int:
        forwarded = 0
        while True:
            self._wake.wait(LOOK_S)
            self._wake.clear()
            while forwarded < self._signals:
                forwarded += 1
                self._send(signal.SIGTERM)
            code = self._reap(begin_s)
            if code is not None:
                return code
            if not self._signals and self._has_changed():
                say("headrace worker: files have changed; restarting")
                self._end()
                for number in range(len(self._children) if not self._signals else 0):
                    self._start(number)

    def _reap(self, begin_s: float) -> int | None:
        """Looks after children that have ended. The status to end with, when all is over."""
        for number, child in enumerate(self._children):
            code = child.poll() if child is not None else 0
            if child is None or code is None:
                continue
            self._children[number] = None
            if code == 0 or self._signals:
                continue
            if code > 0 and self._folder is None and time.monotonic() - begin_s < YOUNG_S:
                self._end()
                return code
            say(f"headrace worker: process {child.pid} ended with status {code}; starting another")
            time.sleep(max(0.0, AGAIN_S - (time.monotonic() - self._started_s[number])))
            self._start(number)
        if all(child is None for child in self._children) and (self._folder is None or self._signals):
            return 0
        return None

    def _start(self, number: int) -> None:
        self._started_s[number] = time.monotonic()
        self._children[number] = subprocess.Popen(
            self._command(number),
            stdin=subprocess.PIPE,
            env={**os.environ, SUPERVISED: "1"},
            start_new_session=True,  # Ctrl+C comes to us alone, and once
        )

    def _send(self, number: int) -> None:
        for child in self._children:
            if child is not None and child.poll() is None:
                child.send_signal(number)

    def _end(self) -> None:
        """Drains all children and waits for them. Of the signals that come meanwhile, the second and further ones hurry
        them: the first one asks for what goes on already."""
        self._send(signal.SIGTERM)
        forwarded, deadline_s = max(1, self._signals), time.monotonic() + STOP_S
        while any(child is not None and child.poll() is None for child in self._children):
            self._wake.wait(LOOK_S)
            self._wake.clear()
            if self._signals > forwarded:
                forwarded = self._signals
                self._send(signal.SIGTERM)
            if time.monotonic() > deadline_s:
                self._send(signal.SIGKILL)
        self._children = [None] * len(self._children)

    def _signaled(self, number: int, frame: FrameType | None) -> None:
        self._signals += 1
        self._wake.set()

    def _has_changed(self) -> bool:
        if self._folder is None:
            return False
        found = read_times(self._folder)
        has_changed, self._files = found != self._files, found
        return has_changed


def read_times(folder: Path | None) -> dict[str, int]:
    """The Python files below a folder, and when each was changed."""
    times: dict[str, int] = {}
    for root, names, files in os.walk(folder) if folder is not None else ():
        names[:] = [name for name in names if name not in SKIPPED and not name.startswith(".")]
        for name in files:
            if name.endswith(".py") and len(times) < FILES_MAX:
                path = Path(root, name)
                try:
                    times[str(path)] = path.stat().st_mtime_ns
                except FileNotFoundError:
                    continue
    return times


def stop_with_parent(stops: Iterable[Callable[[], object]]) -> None:
    """In a child: stops when the process that supervises it has gone."""
    if not os.environ.pop(SUPERVISED, ""):
        return
    stdin = sys.stdin.fileno()

    def wait() -> None:
        # Not with sys.stdin: Python aborts at its end when a thread still waits in there.
        while os.read(stdin, 1):
            pass
        for stop in stops:
            stop()

    threading.Thread(target=wait, name="headrace-supervised", daemon=True).start()
