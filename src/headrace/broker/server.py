"""The server: sockets, the event loop's timer, the worker threads. The only part of the broker that waits."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count

from headrace.broker.connection import Connection
from headrace.broker.core import BrokerCore
from headrace.broker.group_commit import SYNCS_MAX
from headrace.broker.security.limits import RATE, ConnectionLimits, connections_beside_files
from headrace.broker.security.listeners import BrokerListener, check_protocol
from headrace.broker.security.sasl.connection import SaslConnection
from headrace.broker.security.sasl.logins import ListenerLogins, check_logins
from headrace.broker.security.tls import ListenerTls, make_context
from headrace.broker.security.tls_door import TlsDoor

logger = logging.getLogger("headrace.broker")

IDLE_CHECK_S = 10.0
OTHERS_MAX = 4
"""Threads beside those of the group commit: batches are opened, closed segments synced, old files removed, the reserve
is made again."""


class Server:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.core: BrokerCore
        self.loop = loop
        self.listeners: list[BrokerListener] = []
        self._worker = ThreadPoolExecutor(SYNCS_MAX + OTHERS_MAX, "headrace-sync")
        self._cleaner = ThreadPoolExecutor(1, "headrace-cleaner")
        self._connections: dict[int, Connection] = {}
        self._limits = ConnectionLimits(connections_beside_files())
        self.held_for_unknown = 0
        """Bytes that are in memory for clients that have not logged in."""
        self._tls: list[ListenerTls] = []
        self._logins: list[ListenerLogins] = []
        self._writing: list[Connection] = []
        self._ids = count(1)
        self._sockets: list[asyncio.Server | TlsDoor] = []
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

        if self._are_threads_closed:
            return  # what is left to sync then, the closing of the logs syncs
        try:
            pool.submit(guarded)
        except RuntimeError:  # the main thread has ended, and Python's pools take no more work: do it here
            guarded()

    def _finish(self) -> None:
        """What the threads have done since the last time: many syncs end at once, and one turn is enough for them."""
        self._is_waking = False  # before looking: whatever ends from now on wakes the loop again
        for _ in range(len(self._ended)):
            done, failure = self._ended.popleft()
            self.progress += 1
            try:
                done(failure)
            except Exception:
                logger.exception("a follow-up action failed")
        self._worked.set()
        if self._sockets:  # a start that had to write something comes here before
            self.settle()

    async def listen(self, core: BrokerCore, listeners: Sequence[BrokerListener]) -> None:
        self.core = core
        for listener in listeners:
            self.listeners.append(await self._bind(listener))
        # Before the first client can ask: after a crash they are at the door already.
        core.metrics.gauge("connection-count", lambda: len(self._connections))
        core.addresses = {each.name: each.advertised for each in self.listeners if each.advertised}
        for accepting in self._sockets:
            await accepting.start_serving()
        core.settings.on_changed.append(self._refresh_tls)
        core.settings.checks.append(self._check_security)
        self._watch_idle()
        self.settle()

    def _check_security(self) -> None:
        for listener in self.listeners:
            check_protocol(self.core.settings, listener)
            check_logins(self.core.settings, listener)
            if listener.protocol.has_tls:
                make_context(self.core.settings, listener)

    def _refresh_tls(self) -> None:
        for tls in self._tls:
            tls.refresh()

    async def _bind(self, listener: BrokerListener) -> BrokerListener:
        make = self._connections_of(listener)
        backlog = self.core.settings.get_int("socket.listen.backlog.size")
        if listener.protocol.has_tls:
            tls = ListenerTls(self.core.settings, listener)
            door = TlsDoor(self, listener, tls, make)
            self._tls.append(tls)
            self._sockets.append(door)
            return listener.bound_to(await door.bind(backlog))
        accepting = await self.loop.create_server(
            make, listener.host or None, listener.port, backlog=backlog, start_serving=False
        )
        self._sockets.append(accepting)
        return listener.bound_to(int(accepting.sockets[0].getsockname()[1]))

    def _connections_of(self, listener: BrokerListener) -> Callable[[], Connection]:
        if not listener.protocol.has_sasl:
            return lambda: Connection(self, next(self._ids), listener.name)
        logins = ListenerLogins(self.core, listener.name)
        self._logins.append(logins)
        return lambda: SaslConnection(self, next(self._ids), listener.name, logins)

    def admit(self, address: str, listener: str) -> bool:
        """Counts a new connection, and says whether the limits let it in. `leave` takes it off again."""
        self._limits.count(address, listener)
        refusal = self._limits.refusal(self.core.settings, address, listener)
        if refusal is not None:
            logger.warning("refusing a connection from %s: %s", address, refusal)
        return refusal is None

    def turn_s(self, address: str, listener: str) -> float | None:
        """How long a connection that was let in waits before it is served; None if it has to go."""
        wait_s = self._limits.turn_s(self.core.settings, listener, self.loop.time())
        if wait_s is None:
            logger.warning("refusing a connection from %s: too many wait because of %s", address, RATE)
        return wait_s

    def leave(self, address: str, listener: str) -> None:
        self._limits.forget(address, listener)

    def opened(self, connection: Connection) -> None:
        self._connections[connection.id] = connection
        if connection.is_counted:
            return
        is_let_in = self.admit(connection.address, connection.listener)
        wait_s = self.turn_s(connection.address, connection.listener) if is_let_in else None
        if wait_s is None:
            connection.close()
        elif wait_s > 0:
            connection.wait_for_turn(wait_s)

    def closed(self, connection: Connection) -> None:
        if (
            not self._is_stopping
        ):  # a broker that stops is not a member that has gone: its records are not given back
            for told in self.core.on_disconnect:
                try:
                    told(connection.id)
                except Exception:  # the connection has gone all the same
                    logger.exception("resources of connection %d may not have been released", connection.id)
        if self._connections.pop(connection.id, None) is not None:
            self.leave(connection.address, connection.listener)

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
        idle_ms = self.core.settings.get_int("connections.max.idle.ms")
        now_s = self.loop.time()
        self._refresh_tls()
        for connection in list(self._connections.values()):
            is_idle = idle_ms >= 0 and (now_s - connection.last_active_s) * 1000 > idle_ms
            if is_idle or (connection.known_by_s is not None and now_s > connection.known_by_s):
                connection.close_or_abort()
        self._idle_alarm = self.loop.call_later(IDLE_CHECK_S, self._watch_idle)

    async def stop(self) -> None:
        """Takes no more requests, lets the running sync end, and closes the logs."""
        self._is_stopping = True
        for accepting in self._sockets:
            accepting.close()
        for logins in self._logins:
            logins.close()
        for alarm in (self._alarm, self._idle_alarm):
            if alarm is not None:
                alarm.cancel()
        for connection in list(self._connections.values()):
            connection.close()
        self.core.wind_down()
        await self._sync_all()
        self._are_threads_closed = True
        try:
            await self.loop.run_in_executor(None, self.close_threads)
        except RuntimeError:  # the main thread has ended
            self.close_threads()
        for connection in list(self._connections.values()):
            connection.abort()  # a client does not answer the end of TLS, or does not read
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
