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

All decisions are in `core/`; what is here waits for responses and for the time. `lock` is held around every call of the
core, for consumers whose application is on another thread than the loop.
"""

import asyncio
import contextlib
import logging
import random
import threading
import time
import warnings
from base64 import urlsafe_b64encode
from collections.abc import Callable, Collection, Coroutine, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Self
from uuid import uuid4

from headrace.base.backoff import Jitter
from headrace.client.changes import NEVER_MS, Changes
from headrace.client.cluster import Cluster
from headrace.client.connection import BrokerConnection
from headrace.client.core.acknowledgements import Commit, Lost, Settled
from headrace.client.core.holdings import Arrival
from headrace.client.core.member import (
    NO_COMMANDS,
    Commands,
    Heartbeat,
    LeaderHint,
    MemberCore,
    Refresh,
    Send,
)
from headrace.client.core.placement import TopicView
from headrace.client.core.ranges import AcquiredRange
from headrace.client.delivery import AcknowledgeType, TopicPartition
from headrace.client.errors import error_for
from headrace.client.metrics import Metrics
from headrace.client.missing_topics import warn_of_missing_topics
from headrace.client.settings import ShareSettings
from headrace.wire.apis import prepare
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages.share_fetch_request import ShareFetchRequest

__all__ = ["AcquiredRange", "Arrival", "AsyncShareMember", "Lost", "Settled"]

logger = logging.getLogger("headrace.client")
FETCH_API = 78
APIS = (18, 3, 10, 76, FETCH_API, 79)
"""Those that every member uses, in the order of their use."""
RENEW_VERSION = 2
"""The version of the share APIs from which brokers know RENEW and record_limit (Kafka 4.2)."""
LEAVE_S = 1.0
"""How long a member that was forgotten may take to leave its group."""


class AsyncShareMember:
    """See the module. All methods belong to the loop it was started on.

    With `capacity` the member acquires ahead by itself, `max.poll.records` at a time, up to so many offsets that are
    acquired and not acknowledged, taken or not; without it, as a consumer does: when `take` waits, and one poll
    ahead. In `record_limit` mode `capacity` is never exceeded; else by no more than one record batch for each broker.
    `acquire_only` is for whoever reads the records elsewhere: Headrace's broker then sends none, other brokers do.
    `member_id` takes an old id back. With `auto.renew` the locks of taken ranges are renewed, up to
    `auto.renew.max.ms` for each; those of ranges that wait to be taken always are.
    """

    def __init__(
        self,
        settings: ShareSettings,
        *,
        capacity: int = 0,
        acquire_only: bool = False,
        member_id: str | None = None,
        on_settled: Callable[[Sequence[Settled]], None] | None = None,
        on_lost: Callable[[Sequence[Lost]], None] | None = None,
        on_change: Callable[[], None] | None = None,
    ) -> None:
        """`on_change` is called whenever a broker has responded or something else has happened."""
        prepare(APIS)
        self.settings = settings
        self.metrics = Metrics()
        self.lock = threading.RLock()
        """Around every call of the core. It is never held while something is waited for."""
        self.core = MemberCore(
            settings,
            member_id or urlsafe_b64encode(uuid4().bytes).decode().rstrip("="),
            capacity=capacity or settings.max_unacknowledged,
            is_ahead=capacity > 0,
            acquire_only=acquire_only,
            jitter=Jitter(random.getrandbits(32)),
        )
        self._cluster = Cluster(settings)
        self._on_settled = on_settled
        self._on_lost = on_lost
        self._connections: dict[int, BrokerConnection] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = NEVER_MS
        self._loop: asyncio.AbstractEventLoop | None = None
        self.changes = Changes(on_change)
        """Told whenever a broker has responded, something has arrived or failed, or somebody was woken."""
        self._raised: list[BaseException] = []
        """By callbacks, for the next poll to raise."""
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
        self._loop = asyncio.get_running_loop()
        if self._has_failed:
            await asyncio.sleep(self.settings.reconnect_backoff_max_ms / 1000)
        try:
            await self._cluster.start(self.core.membership.topics)
        except BaseException as error:
            self._has_failed = isinstance(error, KafkaError)
            self._loop = None
            broken, self._cluster = self._cluster, Cluster(self.settings)
            await broken.close()
            raise
        self._is_started = True
        self.run_soon(self._leave_when_canceled())
        self.pump()

    def subscribe(self, topics: Collection[str]) -> None:
        """Replaces the subscription; with no topics the member leaves its group."""
        with self.lock:
            self.core.subscribe(topics, now_ms=now_ms())
        self.pump()
        if self._is_started and topics and not self._is_closed:
            self.run_soon(self._look_up(topics))

    def configure(
        self,
        *,
        capacity: int | None = None,
        is_paused: bool | None = None,
        fetch_wait_ms: int | None = None,
        auto_renew: bool | None = None,
    ) -> None:
        """Changes what was given with the settings. What is not named stays.

        `is_paused`: nothing is fetched. `fetch_wait_ms`, with `capacity`: how long fetches may wait at a broker. An
        acknowledgement has to wait for the fetch before it, so whoever is about to send some says 0: the member then
        asks for more records from time to time, but waits for none. `auto_renew` is to be switched off where the group
        is known to refuse renewals: a refused one costs the lock.
        """
        with self.lock:
            self.core.configure(
                capacity=capacity, is_paused=is_paused, fetch_wait_ms=fetch_wait_ms, auto_renew=auto_renew
            )
        self.pump()

    @property
    def is_paused(self) -> bool:
        return self.core.is_paused

    @property
    def has_partitions(self) -> bool:
        """There are brokers to fetch from."""
        return bool(self.core.placement.wanted)

    @property
    def asked_ms(self) -> int:
        """See `MemberCore.asked_ms`."""
        return self.core.asked_ms

    def idle_ms(self, since_ms: int) -> int:
        """See `MemberCore.idle_ms`."""
        return self.core.idle_ms(since_ms)

    async def take(self, records_max: int, *, timeout_s: float) -> list[Arrival]:
        """Arrivals of about so many records (whole arrivals; at least one when there is one), or [] after the time.

        Raises what makes it impossible to go on: a refused group, a refused topic.
        Canceling it loses nothing: what has arrived stays for the next call.
        """
        core = self.core
        began_ms = now_ms()
        with self.lock:
            core.poll_began(now_ms=began_ms)
        self.raise_pending_error()
        until_ms = began_ms + max(1, int(timeout_s * 1000))
        with self.lock:
            core.poll_waits(until_ms, now_ms=began_ms)
        self.pump()
        try:
            while True:
                with self.lock:
                    taken = core.take_whole(records_max, now_ms=now_ms())
                if taken or now_ms() >= until_ms:
                    return taken
                await self.changes.wait(until_ms)
                self.raise_pending_error()
        finally:
            with self.lock:
                core.poll_ended(until_ms)

    def acknowledge(
        self,
        acquired: AcquiredRange,
        type: AcknowledgeType,
        first: int | None = None,
        last: int | None = None,
    ) -> bool:
        """Decides about a range, or a part of it; it is sent at once. False when it was decided before."""
        low = acquired.first if first is None else first
        high = acquired.last if last is None else last
        if not acquired.first <= low <= high <= acquired.last:
            raise ValueError(f"offsets {low} to {high} are not in {acquired!r}")
        with self.lock:
            is_new = self.core.answer_all(acquired, low, high, type)
        if is_new:
            self._soon()
        return is_new

    async def commit(self, *, timeout_s: float) -> dict[TopicPartition, KafkaError | None]:
        """Waits until everything acknowledged so far is answered; the worst answer by partition."""
        return await self.commit_of(timeout_s=timeout_s)

    async def close(self, *, timeout_s: float = 30.0) -> None:
        """Sends what is acknowledged, closes its sessions (which releases what is held) and leaves the group."""
        if self._is_closed:
            return
        self._is_closed = True
        until_ms = now_ms() + int(1000 * min(timeout_s, self.settings.request_timeout_ms / 1000))
        with self.lock:
            self.core.close(until_ms, now_ms=now_ms())
        try:
            self.pump()
            await self._until_closed(until_ms)
        except asyncio.CancelledError:
            # To be gone without a word would leave the partitions to a member that does not exist for a long time.
            await self._until_closed(min(until_ms, now_ms() + int(1000 * LEAVE_S)))
            raise
        finally:
            self._is_over = True
            if self._timer is not None:
                self._timer.cancel()
            self.changes.end_timer()
            tasks = self._tasks - {asyncio.current_task()}
            for task in tasks:
                task.cancel()
            await self._cluster.close()
            if tasks:
                await asyncio.wait(tasks)
            self._give_up()

    async def _until_closed(self, until_ms: int) -> None:
        while self._is_started and not self.core.is_closed and now_ms() < until_ms:
            await self.changes.wait(until_ms)

    async def _leave_when_canceled(self) -> None:
        """Waits for ever. Whoever ends the loop without `close`, such as asyncio.run, cancels it: the member leaves."""
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            if not self._is_closed:
                warnings.warn(
                    f"the event loop ends, and member {self.member_id} of share group "
                    f"{self.settings.group_id!r} was not closed; use async with, or await close()",
                    ResourceWarning,
                    stacklevel=2,
                )
                await self.close(timeout_s=LEAVE_S)
            raise

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # For the consumers

    def listen(
        self,
        on_settled: Callable[[Sequence[Settled]], None],
        on_lost: Callable[[Sequence[Lost]], None],
    ) -> None:
        """In place of what the constructor was given."""
        self._on_settled, self._on_lost = on_settled, on_lost

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The loop it was started on."""
        return self._loop

    @property
    def is_open(self) -> bool:
        """Started, and not closed."""
        return self._is_started and not self._is_closed

    def send(self) -> None:
        """Sends what the application has answered."""
        with self.lock:
            self.core.send_answers()
        if not self._is_closed:
            self.pump()

    def send_soon(self) -> None:
        """The same, from any thread."""
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop has just been closed
                self._loop.call_soon_threadsafe(self.send)

    def pump_soon(self) -> None:
        """Looks at what is due, from any thread."""
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop has just been closed
                self._loop.call_soon_threadsafe(self.pump)

    def wake_soon(self) -> None:
        """`changes.wake`, from any thread and from signal handlers: a sleeping loop does not see what they change."""
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop has just been closed
                self._loop.call_soon_threadsafe(self.changes.wake)

    def drop(self) -> None:
        """Nobody knows it any more, and it was not closed. From any thread: it leaves its group as soon as it can."""
        loop = self._loop
        if loop is None or self._is_closed:
            return
        if loop.is_closed():
            self.abandon()
        else:
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(lambda: self.run_soon(self.close(timeout_s=LEAVE_S)))

    def abandon(self) -> None:
        """Its loop is closed. Ends the connections all the same, so that the brokers release what it holds."""
        self._is_closed = self._is_over = True
        self._cluster.abandon()

    async def commit_of(
        self, *, timeout_s: float, before_waiting: Callable[[], None] = lambda: None
    ) -> dict[TopicPartition, KafkaError | None]:
        """`commit`; `before_waiting` may raise to end it."""
        until_ms = now_ms() + int(timeout_s * 1000)
        commit = self.begin_commit()
        while not commit.is_done:
            before_waiting()
            if now_ms() >= until_ms:
                raise self.late_commit(timeout_s)
            await self.changes.wait(until_ms)
        return results_of(commit)

    def begin_commit(self) -> Commit:
        """Sends what the application has answered; `is_done` when the brokers have responded to all of it."""
        with self.lock:
            commit = self.core.commit()
        self.pump()
        return commit

    def late_commit(self, timeout_s: float) -> KafkaError:
        return error_for(
            ErrorCode.REQUEST_TIMED_OUT,
            f"not all acknowledgements were answered within {timeout_s:g} s; they may still be",
            about=f"share group {self.settings.group_id!r}",
        )

    def raise_pending_error(self) -> None:
        """Raises what stands in the way, if anything does."""
        if self._raised:
            raise self._raised.pop(0)
        if self.core.has_error:
            with self.lock:
                error = self.core.take_error(now_ms=now_ms())
            if error is not None:
                raise error

    # Waiting for brokers

    def pump(self, now: int | None = None) -> None:
        """Does all there is to do, and sets the clock for the next time. Nothing before there is a broker."""
        if not self._is_started:
            return
        if now is None:
            now = now_ms()
        with self.lock:
            commands = self.core.commands(now_ms=now)
            due_ms = self.core.deadline_ms(now_ms=now)
            is_closed = self._is_closed and self.core.is_closed
        if commands is NO_COMMANDS and not self._is_over:
            if due_ms is not None and due_ms < self._timer_ms:
                self._set_timer(due_ms - now)
            if self._raised or self.core.has_error:
                self.changes.wake()
            return
        if not self._is_over:
            for send in commands.sends:
                self._send(send)
            if commands.heartbeat is not None or commands.refresh is not None or commands.check_topics:
                self._begin(commands)
            if due_ms is not None and due_ms < self._timer_ms and not is_closed:
                self._set_timer(due_ms - now)
        if commands.settled or commands.lost or commands.hints or self._raised or self.core.has_error:
            self._tell(commands)

    def _begin(self, commands: Commands) -> None:
        """What needs a task."""
        if commands.heartbeat is not None:
            self.run_soon(self._heartbeat(commands.heartbeat))
        if commands.refresh is not None:
            if self._is_refreshing:
                with self.lock:
                    self.core.metadata_failed(now_ms=now_ms())
            else:
                self.run_soon(self._refresh(commands.refresh))
        if commands.check_topics:
            group = f"share group {self.settings.group_id!r}"
            self.run_soon(warn_of_missing_topics(self._cluster, commands.check_topics, group))

    def _set_timer(self, wait_ms: int) -> None:
        """One timer, for the next thing that is due. One that goes off too early does no harm."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer_ms = now_ms() + wait_ms
        self._timer = asyncio.get_running_loop().call_later(wait_ms / 1000, self._tick)

    def _tick(self) -> None:
        self._timer, self._timer_ms = None, NEVER_MS
        self.pump()

    def _soon(self) -> None:
        """Pumps when the caller is done: many acknowledgements in a row go in one request."""
        if self._timer_ms > now_ms():
            self._set_timer(0)

    def run_soon(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Runs something beside; it is canceled when the member closes."""
        task = asyncio.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _send(self, send: Send) -> None:
        """Over the connection of the session at once; a task is only needed when there is something to wait for."""
        node_id, request, is_apart = send
        connection = None if is_apart else self._connections.get(node_id)
        try:
            if connection is not None and connection.post(
                request, partial(self._done, node_id, request, time.monotonic()), is_short=True
            ):
                return
        except KafkaError as error:
            self._no_answer(node_id, error)
            return
        self.run_soon(self._exchange(send))

    async def _exchange(self, send: Send) -> None:
        node_id, request, is_apart = send
        started = time.monotonic()
        response, error = None, None
        try:
            if is_apart:
                response = await self._cluster.send(node_id, request)
            else:
                connection = await self._connection(node_id, request.share_session_epoch)
                response = await connection.send(request)
        except KafkaError as failure:
            error = failure
        self._done(node_id, request, started, response, error)

    def _done(
        self, node_id: int, request: Any, started: float, response: Any, error: KafkaError | None
    ) -> None:
        awaited = self.core.sessions[node_id].in_flight
        if self._is_over or awaited is None or awaited.request is not request:  # it was left behind
            return
        if error is None:
            self._answered(node_id, request, started, response)
        else:
            self._no_answer(node_id, error)

    def _answered(self, node_id: int, request: Any, started: float, response: Any) -> None:
        now = now_ms()
        with self.lock:
            self.core.responded(node_id, response, now_ms=now)
        self.pump(now)
        self.changes.wake()
        if isinstance(request, ShareFetchRequest):
            self.metrics.fetched(response, time.monotonic() - started)

    def _no_answer(self, node_id: int, error: KafkaError) -> None:
        with self.lock:
            self.core.failed(node_id, error, now_ms=now_ms())
        self._soon()
        self.changes.wake()

    async def _connection(self, node_id: int, epoch: int) -> BrokerConnection:
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
        is_old = connection.version_of(FETCH_API) < RENEW_VERSION
        with self.lock:
            self.core.connected(node_id, is_old=is_old)
        if is_old and self.core.is_record_limited:
            raise error_for(
                ErrorCode.UNSUPPORTED_VERSION,
                "share.acquire.mode=record_limit and max.unacknowledged need ShareFetch v2",
                about=f"broker {node_id}",
            )
        self._connections[node_id] = connection
        tell_links = connection.on_closed
        connection.on_closed = lambda closed: self._lost(node_id, closed, tell_links)
        return connection

    def _lost(
        self, node_id: int, connection: BrokerConnection, tell: Callable[[BrokerConnection], None] | None
    ) -> None:
        if tell is not None:
            tell(connection)
        if self._connections.get(node_id) is not connection:
            return
        del self._connections[node_id]
        if self._is_over:
            return
        error = error_for(
            ErrorCode.NETWORK_EXCEPTION, "the broker closed the connection", about=f"broker {node_id}"
        )
        with self.lock:
            is_news = self.core.disconnected(node_id, error, now_ms=now_ms())
        if is_news:
            self.pump()
            self.changes.wake()

    async def _heartbeat(self, heartbeat: Heartbeat) -> None:
        group_id, started = self.settings.group_id, time.monotonic()
        if heartbeat.is_lost:
            self._cluster.forget_coordinator(group_id)
        try:
            node_id = await self._cluster.coordinator(group_id)
            response = await self._cluster.send(node_id, heartbeat.request)
        except KafkaError as error:
            with self.lock:
                self.core.heartbeat_failed(error, now_ms=now_ms())
        except asyncio.CancelledError:  # the loop ends: nobody will hear of this heartbeat
            ended = error_for(ErrorCode.NETWORK_EXCEPTION, "it was canceled", about="the heartbeat")
            with self.lock:
                self.core.heartbeat_failed(ended, now_ms=now_ms())
            raise
        else:
            with self.lock:
                self.core.heartbeat_responded(response, now_ms=now_ms())
            self._learn_known()
            self.metrics.heartbeat(time.monotonic() - started, self.core.membership.rebalances)
        self.pump()
        self.changes.wake()

    async def _refresh(self, refresh: Refresh) -> None:
        """Fetches the metadata of the assigned topics."""
        self._is_refreshing = True
        try:
            await self._cluster.refresh(refresh.topics, topic_ids=refresh.topic_ids)
        except KafkaError:
            with self.lock:
                self.core.metadata_failed(now_ms=now_ms())
        else:
            self._learn()
        finally:
            self._is_refreshing = False
        self.pump()

    async def _look_up(self, topics: Collection[str]) -> None:
        """Asks for the subscribed topics while the member joins, so that its first assignment need not wait for it."""
        with contextlib.suppress(KafkaError):  # whoever needs it asks again
            await self._cluster.refresh(topics)
            if self._learn_known():  # the assignment was here first
                self.pump()

    def _learn_known(self) -> bool:
        """Places a new assignment without a request, where the metadata at hand has all of it."""
        if not self.core.placement.assignment or self.core.placement.is_complete:
            return False
        for topic_id, partitions in self.core.placement.assignment.items():
            topic = self._cluster.topic_by_id(topic_id)
            for partition in partitions:
                known = None if topic is None else topic.partitions.get(partition)
                if known is None or known.leader_id < 0:
                    return False
        self._learn()
        return True

    def _learn(self) -> None:
        views = {}
        for topic_id in list(self.core.placement.assignment):
            topic = self._cluster.topic_by_id(topic_id)
            if topic is not None:
                leaders = {one.partition: one.leader_id for one in topic.partitions.values()}
                views[topic_id] = TopicView(topic.name, leaders)
        with self.lock:
            self.core.learn(views, now_ms=now_ms())

    def _take_hints(self, hints: Sequence[LeaderHint]) -> None:
        if [hint for hint in hints if self._cluster.learn_leader(*hint)]:
            self._learn()
            self.pump()

    def _tell(self, commands: Commands) -> None:
        """Passes on what has become of acknowledgements and locks."""
        if commands.lost and self._on_lost is not None:
            try:
                self._on_lost(commands.lost)
            except (
                BaseException
            ) as error:  # SystemExit and the like: for the application's thread, not for this one
                self._raised.append(error)
        if commands.settled:
            self.metrics.settled(commands.settled)
            if self._on_settled is not None:
                self._on_settled(commands.settled)
        if self._raised or self.core.has_error:
            self.changes.wake()
        if commands.hints:
            self._take_hints(commands.hints)

    def _give_up(self) -> None:
        """The time for closing is over: what is still unanswered is told to have failed."""
        error = error_for(ErrorCode.NETWORK_EXCEPTION, "the consumer was closed", about="acknowledgements")
        with self.lock:
            for node_id in self.core.sessions:
                self.core.failed(node_id, error, now_ms=now_ms())
        self.pump()
        self.changes.wake()


def results_of(commit: Commit) -> dict[TopicPartition, KafkaError | None]:
    return {TopicPartition(*partition): error for partition, error in commit.results.items()}


def now_ms() -> int:
    """The time of the loop, which a test may turn, and outside of one the system's. Else they are the same."""
    loop = asyncio._get_running_loop()
    return int((time.monotonic() if loop is None else loop.time()) * 1000)
