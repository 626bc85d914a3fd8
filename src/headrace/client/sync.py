"""`ShareConsumer`: a share consumer for code without asyncio.

    with ShareConsumer(bootstrap_servers="localhost:9092", group_id="mailers") as consumer:
        consumer.subscribe(["emails"])
        for delivery in consumer:
            send(delivery.value)                # accepted when the next records are polled

The member runs on an event loop in a thread of its own, so heartbeats and renewals go on while your code is busy. A
poll takes what that thread has fetched straight from the buffer and decodes it on the caller's thread: nothing is
passed between threads for a single record. When the buffer is empty the caller waits on a lock, open to Ctrl+C.
"""

import atexit
import contextlib
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Self

from headrace.client.arguments import POLL_S, require_count, seconds, topic_names
from headrace.client.background import WAKE_S, BackgroundLoop, wait
from headrace.client.batches import DeliveryBatch, require_arrow
from headrace.client.consumption import (
    NOT_SUBSCRIBED,
    CommitCallback,
    Consumption,
    LostCallback,
)
from headrace.client.core.acknowledgements import Commit
from headrace.client.delivery import AcknowledgeType, Delivery, TopicPartition
from headrace.client.deserializing import Deserializer
from headrace.client.errors import ConcurrentModificationError, IllegalStateError, WakeupError
from headrace.client.identity import with_process_name
from headrace.client.member import LEAVE_S, AsyncShareMember, now_ms, results_of
from headrace.client.settings import ShareSettings
from headrace.wire.errors import KafkaError
from headrace.wire.records import load_reader

STOP_S = 5.0
CLOSED = "this consumer is closed; make a new one"


