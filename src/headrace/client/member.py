"""`AsyncShareMember`: a member of a share group at the level of ranges of offsets, on asyncio.

It joins the group, keeps a share session with every broker that leads an assigned partition, acquires records ahead,
and carries acknowledgements. It never opens a record: what it gives are `Arrival`s, the bytes of one partition's
record batches with the ranges in them that are locked for this member. `AsyncShareConsumer` is built on it, and
Spark's source, whose driver acquires while its executors read.

    async with AsyncShareMember(settings, capacity=100_000, on_settled=settled, on_lost=lost) as member:
        member.subscribe(["orders"])
        for arrival in await member.take(10_000, timeout_s=1.0):
            for acquired in arrival.acquired:          # topic, partition, first, last, delivery_count, lock_until_ms
                member.acknowledge(acquired, AcknowledgeType.ACCEPT)
        results = await member.commit(timeout_s=5.0)   # {TopicPartition: None or the error}

Every acknowledged range is answered exactly once by `on_settled`: without an error when the broker has confirmed it,
with one when it was refused or when its fate is unknown (the connection broke). A range whose lock is gone before it
was acknowledged is told to `on_lost`, once. Both are called on the loop, inside the member: they must be quick and
must not raise.

All decisions are in `core/`; what is here waits for answers and for the time.
"""

import asyncio
import contextlib
import logging
import random
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable, Collection, Coroutine, Iterable, Sequence
from types import TracebackType
from typing import Any, Self
from uuid import uuid4

from headrace.client.cluster import Cluster
from headrace.client.connection import Connection
from headrace.client.core.acknowledgements import Commit, Lost, Settled
from headrace.client.core.acquired import Acquired
from headrace.client.core.holdings import Arrival
from headrace.client.core.member import MemberCore, Out
from headrace.client.core.placement import TopicView
from headrace.client.delivery import AcknowledgeType, TopicPartition
from headrace.client.errors import error_for
from headrace.client.metrics import Metrics
from headrace.client.settings import ShareSettings
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages.share_fetch_request import ShareFetchRequest
from headrace.wire.messages.share_group_heartbeat_request import ShareGroupHeartbeatRequest

__all__ = ["Acquired", "Arrival", "AsyncShareMember", "Lost", "Settled"]

logger = logging.getLogger("headrace.client")
FETCH_API = 78
NEVER_MS = 1 << 62
RENEW_VERSION = 2
"""The version of the share APIs from which brokers know RENEW and record_limit (Kafka 4.2)."""


