"""`ShareConsumer`: a share consumer for code without asyncio.

    with ShareConsumer(bootstrap_servers="localhost:9092", group_id="mailers") as consumer:
        consumer.subscribe(["emails"])
        for delivery in consumer:
            send(delivery.value)                # accepted when the next records are polled

The member runs on an event loop in a thread of its own, so heartbeats and renewals go on while your code is busy. A
poll takes what that thread has fetched straight from the buffer and decodes it on the caller's thread: nothing is
passed between threads for a single record. When the buffer is empty the caller waits on a lock, open to Ctrl+C.
"""

import asyncio
import contextlib
import threading
import time
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Self

from headrace.client.aio import POLL_S, require_count, seconds, topic_names
from headrace.client.background import WAKE_S, BackgroundLoop
from headrace.client.consumption import (
    NOT_SUBSCRIBED,
    CommitCallback,
    Consumption,
    Deserializer,
    LostCallback,
)
from headrace.client.core.acknowledgements import Commit
from headrace.client.core.acquired import Acquired
from headrace.client.delivery import AcknowledgeType, Delivery, TopicPartition
from headrace.client.errors import ConcurrentModificationError, IllegalStateError, WakeupError
from headrace.client.member import AsyncShareMember, now_ms, results_of
from headrace.client.settings import ShareSettings
from headrace.wire.errors import KafkaError
from headrace.wire.records import load_reader

STOP_S = 5.0