class _Bell:
    """Ends the wait of a poll. When none waits, the next one looks twice."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def ring(self) -> None:
        try:  # noqa: SIM105 - contextlib.suppress would take longer than the rest, for every response
            self._lock.release()
        except RuntimeError:  # it rings already
            pass

    def ring_for(self, _: object) -> None:
        self.ring()

    def wait(self, timeout_s: float) -> None:
        self._lock.acquire(timeout=timeout_s)


class ShareConsumer:
    """A consumer in a share group. Only `wakeup` and the methods of deliveries may be called by several threads.

    Settings have Kafka's names, as a mapping or as keyword arguments with underscores
    (docs/reference/client-settings.md lists them). A consumer that is garbage-collected without `close` leaves its
    group and emits a ResourceWarning.

    `key_deserializer` and `value_deserializer`: called with the bytes of a key or value, except for None, and with
    their context (topic, field, headers) if they take a second argument.
    `on_deserialization_error`: how a record is acknowledged when its deserializer raises an exception. `poll` first
    returns the records before it and then raises `RecordDeserializationError`.
    `on_lost`: `on_lost(deliveries, error)` is called on the background thread when the locks of returned records expire
    or are revoked.
    `member_id`: replaces a member that ended without leaving the group.
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
        self.settings = with_process_name(ShareSettings.parse(settings, **keywords))
        load_reader()
        # Nothing that runs refers to this object, only to these parts: when nobody has it any more, it is collected.
        self._bell = bell = _Bell()
        self._member = member = AsyncShareMember(self.settings, member_id=member_id, on_change=bell.ring)
        self._consumption = consumption = Consumption(
            member.core,
            self.settings,
            lock=member.lock,
            key_deserializer=key_deserializer,
            value_deserializer=value_deserializer,
            on_deserialization_error=on_deserialization_error,
            on_lost=on_lost,
            wake=member.send_soon,
            look=member.pump_soon,
        )
        member.listen(consumption.settled, consumption.lost)
        # The same method without a call in between, which every record would pay for.
        self.acknowledge = consumption.acknowledge  # type: ignore[method-assign]
        self._topics: frozenset[str] = frozenset()
        self._use = threading.RLock()
        self._user: int | None = None
        """The thread that is in a call; perhaps still the main thread after a signal handler has ended its call."""
        self._is_woken = False
        self._is_closed = False
        self._closing: Future[None] | None = None
        self._close_s = 0.0
        self._starting: Future[None] | None = None
        self._is_started = False
        self._background = background = BackgroundLoop()
        self._finalizer = weakref.finalize(self, _dropped, member, consumption, background)
        self._finalizer.atexit = False
        _open.add(self)

    @property
    def member_id(self) -> str:
        return self._member.member_id

    def subscribe(self, topics: Collection[str]) -> None:
        """Replaces the subscription; an empty list unsubscribes. Topics that do not exist yet are read once created."""
        wanted = topic_names(topics)
        is_outermost = self._admit()
        with self._use:
            try:
                self._enter()
                self._topics = wanted
                self._background.run(_subscribe(self._member, wanted))
                self._start()
            finally:
                self._leave(is_outermost)

    def unsubscribe(self) -> None:
        """Leaves the group. Records that were already returned can still be acknowledged."""
        self.subscribe(())

    def subscription(self) -> set[str]:
        """The subscribed topics."""
        return set(self._topics)

    def poll(self, timeout: float | None = POLL_S, *, max_records: int | None = None) -> list[Delivery]:
        """Returns the next records as soon as there are any, or [] after `timeout` seconds (None: no timeout).

        Returns up to max.poll.records records, rounded up to the end of a record batch. `max_records` lowers the limit
        for this call; it is exact only with share.acquire.mode=record_limit, since prefetched records are returned
        whole. In implicit mode, `poll` accepts the records of the last poll. In explicit mode, it raises an error until
        all of them are acknowledged.
        """
        timeout_s = seconds("poll", timeout)
        require_count(max_records)
        is_outermost = self._admit()
        with self._use:
            try:
                self._enter()
                deliveries = self._poll(timeout_s, max_records)
            finally:
                self._leave(is_outermost)
        if self._is_closed:  # by a signal handler: they are given back
            return []
        count = len(deliveries)
        self._consumption.seen = count  # at the very last: what ends a poll before this has returned nothing
        return deliveries

    def batches(
        self, *, timeout: float | None = None, max_records: int | None = None
    ) -> Iterator[DeliveryBatch]:
        """Polls in a loop and yields the records as Arrow record batches.

        Each is a `DeliveryBatch`: `records` has the rows, and `accept`, `release` and `reject` take a mask of them. The
        rules of `poll` apply. The iteration ends after `timeout` seconds without a record, and on `wakeup` and `close`.
        Requires pyarrow: `pip install 'headrace[arrow]'`.
        """
        timeout_s = seconds("batches", timeout)
        require_count(max_records)
        require_arrow()
        self._consumption.require_plain()
        return self._batches(timeout_s, max_records)

    def _batches(self, timeout_s: float, max_records: int | None) -> Iterator[DeliveryBatch]:
        consumption = self._consumption
        waited_from = time.monotonic()
        while not self._is_closed:
            left_s = waited_from + timeout_s - time.monotonic()
            is_outermost = self._admit()
            with self._use:
                try:
                    self._enter()
                    found = self._poll(max(0.0, min(left_s, POLL_S)), max_records, is_for_rows=True)
                except WakeupError:
                    return
                finally:
                    self._leave(is_outermost)
            if self._is_closed:
                return
            if found:
                (batch,) = found
                consumption.batch_seen = batch  # at the very last: see `poll`
                yield batch
                waited_from = time.monotonic()
            elif left_s <= POLL_S:
                return

    def acknowledge(self, delivery: Delivery, type: AcknowledgeType = AcknowledgeType.ACCEPT) -> None:
        """Acknowledges a delivery, as its own methods do."""
        self._consumption.acknowledge(delivery, type)

    def acknowledge_offset(
        self, topic: str, partition: int, offset: int, type: AcknowledgeType = AcknowledgeType.ACCEPT
    ) -> None:
        """Acknowledges a record without a delivery: one for which `poll` raised `RecordDeserializationError`."""
        self._require_usable()
        self._consumption.acknowledge_offset(topic, partition, offset, AcknowledgeType(type))

    def commit_sync(self, timeout: float | None = None) -> dict[TopicPartition, KafkaError | None]:
        """Sends acknowledgements (in implicit mode, of all records of the last poll) and returns the results.

        Raises TimeoutError if a response is missing after `timeout` seconds (default.api.timeout.ms), and WakeupError
        after `wakeup`. The acknowledgements may still take effect; the callback is called when the responses arrive.
        """
        timeout_s = (
            self.settings.default_api_timeout_ms / 1000
            if timeout is None
            else seconds("commit_sync", timeout)
        )
        is_outermost = self._admit()
        with self._use:
            try:
                self._enter()
                consumption = self._consumption
                consumption.accept_seen()
                commit = self._commit(timeout_s)
                consumption.run_callbacks()
                return results_of(commit)
            finally:
                self._leave(is_outermost)

    def _commit(self, timeout_s: float) -> Commit:
        """Waits for the bell, as a poll does: the loop needs no task for it."""
        begun: list[Commit] = []
        self._background.call_soon(_begin_commit, self._member, self._bell, begun)
        until = time.monotonic() + timeout_s
        while not begun or not begun[0].is_done:
            self._raise_wakeup()
            left = until - time.monotonic()
            if left <= 0:
                raise self._member.late_commit(timeout_s)
            self._bell.wait(min(left, WAKE_S))
        return begun[0]

    def commit_async(self) -> None:
        """Sends acknowledgements without waiting for the responses, which are passed to the callback."""
        is_outermost = self._admit()
        with self._use:
            try:
                self._enter()
                self._consumption.accept_seen()
                self._background.call_soon(self._member.send)
                self._consumption.run_callbacks()
            finally:
                self._leave(is_outermost)

    def set_acknowledgement_commit_callback(self, callback: CommitCallback | None) -> None:
        """Calls `callback({partition: offsets}, error)` with the result of each acknowledgement.

        It is called on this thread, inside `poll`, `commit_sync`, `commit_async` and `close`, and must not call the
        consumer.
        """
        self._consumption.callback = callback

    def wakeup(self) -> None:
        """Makes the current `poll` or `commit_sync`, or else the next one, raise `WakeupError`. Ends an iteration.

        It can be called on any thread and in signal handlers.
        """
        self._is_woken = True
        with contextlib.suppress(RuntimeError):  # the consumer is closed
            self._background.loop.call_soon_threadsafe(self._member.changes.wake)
        self._bell.ring()

    def acquisition_lock_timeout_ms(self) -> int | None:
        """The lock duration of the group, from the last response; None before the first one."""
        return self._member.core.hands.lock_ms

    def metrics(self) -> dict[str, float]:
        """The metrics of Java's share consumer, by `group:name`."""
        return self._member.metrics.read()

    def close(self, timeout: float = 30.0) -> None:
        """Sends the acknowledgements made so far, releases all other records, and leaves the group.

        Takes at most `timeout` seconds. In implicit mode, the records of the last poll are released, too. If a signal
        handler calls `close` during another call on this consumer, that call ends and completes the close. In a forked
        process, `close` does nothing, because the consumer belongs to the parent.
        """
        timeout_s = seconds("close", timeout)
        if self._is_closed or not self._background.is_own_process:
            return
        self._consumption.refuse_in_callback()
        if self._is_in_use:
            self._begin_closing(timeout_s)
            return
        self._refuse_other_threads()
        with self._use:
            if self._is_closed:  # by another thread, just now
                return
            self._user = threading.get_ident()
            self._begin_closing(timeout_s)
            self._leave(is_outermost=True)

    @property
    def _is_in_use(self) -> bool:
        """This thread is inside a call already, or a delivery's method: a signal handler has interrupted it."""
        locks: tuple[Any, ...] = (self._use, self._member.lock)
        return any(each._is_owned() for each in locks)

    def _begin_closing(self, timeout_s: float) -> None:
        if self._closing is None:
            self._finalizer.detach()
            self._closing = self._background.submit(_close(self._member, self._consumption, timeout_s))
            self._closing.add_done_callback(self._bell.ring_for)
            self._close_s = timeout_s + STOP_S
            self._bell.ring()

    def _finish_closing(self) -> None:
        closing = self._closing
        assert closing is not None
        self._is_closed = True
        try:
            wait(closing, self._close_s)
        finally:
            self._background.close()
            self._consumption.forget()
        self._consumption.run_callbacks()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __iter__(self) -> Iterator[Delivery]:
        consumption = self._consumption
        while not self._is_closed:
            if not consumption.has_unseen:
                is_outermost = self._admit()
                with self._use:
                    try:
                        self._enter()
                        self._poll(POLL_S, None)
                    except WakeupError:
                        return
                    finally:
                        self._leave(is_outermost)
            else:
                delivery = consumption.next_unseen(now_ms=int(time.monotonic() * 1000))
                if delivery is not None:
                    yield delivery

    def _poll(self, timeout_s: float, wanted: int | None, *, is_for_rows: bool = False) -> list[Any]:
        """Deliveries, or one batch of rows."""
        consumption, member = self._consumption, self._member
        take: Callable[..., list[Any]] = consumption.take
        if is_for_rows:
            take = consumption.take_batch
            if unseen_batch := consumption.take_unseen_batch(now_ms=int(time.monotonic() * 1000)):
                return unseen_batch
        elif consumption.has_unseen:
            unseen = consumption.take_unseen(now_ms=int(time.monotonic() * 1000))
            if unseen:
                return unseen
        self._raise_trouble()
        consumption.begin()
        if not self._topics:
            raise IllegalStateError(NOT_SUBSCRIBED)
        if self._starting is None:
            self._start()
        started = time.monotonic()
        now = int(started * 1000)
        with member.lock:
            member.core.poll_began(now_ms=now, records_wanted=wanted)
        if is_for_rows or consumption.is_ready:
            deliveries = take(now_ms=now, records_wanted=wanted)
            if deliveries:
                self._background.call_soon(member.pump)
                member.metrics.polled()
                return deliveries
        return self._wait(started, timeout_s, wanted, take)

    def _wait(
        self, started: float, timeout_s: float, wanted: int | None, take: Callable[..., list[Any]]
    ) -> list[Any]:
        consumption, member, until = self._consumption, self._member, started + timeout_s
        core, call = member.core, self._background.loop.call_soon_threadsafe
        until_ms = int(until * 1000) + 1
        with member.lock:
            core.poll_waits(until_ms, now_ms=int(started * 1000))
            is_busy = core.is_busy
        if not is_busy:  # else the next response makes the member look around: no need to wake it
            call(member.pump)
        try:
            while True:
                if consumption.is_ready:
                    deliveries = take(now_ms=now_ms(), records_wanted=wanted)
                    if deliveries:
                        return deliveries
                    with member.lock:  # there were gaps alone
                        core.poll_waits(until_ms, now_ms=now_ms())
                    call(member.pump)
                left = until - time.monotonic()
                if left <= 0 or self._closing is not None:
                    return []
                self._bell.wait(min(left, WAKE_S))
                self._raise_trouble()
        finally:
            member.metrics.polled(time.monotonic() - started)
            if core.is_asked:
                with contextlib.suppress(RuntimeError):  # the consumer was closed meanwhile
                    call(_end_poll, member, until_ms)

    def _raise_wakeup(self) -> None:
        if self._is_woken:
            self._is_woken = False
            raise WakeupError("wakeup() was called")

    def _raise_trouble(self) -> None:
        self._raise_wakeup()
        if not self._is_started and self._starting is not None and self._starting.done():
            if self._starting.exception() is not None:
                # It is said once, and the next poll tries again.
                failed, self._starting = self._starting, None
                failed.result()
            self._is_started = True
        self._member.raise_pending_error()

    def _start(self) -> None:
        if self._starting is None:
            self._starting = Future()
            self._background.call_soon(_start, self._member, self._bell, self._starting)

    # One call at a time. What a signal handler raises on the main thread may come between any two instructions, but not
    # within the entry or the exit of a `with` for a lock: so each call has `with self._use` in its own body. (A lock
    # that stayed held would let `close` believe that it was called inside of another call.)

    def _admit(self) -> bool:
        """Before a call. True: it is the outermost of this thread, not one of a signal handler within another call."""
        self._require_usable()
        if self._use._is_owned():  # type: ignore[attr-defined]
            return False
        self._refuse_other_threads()
        return True

    def _refuse_other_threads(self) -> None:
        thread = threading.get_ident()
        if thread == threading.main_thread().ident:
            is_free = self._user in (None, thread)
        else:  # signal handlers run on the main thread only: nothing comes between these two
            is_free = self._use.acquire(blocking=False)
            if is_free:
                self._use.release()
        if not is_free:
            raise ConcurrentModificationError(
                "ShareConsumer is not safe for multi-threaded access: another thread is in a call. "
                "Give each thread a consumer; only wakeup and the methods of deliveries may be shared."
            )

    def _enter(self) -> None:
        """First in a call."""
        self._user = threading.get_ident()
        if self._is_closed:  # by another thread, just now
            raise IllegalStateError(CLOSED)

    def _leave(self, is_outermost: bool) -> None:
        """Last in a call. If a signal handler has closed the consumer meanwhile, that is completed."""
        if is_outermost:
            self._user = None
            if self._closing is not None and not self._is_closed:
                self._finish_closing()

    def _require_usable(self) -> None:
        is_closing = self._closing is not None and not self._use._is_owned()  # type: ignore[attr-defined]
        if self._is_closed or is_closing:
            raise IllegalStateError(CLOSED)
        self._background.require_own_process()
        self._consumption.refuse_in_callback()


