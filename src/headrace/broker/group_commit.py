"""Group commit: whoever needs durability waits for the next fdatasync, and one fdatasync serves all who wait.

While one sync runs on the worker thread, later requests collect for the next. The rule (design.md, decision 7):
with `headrace.flush=fsync` an answer that promises durability leaves after the sync; with `os` it leaves at once.
A failed sync is final: nobody knows which bytes the kernel dropped, so the broker stops rather than lie.
"""

from collections.abc import Callable, Iterable

from headrace.broker.later import Later, resolved
from headrace.broker.runner import Run
from headrace.log.partition_log import PartitionLog

Sync = Callable[[list[PartitionLog]], None]


class GroupCommit:
    def __init__(self, sync: Sync, run: Run | None, on_failure: Callable[[Exception], None]) -> None:
        """Without a runner nothing is synced: the operating system's page cache, or memory, has to do."""
        self._sync = sync
        self._run = run
        self._on_failure = on_failure
        self._dirty: dict[PartitionLog, None] = {}
        self._next: Later[None] = Later()
        self._is_running = False
        self._has_failed = False
        self._done: Later[None] = resolved(None)

    def durable(self, logs: Iterable[PartitionLog]) -> Later[None]:
        """Resolves once everything the logs hold now is on disk. After a failed sync it never does."""
        if self._run is None:
            return self._done
        for log in logs:
            self._dirty[log] = None
        if not self._dirty and not self._is_running:
            return self._done
        waiting = self._next
        self._start()
        return waiting

    def _start(self) -> None:
        if self._is_running or self._has_failed or not self._dirty or self._run is None:
            return
        self._is_running = True
        logs, self._dirty = list(self._dirty), {}
        waiting, self._next = self._next, Later()

        def done(error: Exception | None) -> None:
            self._is_running = False
            if error is not None:
                self._has_failed = True
                self._on_failure(error)
                return
            waiting.resolve(None)
            self._start()

        self._run(lambda: self._sync(logs), done)