class ShareConsumer:
    """A member of a share group that hands out records. For one thread at a time, but for `wakeup` and deliveries.

    Settings are Kafka's, as a mapping or as keyword arguments with underscores; docs/reference/client-settings.md
    lists them. Deserializers are called with the bytes of a key or value (not for None); one that raises makes `poll`
    raise `RecordDeserializationError` after the records before it have been returned, and the record is answered with
    `on_deserialization_error`. `on_lost(deliveries, error)` hears, on the background thread, of handed-out records
    whose lock is gone. `member_id` takes the place of a member that died without leaving.
    """

    def __init__(
        self,
        settings: Mapping[str, Any] | None = None,
        /,
        *,
        key_deserializer: Deserializer | None = None,
        value_deserializer: Deserializer | None = None,
        on_deserialization_error: AcknowledgeType = AcknowledgeType.RELEASE,
        on_lost: LostCallback | None = None,
        member_id: str | None = None,
        **keywords: Any,
    ) -> None:
        self.settings = ShareSettings.parse(settings, **keywords)
        self._member = AsyncShareMember(
            self.settings,
            member_id=member_id,
            on_settled=self._settled,
            on_lost=self._lost,
            on_change=self._ring,
            collect=self._collect,
        )
        self._consumption = Consumption(
            self._member.core,
            self.settings,
            key_deserializer=key_deserializer,
            value_deserializer=value_deserializer,
            on_deserialization_error=on_deserialization_error,
            on_lost=on_lost,
        )
        if self.settings.max_unacknowledged:
            self._consumption.on_touched = self._touched
        # The same method without a call in between, which every record would pay for.
        self.acknowledge = self._consumption.acknowledge  # type: ignore[method-assign]
        self._topics: frozenset[str] = frozenset()
        self._bell = threading.Lock()
        self._bell.acquire()
        self._user: int | None = None
        self._uses = 0
        self._use_lock = threading.Lock()
        self._is_woken = False
        self._is_closed = False
        self._background = BackgroundLoop()
        self._starting: Future[None] | None = None

    @property
    def member_id(self) -> str:
        return self._member.member_id

    def subscribe(self, topics: Collection[str]) -> None:
        """Replaces the subscription. No topics: `unsubscribe`. Topics that do not exist yet are waited for."""
        with self._used():
            self._topics = topic_names(topics)
            self._background.run(self._subscribe(self._topics))

    def unsubscribe(self) -> None:
        """Leaves the group. Records in your hands can still be acknowledged."""
        self.subscribe(())

    def subscription(self) -> set[str]:
        return set(self._topics)

    def poll(self, timeout: float | None = POLL_S, *, max_records: int | None = None) -> list[Delivery]:
        """The next records, as soon as there are some; [] after `timeout` seconds (None: there is no such end).

        Returns up to max.poll.records, rounded up to the end of a record batch; `max_records` asks for fewer this
        time (exactly so with share.acquire.mode=record_limit; else what was read ahead comes whole). In implicit mode
        it accepts what the last poll returned; in explicit mode it refuses to go on until all of that is acknowledged.
        """
        timeout_s = seconds("poll", timeout)
        require_count(max_records)
        self._enter()
        self._member.core.records_wanted = max_records
        try:
            return self._poll(timeout_s)
        finally:
            self._leave()

    def acknowledge(self, delivery: Delivery, type: AcknowledgeType = AcknowledgeType.ACCEPT) -> None:
        """The same as the delivery's own methods."""
        self._consumption.acknowledge(delivery, type)

    def acknowledge_offset(
        self, topic: str, partition: int, offset: int, type: AcknowledgeType = AcknowledgeType.ACCEPT
    ) -> None:
        """For a record of which there is no delivery: `poll` has raised `RecordDeserializationError` for it."""
        self._require_usable()
        self._consumption.acknowledge_offset(topic, partition, offset, AcknowledgeType(type))

    def commit_sync(self, timeout: float | None = None) -> dict[TopicPartition, KafkaError | None]:
        """Sends what is acknowledged (implicit mode: all of the last poll) and waits: what each partition said.

        TimeoutError when not all answers came within `timeout` seconds (default.api.timeout.ms), WakeupError after
        `wakeup`. What was sent is sent: the answers may still come, and the callback hears of them.
        """
        timeout_s = (
            self.settings.default_api_timeout_ms / 1000
            if timeout is None
            else seconds("commit_sync", timeout)
        )
        with self._used():
            consumption = self._consumption
            consumption.accept_handed()
            commit = self._commit(consumption.touched(), timeout_s)
            consumption.run_callbacks()
            return results_of(commit)

    def _commit(self, touched: list[Acquired], timeout_s: float) -> Commit:
        """Waits for the bell, as a poll does: the loop needs no task for it."""
        begun: list[Commit] = []
        self._background.call_soon(self._begin_commit, touched, begun)
        until = time.monotonic() + timeout_s
        while not begun or not begun[0].is_done:
            self._raise_wakeup()
            left = until - time.monotonic()
            if left <= 0:
                raise self._member.late_commit(timeout_s)
            self._bell.acquire(timeout=min(left, WAKE_S))
        return begun[0]

    def _begin_commit(self, touched: list[Acquired], begun: list[Commit]) -> None:
        """On the loop. Later changes ring by themselves."""
        begun.append(self._member.begin_commit(touched))
        if begun[0].is_done:
            self._ring()

    def commit_async(self) -> None:
        """Sends what is acknowledged; the callback hears of the answers."""
        with self._used():
            self._consumption.accept_handed()
            self._background.call_soon(self._member.send, self._consumption.touched())
            self._consumption.run_callbacks()

    def set_acknowledgement_commit_callback(self, callback: CommitCallback | None) -> None:
        """`callback({partition: offsets}, error)` for every answer to acknowledgements, on this thread.

        It runs within `poll`, `commit_sync`, `commit_async` and `close`, and must not call the consumer.
        """
        self._consumption.callback = callback

    def wakeup(self) -> None:
        """Makes the waiting `poll` or `commit_sync`, or else the next, raise `WakeupError`; an iteration ends.

        From any thread, and from signal handlers.
        """
        self._is_woken = True
        with contextlib.suppress(RuntimeError):  # the consumer is closed
            self._background.loop.call_soon_threadsafe(self._member.wake)
        self._ring()

    def acquisition_lock_timeout_ms(self) -> int | None:
        """How long the group's locks last, as the brokers last said; None before the first answer."""
        return self._member.core.holdings.lock_ms

    def metrics(self) -> dict[str, float]:
        """Java's client metrics, as `group:name`."""
        return self._member.metrics.read()

    def close(self, timeout: float = 30.0) -> None:
        """Sends acknowledgements made so far, gives back all other records, and leaves the group.

        Takes no longer than `timeout` seconds. In implicit mode what the last poll returned is given back too.
        """
        timeout_s = seconds("close", timeout)
        if self._is_closed:
            return
        with self._used():
            self._is_closed = True
            self._consumption.close()
            try:
                self._background.run(self._close(timeout_s), timeout=timeout_s + STOP_S)
            finally:
                self._background.close()
            self._consumption.run_callbacks()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __iter__(self) -> Iterator[Delivery]:
        unseen = self._consumption.unseen
        while not self._is_closed:
            if not unseen:
                try:
                    unseen.extend(self.poll())
                except WakeupError:
                    return
            else:
                yield unseen.popleft()

    def _poll(self, timeout_s: float) -> list[Delivery]:
        consumption, member = self._consumption, self._member
        if consumption.unseen:  # an iteration was left before its end
            seen = list(consumption.unseen)
            consumption.unseen.clear()
            return seen
        self._raise_trouble()
        consumption.begin()
        if not self._topics:
            raise IllegalStateError(NOT_SUBSCRIBED)
        if self._starting is None:
            self._background.call_soon(self._start)
        started = time.monotonic()
        now = int(started * 1000)
        member.core.came_back(now_ms=now)
        deliveries = consumption.take(now_ms=now)
        if deliveries:
            self._background.call_soon(member.served, consumption.touched())
            member.metrics.polled()
            return deliveries
        return self._wait(started, timeout_s)

    def _wait(self, started: float, timeout_s: float) -> list[Delivery]:
        consumption, member, until = self._consumption, self._member, started + timeout_s
        until_ms = int(until * 1000) + 1
        call = self._background.loop.call_soon_threadsafe
        member.core.ask(until_ms)
        if not member.core.is_busy:  # else the loop looks around at the next answer: no need to wake it
            call(member.served, consumption.touched())
        try:
            while True:
                if consumption.is_ready:
                    deliveries = consumption.take(now_ms=now_ms())
                    if deliveries:
                        return deliveries
                    member.core.ask(until_ms)  # there were gaps alone
                    call(member.served, consumption.touched())
                left = until - time.monotonic()
                if left <= 0:
                    return []
                self._bell.acquire(timeout=min(left, WAKE_S))
                self._raise_trouble()
        finally:
            member.metrics.polled(time.monotonic() - started)
            if member.core.is_asked or consumption.is_touched:
                call(self._stop_asking, until_ms, consumption.touched())

    def _stop_asking(self, until_ms: int, touched: list[Acquired]) -> None:
        """On the loop, behind the question: a poll that does not wait at all is asked for once too."""
        self._member.core.stop_asking(until_ms)
        self._member.send(touched)

    def _raise_wakeup(self) -> None:
        if self._is_woken:
            self._is_woken = False
            raise WakeupError("wakeup() was called")

    def _raise_trouble(self) -> None:
        self._raise_wakeup()
        if self._starting is not None and self._starting.done() and self._starting.exception() is not None:
            failed, self._starting = self._starting, None  # it is said once, and the next poll tries again
            failed.result()
        self._member.raise_trouble()

    async def _subscribe(self, topics: frozenset[str]) -> None:
        self._member.core.subscribe(topics, now_ms=now_ms())
        if self._starting is None:
            self._start()
        elif self._starting.done() and self._starting.exception() is None:
            self._member.pump()

    def _start(self) -> None:
        if self._starting is None:
            self._starting = Future()
            self._member.run_soon(self._connect(self._starting))

    async def _connect(self, started: "Future[None]") -> None:
        asyncio.get_running_loop().run_in_executor(None, load_reader)
        try:
            await self._member.start()
            self._member.pump()
        except BaseException as error:
            started.set_exception(error)
        else:
            started.set_result(None)
        self._ring()

    async def _close(self, timeout_s: float) -> None:
        self._member.core.holdings.sweep(self._consumption.touched())
        await self._member.close(timeout_s=timeout_s)

    def _collect(self) -> list[Acquired]:
        return self._consumption.touched()

    def _ring(self) -> None:
        """Ends the wait of a poll; when none waits, the next one looks twice."""
        with contextlib.suppress(RuntimeError):  # it rings already
            self._bell.release()

    def _settled(self, answers: Any) -> None:
        self._consumption.settled(answers)

    def _lost(self, losses: Any) -> None:
        self._consumption.lost(losses)

    def _touched(self) -> None:
        with contextlib.suppress(
            RuntimeError
        ):  # the loop has just been closed, and what is held is given back
            self._background.loop.call_soon_threadsafe(self._flush)

    def _flush(self) -> None:
        if not self._is_closed:
            self._member.send(self._consumption.touched())

    def _used(self) -> "_Use":
        return _Use(self)

    def _enter(self) -> None:
        self._require_usable()
        me = threading.get_ident()
        with self._use_lock:
            if self._user not in (None, me):
                raise ConcurrentModificationError(
                    "ShareConsumer is not safe for multi-threaded access: another thread is in a call. "
                    "Give each thread a consumer; only wakeup and the methods of deliveries may be shared."
                )
            self._user = me
            self._uses += 1

    def _leave(self) -> None:
        with self._use_lock:
            self._uses -= 1
            if not self._uses:
                self._user = None

    def _require_usable(self) -> None:
        if self._is_closed:
            raise IllegalStateError("this consumer is closed; make a new one")
        self._background.require_own_process()
        self._consumption.refuse_in_callback()


class _Use:
    """One call from one thread."""

    __slots__ = ("_consumer",)

    def __init__(self, consumer: ShareConsumer) -> None:
        self._consumer = consumer

    def __enter__(self) -> None:
        self._consumer._enter()

    def __exit__(self, *_: object) -> None:
        self._consumer._leave()
