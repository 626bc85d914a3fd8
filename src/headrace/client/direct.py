"""I/O on the application's thread: what `ShareConsumer` does while the application waits in `poll` or `commit_sync`.

Theory of operation. Connections belong to the loop, on the background thread. For the time of a call to wait for two
other threads' turns would cost more than the call itself, so the loop lends the connections of the share sessions
(`Connection.lend`) to the thread that is in the call. That thread then sends requests, waits for the sockets and takes
in responses, all by itself; the loop has nothing to do. A loan lasts beyond the call: it ends when the application has
been outside of calls for `LOAN_S`. It also ends when the loop needs a connection, for example to renew a lock, or when
the application's thread meets something that is not usual: a response with an error, a heartbeat that is due, the end
of the stream. All of this is left to the loop, which has one way for everything.

Two rules make that safe.

- The core and the lent connections are used under the member's lock only, by one thread at a time. The lock is never
  held while something is waited for.
- An exception from a signal handler can break off what the main thread does at any point. While it waits for a socket
  nothing is changed, so an interrupted wait loses nothing. While the core is changed, `is_torn` is set: if the change
  is broken off, the loop drops the connections and the sessions, and every record in hand is reported as lost. The
  brokers deliver them again. (`AsyncShareMember._mend`)
"""

import asyncio
import contextlib
import select
import socket
import threading
import time
from collections.abc import Sequence
from functools import partial

from headrace.client.connection import Connection, is_from_handler
from headrace.client.core.acknowledgements import Commit
from headrace.client.core.member import Send
from headrace.client.core.usual import UsualFetch
from headrace.client.member import AsyncShareMember, now_ms
from headrace.wire.messages.share_acknowledge_request import ShareAcknowledgeRequest
from headrace.wire.messages.share_fetch_request import ShareFetchRequest

LOAN_S = 0.05
"""How long connections stay lent to an application that is not in a call."""
API_KEYS = ShareFetchRequest.API_KEY, ShareAcknowledgeRequest.API_KEY


class Bell:
    """Ends a wait of the application's thread. When it does not wait, its next wait ends at once."""

    __slots__ = ("_ear", "_ears", "_is_selecting", "_lock")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()
        self._ears: tuple[socket.socket, socket.socket] | None = None
        """What is written to the one can be read from the other: for a wait that is for other sockets, too."""
        self._ear = -1
        self._is_selecting = False

    def ring(self) -> None:
        with contextlib.suppress(RuntimeError):  # it rings already
            self._lock.release()
        if self._is_selecting and self._ears is not None:
            try:
                self._ears[0].send(b"\0")
            except OSError as error:  # it is full, or closed
                if is_from_handler(error):
                    raise

    def ring_for(self, _: object) -> None:
        self.ring()

    def wait(self, timeout_s: float) -> None:
        self._lock.acquire(timeout=timeout_s)

    def open(self) -> int:
        """The descriptor that can be read from when it rings."""
        if self._ears is None:
            ears = socket.socketpair()
            for each in ears:
                each.setblocking(False)
            self._ears, self._ear = ears, ears[1].fileno()
        return self._ear

    def close(self) -> None:
        if self._ears is not None:
            for each in self._ears:
                each.close()

    def select(self, poller: "select.poll", timeout_s: float) -> Sequence[tuple[int, int]] | None:
        """Waits for the bell, which is among what the poller looks at, and for all else in it.

        None: a signal handler has interrupted another wait with this poller, and calls the consumer itself.
        """
        is_nested = False
        self._is_selecting = True
        try:
            if self._lock.acquire(blocking=False):  # it has rung before anybody could know of this wait
                return ()
            ready = poller.poll(timeout_s * 1000)
        except RuntimeError as error:
            if is_from_handler(error):
                raise
            is_nested = True
            return None
        finally:
            self._is_selecting = is_nested
        if ready and (len(ready) > 1 or ready[0][0] == self._ear) and self._ears is not None:
            try:
                self._ears[1].recv(4096)
            except OSError as error:
                if is_from_handler(error):
                    raise
            self._lock.acquire(blocking=False)
        return ready


