"""`Stopping`: what the main thread of `serve` and `web` waits for, a signal or somebody who calls `set`.

The system may give a signal to any thread of the process (it does after SIGSTOP and SIGCONT), while Python runs the
handler in the main thread, as soon as that runs. One that waits for a lock does not run: the broker went on as if there
had been no SIGTERM. So the main thread waits for a pipe, which every signal writes to, whatever thread it came to.
"""

import contextlib
import os
import select
import signal
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stopping:
    def __init__(self) -> None:
        self._is_set = False
        self._reader = self._writer = -1

    def listen(self) -> None:
        """From now on, SIGINT and SIGTERM do no more than to end the wait."""
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._writer, False)
        signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        for number in SIGNALS:
            signal.signal(number, self._signaled)

    def set(self) -> None:
        """From any thread."""
        self._is_set = True
        with contextlib.suppress(OSError):  # full of what wakes the main thread, or nobody waits
            os.write(self._writer, b"\0")

    def wait(self) -> None:
        """Once, in the main thread."""
        while not self._is_set:
            select.select([self._reader], [], [])
            os.read(self._reader, 1024)
        signal.set_wakeup_fd(-1)
        writer, self._writer = self._writer, -1
        os.close(writer)
        os.close(self._reader)

    def _signaled(self, number: int, frame: FrameType | None) -> None:
        self._is_set = True
