"""A child process that is killed when this process ends, however it ends.

The command runs under a small guard (this file, run as a script), which reads from a pipe. The operating system closes
the pipe when this process ends, even by `kill -9`, and the guard then kills the command. The guard has its own session,
so Ctrl+C reaches only this process, which can stop the others in order.
"""

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

GONE_TIMEOUT_S = 30


class ChildProcess:
    """A running command whose output goes to a file. `pid` is that of the command, not of its guard."""

    def __init__(
        self,
        command: Sequence[str | Path],
        *,
        output: Path,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> None:
        self.command = [str(part) for part in command]
        self.output = output
        pid_reader, pid_writer = os.pipe()
        try:
            with output.open("ab") as file:
                self._guard = subprocess.Popen(
                    [sys.executable, "-S", "-E", __file__, str(pid_writer), *self.command],
                    stdin=subprocess.PIPE,
                    stdout=file,
                    stderr=subprocess.STDOUT,
                    env=None if env is None else {**os.environ, **env},
                    cwd=cwd,
                    pass_fds=[pid_writer],
                    start_new_session=True,
                )
        finally:
            os.close(pid_writer)
        with os.fdopen(pid_reader) as reader:
            answer = reader.read().strip()
        if not answer:
            self._wait(GONE_TIMEOUT_S)
            raise OSError(f"{self.command[0]} could not be started: {self.output_tail()}")
        self.pid = int(answer)

    @property
    def is_running(self) -> bool:
        return self._guard.poll() is None

    @property
    def returncode(self) -> int | None:
        """As in subprocess: the exit status, or minus the number of the signal; None while the command runs."""
        code = self._guard.poll()
        return 128 - code if code is not None and code > 128 else code

    def stop(self, timeout_s: float = GONE_TIMEOUT_S) -> int | None:
        """Sends SIGTERM and waits; kills the command if it does not end in time."""
        self._signal(signal.SIGTERM)
        try:
            self._wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
        return self.returncode

    def kill(self) -> None:
        """Sends SIGKILL, and waits for the end."""
        self._signal(signal.SIGKILL)
        self._wait(GONE_TIMEOUT_S)

    def wait(self, timeout_s: float) -> int | None:
        """Waits for the command to end; raises subprocess.TimeoutExpired if it does not."""
        self._wait(timeout_s)
        return self.returncode

    def output_text(self) -> str:
        return self.output.read_text(errors="replace")

    def output_tail(self, lines: int = 40) -> str:
        return "\n".join(self.output_text().splitlines()[-lines:])

    def _signal(self, number: signal.Signals) -> None:
        # The guard ends right after the command does, so while it runs this pid is not someone else's.
        if self.is_running:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def _wait(self, timeout_s: float) -> None:
        self._guard.wait(timeout_s)
        if self._guard.stdin:
            self._guard.stdin.close()


def guard(pid_writer: int, command: list[str]) -> int:
    """Runs the command, writes its pid, and kills it when standard input ends. Returns its exit status."""
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, close_fds=True)
    os.write(pid_writer, f"{child.pid}\n".encode())
    os.close(pid_writer)

    def kill_when_parent_is_gone() -> None:
        sys.stdin.buffer.read()
        child.kill()

    threading.Thread(target=kill_when_parent_is_gone, daemon=True).start()
    code = child.wait()
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    os._exit(guard(int(sys.argv[1]), sys.argv[2:]))