class DirectIO:
    """See the module."""

    def __init__(self, member: AsyncShareMember, bell: Bell) -> None:
        self._member = member
        self._bell = bell
        self._core = member.core
        self._lent: Sequence[tuple[int, Connection]] = ()
        """By broker, what was lent last. `Connection.is_lent` says whether it still is."""
        self._poller: select.poll | None = None
        self._until = 0.0
        """The loan ends at this time, unless the application's thread is in a call again by then."""
        self._timer: asyncio.TimerHandle | None = None

    # On the loop

    def pump_and_lend(self) -> None:
        """The member does what there is to do, and the rest is for the application's thread, which is in a call."""
        member = self._member
        member.pump()
        if not member.is_open:
            return
        with member.lock:
            lent = [
                (node_id, one)
                for node_id, one in member.connections.items()
                if one.lend(member.lock, API_KEYS)
            ]
            if not lent:
                return
            self._until = time.monotonic() + LOAN_S
            self._watch(lent)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(LOAN_S, self._check)
        self._bell.ring()

    def _watch(self, lent: Sequence[tuple[int, Connection]]) -> None:
        """Under the lock: the next waits are for these and for the bell."""
        poller = select.poll()
        poller.register(self._bell.open(), select.POLLIN)
        for _, one in lent:
            poller.register(one.fileno(), select.POLLIN)
        self._lent, self._poller = lent, poller

    def _check(self) -> None:
        """Ends the loan of an application that is busy elsewhere. Looks at the clock on behalf of one that is not.

        After a loan, however it has ended, the member's own timer is set for the locks that have come with it.
        """
        self._timer = None
        member = self._member
        is_over = not self.is_lent or time.monotonic() >= self._until
        if is_over:
            for _, connection in self._lent:
                connection.take_back()
        if is_over or member.is_torn or self._core.is_due(now_ms=now_ms()):
            member.pump()
        if not is_over:
            self._timer = asyncio.get_running_loop().call_later(LOAN_S, self._check)

    # On the application's thread

    @property
    def is_lent(self) -> bool:
        for _, connection in self._lent:  # noqa: SIM110 - this is done several times in each call
            if connection.is_lent:
                return True
        return False

    def send(self) -> bool:
        """Sends what there is to send. False: the loop has to look."""
        if not self.is_lent:
            return False
        now = time.monotonic()
        self._until = now + LOAN_S
        member = self._member
        with member.lock:
            if member.is_torn or not self._core.is_usual(now_ms=int(now * 1000)):
                return False
            member.is_torn = True
            self._send(now)
            member.is_torn = False
        return True

    def commit(self) -> Commit | None:
        """Sends what is answered. None: that is for the loop."""
        if not self.is_lent:
            return None
        now = time.monotonic()
        self._until = now + LOAN_S
        member = self._member
        with member.lock:
            if member.is_torn or not self._core.is_usual(now_ms=int(now * 1000)):
                return None
            member.is_torn = True
            commit = self._core.commit()
            self._send(now)
            member.is_torn = False
        return commit

    def wait(self, timeout_s: float) -> None:
        """Until something has come or the bell has rung, or the time is over."""
        if not self.is_lent or self._poller is None:
            self._bell.wait(timeout_s)
            return
        self._until = time.monotonic() + timeout_s + LOAN_S
        ready = self._bell.select(self._poller, timeout_s)
        if ready is None:
            self._bell.wait(timeout_s)
            return
        now = time.monotonic()
        self._until = now + LOAN_S
        if ready:
            self._receive(now)

    def receive(self) -> None:
        """Takes in what has come, without waiting."""
        if self.is_lent and self._core.is_busy:
            self._receive(time.monotonic())

    def _receive(self, now: float) -> None:
        now_ms = int(now * 1000)
        member, core = self._member, self._core
        with member.lock:
            if member.is_torn:
                return
            is_usual = core.is_usual(now_ms=now_ms)
            member.is_torn = True
            lent = [each for each in self._lent if each[1].is_lent]
            if len(lent) < len(self._lent):  # the others may be closed, and would end every wait
                self._watch(lent)
            for node_id, connection in lent:
                if not (is_usual and core.is_usual_from(node_id)):
                    connection.give_back()
                    continue
                for waiting, response in connection.read_directly():
                    core.responded(node_id, response, now_ms=now_ms)
                    if isinstance(response, UsualFetch):
                        member.metrics.fetched(response, now - waiting.due + waiting.timeout_ms / 1000)
                        core.deadline_ms(now_ms=now_ms)  # there is a new lock
            self._send(now)
            member.is_torn = False

    def _send(self, now: float) -> None:
        """Under the lock: the requests of the core, and its news."""
        core, member = self._core, self._member
        now_ms = int(now * 1000)
        for send in core.sends(now_ms=now_ms):
            node_id, request = send
            connection = self._borrowed(node_id)
            if connection is None:
                self._leave_to_loop(send)
            else:
                connection.write_directly(request, partial(member.done, node_id, request, now), now)
        if core.holdings.has_news:
            self._tell()

    def _borrowed(self, node_id: int) -> Connection | None:
        for known, connection in self._lent:
            if known == node_id and connection.is_lent:
                return connection
        return None

    def _leave_to_loop(self, send: Send) -> None:
        loop = self._member.loop
        if loop is not None:
            loop.call_soon_threadsafe(self._member.carry_out, send)

    def _tell(self) -> None:
        holdings = self._core.holdings
        if holdings.has_lost:  # which is told on the background thread
            self._member.pump_soon()
            return
        self._member.tell_settled(holdings.telling())
        holdings.all_told()