class AsyncShareMember:
    """See the module. All methods belong to the loop it was started on.

    With `capacity` the member acquires ahead by itself, `max.poll.records` at a time, up to so many offsets that are
    acquired and not acknowledged, taken or not; without it, as a consumer does: when `take` waits, and one poll
    ahead. In `record_limit` mode `capacity` is never exceeded; else by no more than one record batch for each broker.
    `member_id` takes an old id back. With `auto.renew` the locks of taken ranges are renewed, up to
    `auto.renew.max.ms` for each; those of ranges that wait to be taken always are.
    """

    def __init__(
        self,
        settings: ShareSettings,
        *,
        capacity: int = 0,
        member_id: str | None = None,
        on_settled: Callable[[Sequence[Settled]], None] | None = None,
        on_lost: Callable[[Sequence[Lost]], None] | None = None,
        on_change: Callable[[], None] | None = None,
        collect: Callable[[], Iterable[Acquired]] | None = None,
    ) -> None:
        self.settings = settings
        self.metrics = Metrics()
        self.core = MemberCore(
            settings,
            member_id or urlsafe_b64encode(uuid4().bytes).decode().rstrip("="),
            capacity=capacity or settings.max_unacknowledged,
            is_ahead=capacity > 0,
            fraction=random.random,
        )
        self._cluster = Cluster(settings)
        self._on_settled = on_settled
        self._on_lost = on_lost
        self._on_change = on_change
        self._collect = collect
        self._connections: dict[int, Connection] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = NEVER_MS
        self._due_ms = 0
        self._changed: list[asyncio.Future[None]] = []
        self._is_refreshing = False
        self._is_started = False
        self._has_failed = False
        """`start` has found no broker, or none that could be used."""
        self._is_closed = False
        self._is_over = False

    @property
    def member_id(self) -> str:
        return self.core.membership.member_id

    @property
    def cluster(self) -> Cluster:
        """The member's own connections; for reading metadata or sending what is no business of a share session."""
        return self._cluster

    async def start(self) -> None:
        """Connects. An error that names the address when no broker is there within default.api.timeout.ms.

        It may be called again then, and waits for reconnect.backoff.max.ms first.
        """
        if self._has_failed:
            await asyncio.sleep(self.settings.reconnect_backoff_max_ms / 1000)
        try:
            await self._cluster.start()
        except KafkaError:
            self._has_failed = True
            self._cluster = Cluster(self.settings)  # the old one is closed
            raise
        self._is_started = True

    def subscribe(self, topics: Collection[str]) -> None:
        """Replaces the subscription; with no topics the member leaves its group."""
        self.core.subscribe(topics, now_ms=now_ms())
        self.pump()

    async def take(self, records_max: int, *, timeout_s: float) -> list[Arrival]:
        """Arrivals of about so many records (whole arrivals; at least one when there is one), or [] after the time.

        Raises what makes it impossible to go on: a refused group, a refused topic.
        Cancelling it loses nothing: what has arrived stays for the next call.
        """
        core = self.core
        core.came_back(now_ms=now_ms())
        self.raise_trouble()
        until_ms = now_ms() + max(1, int(timeout_s * 1000))
        self.ask(until_ms)
        try:
            while True:
                taken = core.take(records_max, now_ms=now_ms())
                if taken or now_ms() >= until_ms:
                    return taken
                await self.wait_for_change(until_ms)
                self.raise_trouble()
        finally:
            self.ask(None)

    def be_patient(self, wait_ms: int) -> None:
        """With `capacity`: how long fetches may wait at a broker from now on.

        An acknowledgement has to wait for the fetch before it, so whoever is about to send some says 0: the member then
        asks for more records from time to time, but waits for none.
        """
        self.core.patience_ms = wait_ms
        self.pump()

    def acknowledge(
        self, acquired: Acquired, type: AcknowledgeType, first: int | None = None, last: int | None = None
    ) -> bool:
        """Decides about a range, or a part of it; it is sent at once. False when it was decided before."""
        low = acquired.first if first is None else first
        high = acquired.last if last is None else last
        if not acquired.first <= low <= high <= acquired.last:
            raise ValueError(f"offsets {low} to {high} are not within {acquired!r}")
        with self.core.holdings.lock:
            is_new = acquired.choose_range(low, high, type)
        if is_new:
            self.core.holdings.sweep([acquired])
            self._soon()
        return is_new

    async def commit(self, *, timeout_s: float) -> dict[TopicPartition, KafkaError | None]:
        """Waits until everything acknowledged so far is answered; the worst answer by partition."""
        return await self.commit_of((), timeout_s=timeout_s)

    async def close(self, *, timeout_s: float = 30.0) -> None:
        """Sends what is acknowledged, closes its sessions (which releases what is held) and leaves the group."""
        if self._is_closed:
            return
        self._is_closed = True
        until_ms = now_ms() + int(1000 * min(timeout_s, self.settings.request_timeout_ms / 1000))
        self.core.close()
        try:
            self.pump()
            while self._is_started and not self.core.is_closed and now_ms() < until_ms:
                await self.wait_for_change(until_ms)
        finally:
            self._is_over = True
            if self._timer is not None:
                self._timer.cancel()
            for task in self._tasks:
                task.cancel()
            await self._cluster.close()
            if self._tasks:
                await asyncio.wait(self._tasks)
            self._give_up()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # For the consumers

    def ask(self, until_ms: int | None, swept: Iterable[Acquired] = ()) -> None:
        """Somebody waits for records until then (None: not any more); `swept` is to be acknowledged meanwhile."""
        self.core.holdings.sweep(swept)
        if until_ms is not None:
            self.core.polled(now_ms=now_ms())
        self.core.ask(until_ms)
        self.pump()

    def served(self, swept: Iterable[Acquired]) -> None:
        """The application has polled on its own thread; `swept` is to be acknowledged."""
        now = now_ms()
        self.core.holdings.sweep(swept)
        self.core.polled(now_ms=now)
        self.pump(now)

    def send(self, swept: Iterable[Acquired]) -> None:
        """Sends what is decided about these."""
        self.core.holdings.sweep(swept)
        self.pump()

    async def commit_of(
        self,
        swept: Iterable[Acquired],
        *,
        timeout_s: float,
        before_waiting: Callable[[], None] = lambda: None,
    ) -> dict[TopicPartition, KafkaError | None]:
        """`commit`, after what is decided about these has been sent too. `before_waiting` may raise to end it."""
        until_ms = now_ms() + int(timeout_s * 1000)
        commit = self.begin_commit(swept)
        while not commit.is_done:
            before_waiting()
            if now_ms() >= until_ms:
                raise self.late_commit(timeout_s)
            await self.wait_for_change(until_ms)
        return results_of(commit)

    def begin_commit(self, swept: Iterable[Acquired]) -> Commit:
        """Sends what is decided about these; `is_done` when all is answered that was acknowledged so far."""
        holdings = self.core.holdings
        commit = holdings.commit(holdings.sweep(swept))
        self.pump()
        return commit

    def late_commit(self, timeout_s: float) -> KafkaError:
        return error_for(
            ErrorCode.REQUEST_TIMED_OUT,
            f"not all acknowledgements were answered within {timeout_s:g} s; they may still be",
            about=f"share group {self.settings.group_id!r}",
        )

    def raise_trouble(self) -> None:
        """Raises what stands in the way, if anything does."""
        if self.core.errors:
            raise self.core.errors.pop(0)
        if self.core.membership.failure is not None:
            raise self.core.membership.failure

    async def wait_for_change(self, until_ms: int) -> None:
        """Returns when a broker has answered, something has arrived, failed or was woken, or the time is over."""
        loop = asyncio.get_running_loop()
        changed: asyncio.Future[None] = loop.create_future()
        self._changed.append(changed)
        timer = loop.call_later(max(0.0, (until_ms - now_ms()) / 1000), _set, changed)
        try:
            await changed
        finally:
            timer.cancel()
            with contextlib.suppress(ValueError):
                self._changed.remove(changed)

    def wake(self) -> None:
        """Ends every `wait_for_change`."""
        changed, self._changed = self._changed, []
        for each in changed:
            _set(each)
        if self._on_change is not None:
            self._on_change()

    # Waiting for brokers

    def pump(self, now: int | None = None) -> None:
        """Sends all there is to send, and sets the clock for the next time. Nothing before there is a broker."""
        if not self._is_started:
            return
        core, now = self.core, now_ms() if now is None else now
        if self._is_over:
            self._tell()
            return
        if now >= self._due_ms:
            core.tick(now_ms=now)
        for out in core.sends(now_ms=now):
            self._send(out)
        if core.placement.wants_metadata(now_ms=now) and not self._is_refreshing:
            core.placement.metadata_asked()
            self.run_soon(self._refresh())
        self._tell()
        due_ms = core.deadline_ms(now_ms=now)
        self._due_ms = NEVER_MS if due_ms is None else due_ms
        if self._due_ms < self._timer_ms and not (self._is_closed and core.is_closed):
            self._set_timer(self._due_ms - now)

    def _set_timer(self, wait_ms: int) -> None:
        """One timer, for the next thing that is due. One that goes off too early does no harm."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer_ms = now_ms() + wait_ms
        self._timer = asyncio.get_running_loop().call_later(wait_ms / 1000, self._tick)

    def _tick(self) -> None:
        self._timer, self._timer_ms = None, NEVER_MS
        self.pump()
        if self.core.membership.failure is not None or self.core.errors:
            self.wake()

    def _soon(self) -> None:
        """Pumps when the caller is done: many acknowledgements in a row go in one request."""
        if self._timer_ms > now_ms():
            self._set_timer(0)

    def run_soon(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Runs something beside; it is cancelled when the member closes."""
        task = asyncio.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _send(self, out: Out) -> None:
        """Over the connection of the session at once; a task is only needed when there is something to wait for."""
        request, node_id = out.request, out.node_id
        if node_id is None:
            self.run_soon(self._heartbeat(request))
            return
        connection = self._connections.get(node_id)
        started = time.monotonic()
        try:
            answer = None if connection is None else connection.post(request)
        except KafkaError as error:
            self._no_answer(node_id, error)
            return
        if answer is None:
            self.run_soon(self._exchange(node_id, request))
        else:
            answer.add_done_callback(lambda answer: self._done(node_id, request, started, answer))

    async def _exchange(self, node_id: int, request: Any) -> None:
        started = time.monotonic()
        try:
            connection = await self._connection(node_id, request.share_session_epoch)
            response = await connection.send(request)
        except KafkaError as error:
            self._no_answer(node_id, error)
        else:
            self._answered(node_id, request, started, response)

    def _done(self, node_id: int, request: Any, started: float, answer: "asyncio.Future[Any]") -> None:
        error = None if answer.cancelled() else answer.exception()
        if self._is_over:
            return
        if error is None:
            self._answered(node_id, request, started, answer.result())
        elif isinstance(error, KafkaError):
            self._no_answer(node_id, error)
        else:
            raise error

    def _answered(self, node_id: int, request: Any, started: float, response: Any) -> None:
        now = now_ms()
        if self._collect is not None:
            self._look_around(self._collect(), now)
        self.core.answered(node_id, response, now_ms=now)
        self._take_hints()
        self.pump(now)
        self.wake()
        if isinstance(request, ShareFetchRequest):
            self.metrics.fetched(response, time.monotonic() - started)

    def _no_answer(self, node_id: int, error: KafkaError) -> None:
        self.core.failed(node_id, error, now_ms=now_ms())
        self._soon()
        self.wake()

    def _look_around(self, swept: Iterable[Acquired], now: int) -> None:
        """What another thread wants, which knew that an answer would come: see `ShareConsumer._wait`."""
        self.core.holdings.sweep(swept)
        if self.core.is_asked:
            self.core.polled(now_ms=now)

    async def _connection(self, node_id: int, epoch: int) -> Connection:
        """The connection that the session lives on. A session that was opened over another one is gone."""
        connection = await self._cluster.connection(node_id)
        known = self._connections.get(node_id)
        if connection is known:
            return connection
        if epoch != 0 and known is not None:
            self._connections.pop(node_id)
            raise error_for(
                ErrorCode.NETWORK_EXCEPTION,
                "the connection has ended, and the share session with it",
                about=f"broker {node_id}",
            )
        version = connection.version_of(FETCH_API)
        session = self.core.sessions[node_id]
        session.is_old = version < RENEW_VERSION
        if session.is_old and self.core.is_record_limited:
            raise error_for(
                ErrorCode.UNSUPPORTED_VERSION,
                "share.acquire.mode=record_limit and max.unacknowledged need ShareFetch v2",
                about=f"broker {node_id}",
            )
        self._connections[node_id] = connection
        tell_links = connection.on_closed
        connection.on_closed = lambda closed: self._lost(node_id, closed, tell_links)
        return connection

    def _lost(self, node_id: int, connection: Connection, tell: Callable[[Connection], None] | None) -> None:
        if tell is not None:
            tell(connection)
        if self._connections.get(node_id) is not connection:
            return
        del self._connections[node_id]
        session = self.core.sessions[node_id]
        if session.in_flight is None and session.is_open and not self._is_over:
            error = error_for(
                ErrorCode.NETWORK_EXCEPTION, "the broker closed the connection", about=f"broker {node_id}"
            )
            self.core.failed(node_id, error, now_ms=now_ms())
            self.pump()
            self.wake()

    async def _heartbeat(self, request: Any) -> None:
        assert isinstance(request, ShareGroupHeartbeatRequest)
        group_id, started = self.settings.group_id, time.monotonic()
        if self.core.membership.coordinator_is_lost:
            self.core.membership.coordinator_is_lost = False
            self._cluster.forget_coordinator(group_id)
        try:
            node_id = await self._cluster.coordinator(group_id)
            response = await self._cluster.send(node_id, request)
        except KafkaError as error:
            self.core.heartbeat_failed(error, now_ms=now_ms())
        else:
            self.core.heartbeat_answered(response, now_ms=now_ms())
            self.metrics.heartbeat(time.monotonic() - started, self.core.membership.rebalances)
        self.pump()
        self.wake()

    async def _refresh(self) -> None:
        """Fetches the metadata of the assigned topics."""
        self._is_refreshing = True
        try:
            await self._cluster.refresh(
                self.core.membership.topics, topic_ids=list(self.core.placement.assignment)
            )
        except KafkaError:
            self.core.placement.want_metadata(now_ms=now_ms())
        else:
            self._learn()
        finally:
            self._is_refreshing = False
        self.pump()

    def _learn(self) -> None:
        views = {}
        for topic_id in list(self.core.placement.assignment):
            topic = self._cluster.topic_by_id(topic_id)
            if topic is not None:
                leaders = {one.partition: one.leader_id for one in topic.partitions.values()}
                views[topic_id] = TopicView(topic.name, leaders)
        self.core.learn(views, now_ms=now_ms())

    def _take_hints(self) -> None:
        if not self.core.hints:
            return
        hints, self.core.hints = self.core.hints, []
        if [hint for hint in hints if self._cluster.learn_leader(*hint)]:
            self._learn()

    def _tell(self) -> None:
        """Passes on what has become of acknowledgements and locks."""
        holdings = self.core.holdings
        if holdings.lost:
            lost, holdings.lost = holdings.lost, []
            if self._on_lost is not None:
                self._on_lost(lost)
        if holdings.settled:
            settled, holdings.settled = holdings.settled, []
            self.metrics.settled(settled)
            if self._on_settled is not None:
                self._on_settled(settled)

    def _give_up(self) -> None:
        """The time for closing is over: what is still unanswered is told to have failed."""
        error = error_for(ErrorCode.NETWORK_EXCEPTION, "the consumer was closed", about="acknowledgements")
        for node_id in self.core.sessions:
            self.core.failed(node_id, error, now_ms=now_ms())
        self._tell()
        self.wake()


def results_of(commit: Commit) -> dict[TopicPartition, KafkaError | None]:
    return {TopicPartition(*partition): error for partition, error in commit.results.items()}


def now_ms() -> int:
    """The time of the loop, which a test may turn, and outside of one the system's. Else they are the same."""
    try:
        return int(asyncio.get_running_loop().time() * 1000)
    except RuntimeError:
        return int(time.monotonic() * 1000)


def _set(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)