# On the loop's thread. None of it knows the consumer.


def _begin_commit(member: AsyncShareMember, bell: _Bell, begun: list[Commit]) -> None:
    """Later changes ring by themselves."""
    begun.append(member.begin_commit())
    if begun[0].is_done:
        bell.ring()


def _end_poll(member: AsyncShareMember, until_ms: int) -> None:
    """Behind the question: a poll that does not wait at all is asked for once too."""
    with member.lock:
        member.core.poll_ended(until_ms)


async def _subscribe(member: AsyncShareMember, topics: frozenset[str]) -> None:
    member.subscribe(topics)


def _start(member: AsyncShareMember, bell: _Bell, started: "Future[None]") -> None:
    member.run_soon(_connect(member, bell, started))


async def _connect(member: AsyncShareMember, bell: _Bell, started: "Future[None]") -> None:
    try:
        await member.start()
    except BaseException as error:
        started.set_exception(error)
    else:
        started.set_result(None)
    bell.ring()


async def _close(member: AsyncShareMember, consumption: Consumption, timeout_s: float) -> None:
    consumption.close()
    await member.close(timeout_s=timeout_s)


# Those that nobody closes.

_open: "weakref.WeakSet[ShareConsumer]" = weakref.WeakSet()


def _dropped(member: AsyncShareMember, consumption: Consumption, background: BackgroundLoop) -> None:
    """Leaves the group, on the background thread, and ends that: this may run within a garbage collection."""
    if not background.is_own_process:
        return
    warnings.warn(
        f"ShareConsumer {member.member_id} of group {member.settings.group_id!r} was not closed; "
        "use with, or close()",
        ResourceWarning,
        stacklevel=2,
    )
    with contextlib.suppress(IllegalStateError):
        closing = background.submit(_close(member, consumption, LEAVE_S))

        def closed(_: object) -> None:
            consumption.forget()
            background.stop()

        closing.add_done_callback(closed)


@atexit.register
def _leave_at_exit() -> None:
    """A program that forgets `close` leaves its groups all the same, if the brokers answer within a moment."""
    consumers = [each for each in list(_open) if each._closing is None and each._background.is_own_process]
    for each in consumers:
        with contextlib.suppress(IllegalStateError):
            each._begin_closing(LEAVE_S)
    until = time.monotonic() + LEAVE_S
    for each in consumers:
        if each._closing is not None:
            with contextlib.suppress(Exception):
                each._closing.result(max(0.0, until - time.monotonic()))
