"""`AsyncShareConsumer`: a share consumer for asyncio.

    async with AsyncShareConsumer(bootstrap_servers="localhost:9092", group_id="mailers") as consumer:
        consumer.subscribe(["emails"])
        async for delivery in consumer:
            await send(delivery.value)          # accepted when the next records are polled

Heartbeats, fetches, acknowledgements and renewals run as tasks on the caller's loop: code that blocks the loop for
longer than a record's lock loses the record.
"""

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping
from numbers import Real
from types import TracebackType
from typing import Any, Self

from headrace.client.consumption import (
    NOT_SUBSCRIBED,
    CommitCallback,
    Consumption,
    Deserializer,
    LostCallback,
)
from headrace.client.delivery import AcknowledgeType, Delivery, TopicPartition
from headrace.client.errors import IllegalStateError, WakeupError
from headrace.client.member import AsyncShareMember, now_ms
from headrace.client.settings import ShareSettings
from headrace.wire.errors import KafkaError
from headrace.wire.records import load_reader

POLL_S = 1.0
"""How long one poll of an iteration waits."""
FOR_EVER_S = 1e9


class AsyncShareConsumer:
    """A member of a share group that hands out records. All methods belong to the loop that runs it.

    Settings are Kafka's, as a mapping or as keyword arguments with underscores; docs/reference/client-settings.md
    lists them. Deserializers are called with the bytes of a key or value (not for None); one that raises makes `poll`
    raise `RecordDeserializationError` after the records before it have been returned, and the record is answered with
    `on_deserialization_error`. `on_lost(deliveries, error)` hears of handed-out records whose lock is gone.
    `member_id` takes the place of a member that died without leaving.
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
            self.settings, member_id=member_id, on_settled=self._settled, on_lost=self._lost
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
        self._starting: asyncio.Task[None] | None = None
        self._is_woken = False
        self._is_closed = False
        self._is_polling = False

    @property
    def member_id(self) -> str:
        return self._member.member_id

    async def start(self) -> None:
        """Connects; `poll` and `async with` do it by themselves. It may be called again when it has failed."""
        starting = self._start()
        await asyncio.wait([starting])
        self._raise_failed_start(starting)

    def subscribe(self, topics: Collection[str]) -> None:
        """Replaces the subscription. No topics: `unsubscribe`. Topics that do not exist yet are waited for."""
        self._require_usable()
        self._topics = topic_names(topics)
        self._member.core.subscribe(self._topics, now_ms=now_ms())
        if self._is_running:
            self._member.pump()

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
        self._require_usable()
        if self._is_polling:
            raise IllegalStateError("another task is polling this consumer; give each task a consumer")
        timeout_s = seconds("poll", timeout)
        require_count(max_records)
        self._is_polling = True
        self._member.core.records_wanted = max_records
        try:
            return await self._poll(now_ms() + int(timeout_s * 1000))
        finally:
            self._is_polling = False

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
        consumption.accept_handed()
        results = await self._member.commit_of(
            consumption.touched(), timeout_s=timeout_s, before_waiting=self._raise_wakeup
        )
        consumption.run_callbacks()
        return results

    def commit_async(self) -> None:
        """Sends what is acknowledged; the callback hears of the answers."""
        self._require_usable()
        self._consumption.accept_handed()
        self._member.send(self._consumption.touched())
        self._consumption.run_callbacks()

    def set_acknowledgement_commit_callback(self, callback: CommitCallback | None) -> None:
        """`callback({partition: offsets}, error)` for every answer to acknowledgements, inside later calls.

        It runs within `poll`, `commit_sync`, `commit_async` and `close`, and must not call the consumer.
        """
        self._consumption.callback = callback

    def wakeup(self) -> None:
        """Makes the waiting `poll` or `commit_sync`, or else the next, raise `WakeupError`; an iteration ends."""
        self._is_woken = True
        self._member.wake()

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
        self._is_closed = True
        self._consumption.close()
        if self._starting is not None and not self._starting.done():
            self._starting.cancel()
        core = self._member.core
        core.holdings.sweep(self._consumption.touched())
        await self._member.close(timeout_s=timeout_s)
        self._consumption.run_callbacks()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def __aiter__(self) -> AsyncIterator[Delivery]:
        unseen = self._consumption.unseen
        while not self._is_closed:
            if not unseen:
                try:
                    unseen.extend(await self.poll())
                except WakeupError:
                    return
            else:
                yield unseen.popleft()

    async def _poll(self, until_ms: int) -> list[Delivery]:
        consumption, member = self._consumption, self._member
        if not await self._started_by(until_ms):
            return []
        if consumption.unseen:  # an iteration was left before its end
            seen = list(consumption.unseen)
            consumption.unseen.clear()
            return seen
        self._raise_trouble()
        consumption.begin()
        if not self._topics:
            raise IllegalStateError(NOT_SUBSCRIBED)
        started_ms = now_ms()
        member.core.came_back(now_ms=started_ms)
        deliveries = consumption.take(now_ms=started_ms)
        if deliveries:
            member.served(consumption.touched())
            member.metrics.polled()
            return deliveries
        member.ask(max(until_ms, started_ms + 1), consumption.touched())
        try:
            while True:
                if consumption.is_ready:
                    deliveries = consumption.take(now_ms=now_ms())
                    if deliveries:
                        if consumption.is_touched:  # there were gaps too
                            member.send(consumption.touched())
                        return deliveries
                    member.ask(until_ms, consumption.touched())  # there were gaps alone
                if now_ms() >= until_ms or self._is_closed:
                    return []
                await member.wait_for_change(until_ms)
                self._raise_trouble()
        finally:
            member.metrics.polled((now_ms() - started_ms) / 1000)
            member.core.ask(None)

    def _raise_trouble(self) -> None:
        self._raise_wakeup()
        self._member.raise_trouble()

    def _raise_wakeup(self) -> None:
        if self._is_woken:
            self._is_woken = False
            raise WakeupError("wakeup() was called")

    @property
    def _is_running(self) -> bool:
        starting = self._starting
        if starting is None or not starting.done() or starting.cancelled():
            return False
        return starting.exception() is None

    def _start(self) -> "asyncio.Task[None]":
        if self._starting is None:
            self._starting = asyncio.create_task(self._run())
        return self._starting

    async def _run(self) -> None:
        asyncio.get_running_loop().run_in_executor(None, load_reader)
        await self._member.start()
        self._member.pump()

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

    def _settled(self, answers: Any) -> None:
        self._consumption.settled(answers)

    def _lost(self, losses: Any) -> None:
        self._consumption.lost(losses)

    def _touched(self) -> None:
        asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        if not self._is_closed:
            self._member.send(self._consumption.touched())

    def _require_usable(self) -> None:
        if self._is_closed:
            raise IllegalStateError("this consumer is closed; make a new one")
        self._consumption.refuse_in_callback()


def seconds(method: str, timeout: float | None) -> float:
    """A timeout as it was given, checked; None and infinity are so long that nobody lives to see its end."""
    if timeout is None:
        return FOR_EVER_S
    if isinstance(timeout, bool) or not isinstance(timeout, (float, int, Real)):
        raise TypeError(f"{method}(timeout={timeout!r}) is not possible; give seconds, as a number")
    if not timeout >= 0:
        raise ValueError(
            f"{method}(timeout={timeout!r}) is not possible; give seconds, 0 or more, or None to wait without end"
        )
    return min(float(timeout), FOR_EVER_S)


def require_count(max_records: int | None) -> None:
    if max_records is not None and max_records < 1:
        raise ValueError(f"poll(max_records={max_records}) is not possible; ask for 1 or more, or None")


def topic_names(topics: Collection[str]) -> frozenset[str]:
    if isinstance(topics, str):
        raise TypeError(f"subscribe takes a list of topics; for one topic write [{topics!r}]")
    for topic in topics:
        if not isinstance(topic, str) or not topic.strip():
            raise ValueError(f"{topic!r} is no topic name; topics are text and not empty")
    return frozenset(topics)
