"""`AsyncShareConsumer`: a share consumer for asyncio.

    async with AsyncShareConsumer(bootstrap_servers="localhost:9092", group_id="mailers") as consumer:
        consumer.subscribe(["emails"])
        async for delivery in consumer:
            await send(delivery.value)          # accepted when the next records are polled

Heartbeats, fetches, acknowledgements and renewals run as tasks on the caller's loop: code that blocks the loop for
longer than a record's lock loses the record.
"""

import asyncio
import os
import warnings
import weakref
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from headrace.client.arguments import POLL_S, require_count, seconds, topic_names
from headrace.client.batches import DeliveryBatch, require_arrow
from headrace.client.consumption import (
    NOT_SUBSCRIBED,
    CommitCallback,
    Consumption,
    LostCallback,
)
from headrace.client.core.acknowledgements import Settled
from headrace.client.delivery import AcknowledgeType, Delivery, TopicPartition
from headrace.client.deserializing import Deserializer
from headrace.client.errors import IllegalStateError, WakeupError
from headrace.client.identity import with_process_name
from headrace.client.member import AsyncShareMember, now_ms
from headrace.client.settings import ShareSettings
from headrace.wire.errors import KafkaError
from headrace.wire.records import load_reader


class AsyncShareConsumer:
    """A consumer in a share group. Call its methods on one event loop.

    Settings have Kafka's names, as a mapping or as keyword arguments with underscores
    (docs/reference/client-settings.md lists them).

    `key_deserializer` and `value_deserializer`: called with the bytes of a key or value, except for None, and with
    their context (topic, field, headers) if they take a second argument.
    `on_deserialization_error`: how a record is acknowledged when its deserializer raises an exception. `poll` first
    returns the records before it and then raises `RecordDeserializationError`.
    `on_lost`: `on_lost(deliveries, error)` is called when the locks of returned records expire or are revoked.
    `member_id`: replaces a member that ended without leaving the group.
    `tells_at_once`: the acknowledgement commit callback is called as soon as a response arrives, not inside the next
    call.
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
        tells_at_once: bool = False,
        **keywords: Any,
    ) -> None:
        self.settings = with_process_name(ShareSettings.parse(settings, **keywords))
        load_reader()
        self._member = member = AsyncShareMember(self.settings, member_id=member_id)
        self._consumption = Consumption(
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
        settled = self._consumption.settled
        member.listen(_telling(self._consumption) if tells_at_once else settled, self._consumption.lost)
        # The same method without a call in between, which every record would pay for.
        self.acknowledge = self._consumption.acknowledge  # type: ignore[method-assign]
        self._topics: frozenset[str] = frozenset()
        self._starting: asyncio.Task[None] | None = None
        self._is_woken = False
        self._is_closed = False
        self._is_polling = False
        # Nothing that runs refers to this object, only to its parts: when nobody has it any more, it is collected.
        self._finalizer = weakref.finalize(self, _dropped, member, os.getpid())
        self._finalizer.atexit = False

    @property
    def member_id(self) -> str:
        return self._member.member_id

    async def start(self) -> None:
        """Connects. `poll` and `async with` call it. If it fails, it can be called again."""
        self._require_usable()
        starting = self._start()
        try:
            await asyncio.wait([starting])
        except asyncio.CancelledError:
            starting.cancel()
            self._starting = None
            await asyncio.wait([starting])
            raise
        self._raise_failed_start(starting)

    def subscribe(self, topics: Collection[str]) -> None:
        """Replaces the subscription; an empty list unsubscribes. Topics that do not exist yet are read once created."""
        self._require_usable()
        self._topics = topic_names(topics)
        self._member.subscribe(self._topics)

    def unsubscribe(self) -> None:
        """Leaves the group. Records that were already returned can still be acknowledged."""
        self.subscribe(())

    def subscription(self) -> set[str]:
        """The subscribed topics."""
        return set(self._topics)

    async def poll(
        self,
        timeout: float | None = POLL_S,  # noqa: ASYNC109
        *,
        max_records: int | None = None,
    ) -> list[Delivery]:
        """Returns the next records as soon as there are any, or [] after `timeout` seconds (None: no timeout).

        Returns up to max.poll.records records, rounded up to the end of a record batch. `max_records` lowers the limit
        for this call; it is exact only with share.acquire.mode=record_limit, since prefetched records are returned
        whole. In implicit mode, `poll` accepts the records of the last poll. In explicit mode, it raises an error until
        all of them are acknowledged. Canceling the call loses no records.
        """
        timeout_s = seconds("poll", timeout)
        require_count(max_records)
        deliveries = await self._next(timeout_s, max_records)
        count = len(deliveries)
        self._consumption.seen = count  # at the very last: what ends a poll before this has returned nothing
        return deliveries

    def batches(
        self, *, timeout: float | None = None, max_records: int | None = None
    ) -> AsyncIterator[DeliveryBatch]:
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

    async def _batches(self, timeout_s: float, max_records: int | None) -> AsyncIterator[DeliveryBatch]:
        consumption = self._consumption
        waited_from_ms = now_ms()
        while not self._is_closed:
            left_s = timeout_s - (now_ms() - waited_from_ms) / 1000
            try:
                found = await self._next(max(0.0, min(left_s, POLL_S)), max_records, is_for_rows=True)
            except WakeupError:
                return
            if self._is_closed:
                return
            if found:
                (batch,) = found
                consumption.batch_seen = batch  # at the very last: see `poll`
                yield batch
                waited_from_ms = now_ms()
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

    async def commit_sync(
        self,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> dict[TopicPartition, KafkaError | None]:
        """Sends acknowledgements (in implicit mode, of all records of the last poll) and returns the results.

        Raises TimeoutError if a response is missing after `timeout` seconds (default.api.timeout.ms), and WakeupError
        after `wakeup`. The acknowledgements may still take effect; the callback is called when the responses arrive.
        """
        self._require_usable()
        timeout_s = (
            self.settings.default_api_timeout_ms / 1000
            if timeout is None
            else seconds("commit_sync", timeout)
        )
        consumption = self._consumption
        consumption.accept_seen()
        results = await self._member.commit_of(timeout_s=timeout_s, before_waiting=self._raise_wakeup)
        consumption.run_callbacks()
        return results

    def commit_async(self) -> None:
        """Sends acknowledgements without waiting for the responses, which are passed to the callback."""
        self._require_usable()
        self._consumption.accept_seen()
        self._member.send()
        self._consumption.run_callbacks()

    def set_acknowledgement_commit_callback(self, callback: CommitCallback | None) -> None:
        """Calls `callback({partition: offsets}, error)` with the result of each acknowledgement.

        It is called inside `poll`, `commit_sync`, `commit_async` and `close`, and must not call the consumer.
        """
        self._consumption.callback = callback

    def wakeup(self) -> None:
        """Makes the current `poll` or `commit_sync`, or else the next one, raise `WakeupError`. Ends an iteration.

        It can be called on any thread, and in a signal handler.
        """
        self._is_woken = True
        self._member.wake_soon()

    def acquisition_lock_timeout_ms(self) -> int | None:
        """The lock duration of the group, from the last response; None before the first one."""
        return self._member.core.hands.lock_ms

    def metrics(self) -> dict[str, float]:
        """The metrics of Java's share consumer, by `group:name`."""
        return self._member.metrics.read()

    async def close(self, timeout: float = 30.0) -> None:  # noqa: ASYNC109
        """Sends the acknowledgements made so far, releases all other records, and leaves the group.

        Takes at most `timeout` seconds. In implicit mode, the records of the last poll are released, too.
        """
        timeout_s = seconds("close", timeout)
        if self._is_closed:
            return
        loop = self._member.loop
        if loop is not None and not loop.is_closed():
            self._require_own_loop()
        self._is_closed = True
        self._finalizer.detach()
        self._consumption.close()
        try:
            if self._starting is not None and not self._starting.done():
                self._starting.cancel()
                await asyncio.wait([self._starting])
            if loop is not None and loop.is_closed():
                self._member.abandon()
            else:
                await self._member.close(timeout_s=timeout_s)
        finally:
            self._consumption.forget()
        self._consumption.run_callbacks()

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except asyncio.CancelledError:
            await self.close(timeout=0)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def __aiter__(self) -> AsyncIterator[Delivery]:
        consumption = self._consumption
        while not self._is_closed:
            if not consumption.has_unseen:
                try:
                    await self._next(POLL_S, None)
                except WakeupError:
                    return
            else:
                delivery = consumption.next_unseen(now_ms=now_ms())
                if delivery is not None:
                    yield delivery

    async def _next(
        self, timeout_s: float, max_records: int | None, *, is_for_rows: bool = False
    ) -> list[Any]:
        """Deliveries, or one batch of rows, that count as seen when the application has them."""
        self._require_usable()
        if self._is_polling:
            raise IllegalStateError("another task is polling this consumer; give each task a consumer")
        self._is_polling = True
        try:
            return await self._poll(now_ms() + int(timeout_s * 1000), max_records, is_for_rows)
        finally:
            self._is_polling = False

    async def _poll(self, until_ms: int, wanted: int | None, is_for_rows: bool) -> list[Any]:
        consumption, member = self._consumption, self._member
        take: Callable[..., list[Any]] = consumption.take_batch if is_for_rows else consumption.take
        if not await self._started_by(until_ms):
            return []
        if is_for_rows:
            if unseen_batch := consumption.take_unseen_batch(now_ms=now_ms()):
                return unseen_batch
        elif consumption.has_unseen:
            unseen = consumption.take_unseen(now_ms=now_ms())
            if unseen:
                return unseen
        self._raise_trouble()
        consumption.begin()
        if not self._topics:
            raise IllegalStateError(NOT_SUBSCRIBED)
        started_ms = now_ms()
        with member.lock:
            member.core.poll_began(now_ms=started_ms, records_wanted=wanted)
        if is_for_rows or consumption.is_ready:
            deliveries = take(now_ms=started_ms, records_wanted=wanted)
            if deliveries:
                member.pump()
                member.metrics.polled()
                return deliveries
        return await self._wait(started_ms, until_ms, wanted, take)

    async def _wait(
        self, started_ms: int, until_ms: int, wanted: int | None, take: Callable[..., list[Any]]
    ) -> list[Any]:
        consumption, member = self._consumption, self._member
        asked_until_ms = max(until_ms, started_ms + 1)
        with member.lock:
            member.core.poll_waits(asked_until_ms, now_ms=started_ms)
        member.pump()
        try:
            while True:
                if consumption.is_ready:
                    deliveries = take(now_ms=now_ms(), records_wanted=wanted)
                    if deliveries:
                        return deliveries
                    with member.lock:  # there were gaps alone
                        member.core.poll_waits(asked_until_ms, now_ms=now_ms())
                    member.pump()
                if now_ms() >= until_ms or self._is_closed:
                    return []
                await member.changes.wait(until_ms)
                self._raise_trouble()
        finally:
            member.metrics.polled((now_ms() - started_ms) / 1000)
            with member.lock:
                member.core.poll_ended(asked_until_ms)

    def _raise_trouble(self) -> None:
        self._raise_wakeup()
        self._member.raise_pending_error()

    def _raise_wakeup(self) -> None:
        if self._is_woken:
            self._is_woken = False
            raise WakeupError("wakeup() was called")

    def _start(self) -> "asyncio.Task[None]":
        if self._starting is None:
            self._starting = asyncio.create_task(self._member.start())
        return self._starting

    async def _started_by(self, until_ms: int) -> bool:
        """False when the time is over and no broker is there yet. Raises when none was found, once: see `start`."""
        starting = self._start()
        if not starting.done():
            await asyncio.wait([starting], timeout=max(0, until_ms - now_ms()) / 1000)
        if not starting.done() or starting.cancelled():  # canceled: the consumer was closed meanwhile
            return False
        self._raise_failed_start(starting)
        return True

    def _raise_failed_start(self, starting: "asyncio.Task[None]") -> None:
        if not starting.cancelled() and starting.exception() is not None and self._starting is starting:
            self._starting = None
        starting.result()

    def _require_usable(self) -> None:
        if self._is_closed:
            raise IllegalStateError("this consumer is closed; make a new one")
        self._require_own_loop()
        self._consumption.refuse_in_callback()

    def _require_own_loop(self) -> None:
        try:
            running: asyncio.AbstractEventLoop | None = asyncio.get_running_loop()
        except RuntimeError:
            running = None
        if self._member.loop not in (None, running):
            raise IllegalStateError(
                "this consumer belongs to the event loop it was started on, and was called from another one or from a "
                "thread; make a consumer for each loop. From threads only the methods of deliveries may be called."
            )


def _telling(consumption: Consumption) -> Callable[[Sequence[Settled]], None]:
    """Notes results, and calls the callback in the next turn of the loop."""

    def settled(answers: Sequence[Settled]) -> None:
        consumption.settled(answers)
        asyncio.get_running_loop().call_soon(consumption.run_callbacks)

    return settled


def _dropped(member: AsyncShareMember, pid: int) -> None:
    if member.is_open and os.getpid() == pid:
        warnings.warn(
            f"AsyncShareConsumer {member.member_id} of group {member.settings.group_id!r} was not closed; "
            "use async with, or await close()",
            ResourceWarning,
            stacklevel=2,
        )
        member.drop()
