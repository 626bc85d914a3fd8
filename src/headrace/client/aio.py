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
    """A member of a share group that hands out records. All methods belong to the loop that runs it.

    Settings are Kafka's, as a mapping or as keyword arguments with underscores; docs/reference/client-settings.md
    lists them. Deserializers are called with the bytes of a key or value (not for None), and with their context
    (topic, field, headers) if they take a second argument; one that raises makes `poll`
    raise `RecordDeserializationError` after the records before it have been returned, and the record is answered with
    `on_deserialization_error`. `on_lost(deliveries, error)` hears of handed-out records whose lock is gone.
    `member_id` takes the place of a member that died without leaving. With `tells_at_once` the acknowledgement commit
    callback is called by the loop as soon as a broker has answered, not inside the next call.
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
        """Connects; `poll` and `async with` do it by themselves. It may be called again when it has failed."""
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
        """Replaces the subscription. No topics: `unsubscribe`. Topics that do not exist yet are waited for."""
        self._require_usable()
        self._topics = topic_names(topics)
        self._member.subscribe(self._topics)

    def unsubscribe(self) -> None:
        """Leaves the group. Records in your hands can still be acknowledged."""
        self.subscribe(())

    def subscription(self) -> set[str]:
        return set(self._topics)

    async def poll(
        self,
        timeout: float | None = POLL_S,  # noqa: ASYNC109
        *,
        max_records: int | None = None,
    ) -> list[Delivery]:
        """The next records, as soon as there are some; [] after `timeout` seconds (None: there is no such end).

        Returns up to max.poll.records, rounded up to the end of a record batch; `max_records` asks for fewer this
        time (exactly so with share.acquire.mode=record_limit; else what was read ahead comes whole). In implicit mode
        it accepts what the last poll returned; in explicit mode it refuses to go on until all of that is acknowledged.
        Cancelling it loses nothing.
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
        """The next records as Arrow record batches, one poll after the other, without an end.

        Each is a `DeliveryBatch`: `records` has the rows, and `accept`, `release` and `reject` take a mask of them. The
        rules are those of `poll`. With `timeout` the iteration ends when nothing came for so many seconds; it ends also
        with `wakeup` and `close`. Needs pyarrow: `pip install 'headrace[arrow]'`.
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
        """The same as the delivery's own methods."""
        self._consumption.acknowledge(delivery, type)

    def acknowledge_offset(
        self, topic: str, partition: int, offset: int, type: AcknowledgeType = AcknowledgeType.ACCEPT
    ) -> None:
        """For a record of which there is no delivery: `poll` has raised `RecordDeserializationError` for it."""
        self._require_usable()
        self._consumption.acknowledge_offset(topic, partition, offset, AcknowledgeType(type))

    async def commit_sync(
        self,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> dict[TopicPartition, KafkaError | None]:
        """Sends what is acknowledged (implicit mode: all of the last poll) and waits: what each partition said.

        TimeoutError when not all answers came within `timeout` seconds (default.api.timeout.ms), WakeupError after
        `wakeup`. What was sent is sent: the answers may still come, and the callback hears of them.
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
        """Sends what is acknowledged; the callback hears of the answers."""
        self._require_usable()
        self._consumption.accept_seen()
        self._member.send()
        self._consumption.run_callbacks()

    def set_acknowledgement_commit_callback(self, callback: CommitCallback | None) -> None:
        """`callback({partition: offsets}, error)` for every answer to acknowledgements, inside later calls.

        It runs within `poll`, `commit_sync`, `commit_async` and `close`, and must not call the consumer.
        """
        self._consumption.callback = callback

    def wakeup(self) -> None:
        """Makes the waiting `poll` or `commit_sync`, or else the next, raise `WakeupError`; an iteration ends.

        From any thread, and from signal handlers.
        """
        self._is_woken = True
        self._member.wake_soon()

    def acquisition_lock_timeout_ms(self) -> int | None:
        """How long the group's locks last, as the brokers last said; None before the first answer."""
        return self._member.core.holdings.lock_ms

    def metrics(self) -> dict[str, float]:
        """Java's client metrics, as `group:name`."""
        return self._member.metrics.read()

    async def close(self, timeout: float = 30.0) -> None:  # noqa: ASYNC109
        """Sends acknowledgements made so far, gives back all other records, and leaves the group.

        Takes no longer than `timeout` seconds. In implicit mode what the last poll returned is given back too.
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
                await member.wait_for_change(until_ms)
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
        if not starting.done() or starting.cancelled():  # cancelled: the consumer was closed meanwhile
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
    """Notes answers, and tells the callback in the next turn of the loop."""

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
