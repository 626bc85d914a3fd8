"""The server: sockets, the event loop's timer, the worker threads. The only part of the broker that waits."""

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count

from headrace.broker.addresses import advertised_address
from headrace.broker.connection import Connection
from headrace.broker.core import BrokerCore
from headrace.broker.group_commit import SYNCS_MAX

logger = logging.getLogger("headrace.broker")

IDLE_CHECK_S = 10.0


class Server:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.core: BrokerCore
        self.port = 0
        self.loop = loop
        self._worker = ThreadPoolExecutor(SYNCS_MAX, "headrace-sync")
        self._cleaner = ThreadPoolExecutor(1, "headrace-cleaner")
        self._connections: dict[int, Connection] = {}
        self._per_address: Counter[str] = Counter()
        self._writing: list[Connection] = []
        self._ids = count(1)
        self._listener: asyncio.Server | None = None
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_ms = 0
        self._idle_alarm: asyncio.TimerHandle | None = None
        self._is_stopping = False
        self._are_threads_closed = False
        self._ended: deque[tuple[Callable[[Exception | None], None], Exception | None]] = deque()
        self._is_waking = False
        self._worked = asyncio.Event()
        self.progress = 0
        """Pieces of work that the threads have done: a stop that still makes progress is not stuck."""

    def run(self, work: Callable[[], None], done: Callable[[Exception | None], None]) -> None:
        """The core's `Runner`: work on one of the sync threads, `done` back here."""
        self._run_on(self._worker, work, done)

    def run_slow(self, work: Callable[[], None], done: Callable[[Exception | None], None]) -> None:
        """For long work (compaction), which must not delay a sync."""
        self._run_on(self._cleaner, work, done)

    def _run_on(
        self, pool: ThreadPoolExecutor, work: Callable[[], None], done: Callable[[Exception | None], None]
    ) -> None:
        def guarded() -> None:
            failure: Exception | None = None
            try:
                work()
            except Exception as error:
                failure = error
            self._ended.append((done, failure))
            if not self._is_waking:
                self._is_waking = True
                self.loop.call_soon_threadsafe(self._finish)

        if not self._are_threads_closed:  # what is left to sync then, the closing of the logs syncs
            pool.submit(guarded)

    def _finish(self) -> None:
        """What the threads have done since the last time: many syncs end at once, and one turn is enough for them."""
        self._is_waking = False  # before looking: whatever ends from now on wakes the loop again
        for _ in range(len(self._ended)):
            done, failure = self._ended.popleft()
            self.progress += 1
            try:
                done(failure)
            except Exception:
                logger.exception("what should follow a piece of work has failed")
        self._worked.set()
        if self._listener is not None:  # a start that had to write something comes here before
            self.settle()

    async def listen(self, core: BrokerCore, host: str, port: int) -> None:
        self.core = core
        backlog = core.settings.int("socket.listen.backlog.size")
        self._listener = await self.loop.create_server(
            lambda: Connection(self, next(self._ids)),
            host or None,
            port,
            backlog=backlog,
            start_serving=False,
        )
        self.port = int(self._listener.sockets[0].getsockname()[1])
        # Before the first client can ask: after a crash they are at the door already.
        core.host, core.port = advertised_address(core.settings, host, self.port)
        await self._listener.start_serving()
        self._watch_idle()
        self.settle()

    def opened(self, connection: Connection) -> None:
        settings = self.core.settings
        self._connections[connection.id] = connection
        self._per_address[connection.address] += 1
        for name, number in (
            ("max.connections", len(self._connections)),
            ("max.connections.per.ip", self._per_address[connection.address]),
        ):
            if number > settings.int(name):
                logger.warning(
                    "refusing a connection from %s: %s=%d", connection.address, name, settings.int(name)
                )
                connection.close()
                return

    def closed(self, connection: Connection) -> None:
        if (
            not self._is_stopping
        ):  # a broker that stops is not a member that has gone: its records are not given back
            for told in self.core.on_disconnect:
                try:
                    told(connection.id)
                except Exception:  # the connection has gone all the same
                    logger.exception("what connection %d held may not have been given back", connection.id)
        if self._connections.pop(connection.id, None) is not None:
            self._per_address[connection.address] -= 1
            if not self._per_address[connection.address]:
                del self._per_address[connection.address]

    def settle(self) -> None:
        """After anything that happened: let responses go, run what became due, set the alarm for what comes next."""
        self._write_responses()
        if self._is_stopping:
            return
        self.core.settle()
        self._write_responses()
        deadline_ms = self.core.deadline_ms()
        if deadline_ms is None or (self._alarm is not None and self._alarm_ms <= deadline_ms):
            return
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm_ms = deadline_ms
        delay_s = max(0, deadline_ms - self.core.clock.monotonic_ms()) / 1000
        self._alarm = self.loop.call_later(delay_s, self._ring)

    def will_write(self, connection: Connection) -> None:
        """The connection has responses for the end of this turn."""
        self._writing.append(connection)

    def _write_responses(self) -> None:
        if self._writing:
            writing, self._writing = self._writing, []
            for connection in writing:
                connection.write_outgoing()

    def _ring(self) -> None:
        self._alarm = None
        self.settle()

    def clock_moved(self) -> None:
        """A manual clock was advanced: everything that is due now is done when this returns."""
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        self.settle()
        while self.core.is_due():
            self.settle()

    def _watch_idle(self) -> None:
        """Idle is measured in real time: a test that advances the manual clock keeps its connections."""
        idle_ms = self.core.settings.int("connections.max.idle.ms")
        if idle_ms >= 0:
            for connection in list(self._connections.values()):
                if (self.loop.time() - connection.last_active_s) * 1000 > idle_ms:
                    connection.close_or_abort()
        self._idle_alarm = self.loop.call_later(IDLE_CHECK_S, self._watch_idle)

    async def stop(self) -> None:
        """Takes no more requests, lets the running sync end, and closes the logs."""
        self._is_stopping = True
        if self._listener is not None:
            self._listener.close()
        for alarm in (self._alarm, self._idle_alarm):
            if alarm is not None:
                alarm.cancel()
        for connection in list(self._connections.values()):
            connection.close()
        self.core.wind_down()
        await self._sync_all()
        self._are_threads_closed = True
        await self.loop.run_in_executor(None, self.close_threads)
        await asyncio.sleep(0)
        self.core.close()
        await self.loop.shutdown_default_executor()

    async def _sync_all(self) -> None:
        """Many at a time; then there is little left for the closing of the logs, which goes through them in turn."""
        if self.core.failure is not None:
            return
        synced = self.core.saved(self.core.logs.prepare_to_close())
        while not synced.is_done and self.core.failure is None:
            self._worked.clear()
            await self._worked.wait()

    def close_threads(self) -> None:
        self._worker.shutdown()
        self._cleaner.shutdown(cancel_futures=True)  # what has not begun can wait for the next start
