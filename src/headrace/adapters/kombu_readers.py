"""What brings messages to a kombu connection: a share consumer for each channel, a listener for each temporary queue.

Both run on the event loop of the connection's `Link` and put what they get into its `Inbox`; the thread that drains the
connection takes it from there. A reader holds at most as many records as its channel may prefetch, and a listener stops
while the inbox is full: memory is bounded however slow the application is.
"""

import asyncio
import contextlib
import logging
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from headrace.adapters.kombu_link import CLOSE_S, Link
from headrace.adapters.kombu_records import RecordHeader, routing_key_of, to_message, to_record
from headrace.client.aio import AsyncShareConsumer
from headrace.client.cluster import Cluster
from headrace.client.delivery import Delivery, TopicPartition
from headrace.client.errors import IllegalStateError, OffsetOutOfRangeError, WakeupError, is_retriable
from headrace.client.identity import process_name
from headrace.client.plain_fetch import follow
from headrace.client.settings import ClientSettings
from headrace.wire.errors import KafkaError
from headrace.wire.records import Record, read_records

logger = logging.getLogger("headrace.kombu")

POLL_S = 5.0
ROOM_S = 0.2
"""How often a full channel looks for room that nothing else tells it of."""
AGAIN_S = 1.0
BROADCASTS_MAX = 1_000
FULL_S = 0.05
READ_BYTES = 1024 * 1024
WAIT_S = 0.5
"""The longest wait in one piece, so that Ctrl+C is heard."""
INT_MAX = 2**31 - 1
BELL_BYTES = 4_096


@dataclass(frozen=True, slots=True, eq=False)
class KombuArrival:
    """A message that has come for a queue of a channel."""

    channel: Any
    queue: str
    value: bytes | None
    headers: Sequence[RecordHeader]
    sent_ms: int
    delivery: Delivery | None = None
    """None for what a listener has got: nobody waits for an answer to it."""
    offset: int = -1
    topic: str = ""


class Inbox:
    """From the event loop to the thread that drains the connection. Its lock is held for moments only."""

    def __init__(self) -> None:
        self._arrivals: deque[KombuArrival] = deque()
        self._changed = threading.Condition()
        self._error: Exception | None = None
        self._bell: tuple[socket.socket, socket.socket] | None = None
        """Has a byte to read while there may be something to take, for event loops that wait for sockets."""
        self.broadcasts = 0

    def open_bell(self) -> socket.socket:
        with self._changed:
            if self._bell is None:
                self._bell = socket.socketpair()
                for each in self._bell:
                    each.setblocking(False)
                self._ring()
            return self._bell[0]

    def close_bell(self) -> None:
        with self._changed:
            for each in self._bell or ():
                each.close()
            self._bell = None

    def silence_bell(self) -> None:
        """Until something comes. To be called before looking."""
        with self._changed, contextlib.suppress(BlockingIOError):
            if self._bell is not None:
                self._bell[0].recv(BELL_BYTES)

    def ring_for_more(self) -> None:
        with self._changed:
            if self._arrivals or self._error is not None:
                self._ring()

    def _ring(self) -> None:
        if self._bell is not None:
            with contextlib.suppress(BlockingIOError):  # full: it rings already
                self._bell[1].send(b"\0")

    def put(self, arrival: KombuArrival) -> None:
        with self._changed:
            self._arrivals.append(arrival)
            self.broadcasts += arrival.delivery is None
            self._changed.notify()
            self._ring()

    def fail(self, error: Exception) -> None:
        """The next that drains the connection gets the error."""
        with self._changed:
            self._error = error
            self._changed.notify_all()
            self._ring()

    def take(self, timeout_s: float | None) -> KombuArrival | None:
        """None after `timeout_s` seconds (None: there is no such end)."""
        until = None if timeout_s is None else time.monotonic() + timeout_s
        with self._changed:
            while not self._arrivals:
                if self._error is not None:
                    error, self._error = self._error, None
                    raise error
                left = WAIT_S if until is None else min(WAIT_S, until - time.monotonic())
                if left <= 0:
                    return None
                self._changed.wait(left)
            arrival = self._arrivals.popleft()
            self.broadcasts -= arrival.delivery is None
            return arrival

    def take_back(self, is_meant: Callable[[KombuArrival], bool]) -> list[KombuArrival]:
        """Those that nobody will take any more."""
        with self._changed:
            found = [each for each in self._arrivals if is_meant(each)]
            self._arrivals = deque(each for each in self._arrivals if not is_meant(each))
            self.broadcasts -= sum(each.delivery is None for each in found)
            return found


class ShareReader:
    """The share consumer of a channel. It polls while the channel has room, and keeps locks until it is closed."""

    def __init__(self, link: Link, inbox: Inbox, channel: Any, room: Callable[[int], int]) -> None:
        self._link = link
        self._inbox = inbox
        self._channel = channel
        self._room = room
        self._queues: dict[str, str] = {}
        """The topics to read, and the queue that each is."""
        self._lock = threading.Lock()
        self._held = 0
        self._look: asyncio.Event | None = None
        self._consumer: AsyncShareConsumer | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def held(self) -> int:
        """The records that have come and are not settled."""
        return self._held

    # From any thread

    def read(self, queues: Mapping[str, str]) -> None:
        """Reads these topics from now on; none pauses it, and the locks of what it holds stay."""
        self._link.run(self._read(dict(queues)))

    def look(self) -> None:
        """There may be room now."""
        self._link.call_soon(self._wake)

    def settled(self, count: int = 1) -> None:
        with self._lock:
            self._held -= count
        self.look()

    def close(self) -> None:
        """Gives back what is held, and leaves the group."""
        if self._link.is_usable:
            self._link.run(self._close())

    # On the loop's thread

    async def get(self, topic: str, timeout_s: float) -> Delivery | None:
        """One record, for a channel that does not consume."""
        await self._link.work()
        consumer = self._open()
        if consumer.subscription() != {topic}:
            consumer.subscribe([topic])
        for delivery in await consumer.poll(timeout_s, max_records=1):
            with self._lock:
                self._held += 1
            return delivery
        return None

    async def _read(self, queues: dict[str, str]) -> None:
        self._queues = queues
        if self._task is None and queues:
            self._look = asyncio.Event()
            self._task = self._link.spawn(self._run())
        if self._consumer is not None:
            self._consumer.subscribe(queues)
            if not queues:  # it leaves the group, and keeps the locks of what it holds
                self._consumer.wakeup()
        self._wake()

    def _wake(self) -> None:
        if self._look is not None:
            self._look.set()

    def _open(self) -> AsyncShareConsumer:
        if self._consumer is None:
            options = self._link.options
            named = {} if "client.id" in options.client else {"client.id": process_name("kombu")}
            self._consumer = AsyncShareConsumer(
                {
                    **named,
                    **options.given,
                    "group.id": options.group_id,
                    "share.acknowledgement.mode": "explicit",
                    "share.acquire.mode": "record_limit",
                    "max.poll.records": options.max_held,
                    "max.unacknowledged": 2 * options.max_held,
                    "auto.renew": True,
                    "auto.renew.max.ms": INT_MAX,
                    # With every place taken there is nothing to poll for, however long the tasks are.
                    "max.poll.interval.ms": INT_MAX,
                },
                on_lost=_log_lost,
                tells_at_once=True,
            )
            self._consumer.set_acknowledgement_commit_callback(_log_refused)
        return self._consumer

    async def _run(self) -> None:
        trouble = ""
        while True:
            try:
                await self._link.work()
                consumer = self._open()
                if self._queues:
                    consumer.subscribe(self._queues)
                while True:
                    with contextlib.suppress(WakeupError):
                        await self._turn(consumer)
                    trouble = ""
            except KafkaError as error:
                if not is_retriable(error.code):
                    self._inbox.fail(error)
                    return
                if str(error) != trouble:
                    trouble = str(error)
                    logger.warning("group %s: retrying: %s", self._link.options.group_id, error)
            except Exception as error:
                logger.exception("group %s: reading has failed", self._link.options.group_id)
                self._inbox.fail(error)
                return
            await asyncio.sleep(AGAIN_S)

    async def _turn(self, consumer: AsyncShareConsumer) -> None:
        assert self._look is not None
        self._look.clear()
        room = self._room(self._held) if self._queues else 0
        if room <= 0:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._look.wait(), ROOM_S if self._queues else None)
            return
        for delivery in await consumer.poll(POLL_S, max_records=room):
            queue = self._queues.get(delivery.topic)
            if queue is None:  # consuming has ended meanwhile
                await give_back(self._link, delivery)
                continue
            with self._lock:
                self._held += 1
            self._inbox.put(
                KombuArrival(
                    self._channel,
                    queue,
                    delivery.value,
                    delivery.headers,
                    delivery.timestamp,
                    delivery,
                    delivery.offset,
                )
            )

    async def _close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            self._task = None
        if self._consumer is not None:
            await self._consumer.close(CLOSE_S)
            self._consumer = None


class BroadcastListener:
    """Reads a broadcast topic for a temporary queue, from where the queue was bound."""

    def __init__(
        self,
        link: Link,
        inbox: Inbox,
        channel: Any,
        queue: str,
        topic: str,
        positions: dict[str, int],
        is_meant: Callable[[str], bool],
    ) -> None:
        self._link = link
        self._inbox = inbox
        self._channel = channel
        self._queue = queue
        self._topic = topic
        self._positions = positions
        """Of the queue, by topic. They stay when this listener ends."""
        self._is_meant = is_meant
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        await self._link.topics.create_broadcast(self._topic)
        self._task = self._link.spawn(self._run())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        trouble = ""
        while True:
            try:
                async with Cluster(ClientSettings.parse(self._link.options.given)) as cluster:
                    await self._follow(cluster)
            except OffsetOutOfRangeError as error:
                self._positions[self._topic] = max(0, error.log_start_offset)
                logger.warning("queue %s: messages of %s were lost: %s", self._queue, self._topic, error)
            except (KafkaError, OSError, TimeoutError) as error:
                if str(error) != trouble:
                    trouble = str(error)
                    logger.warning("queue %s: retrying: %s", self._queue, error)
            except Exception as error:
                logger.exception("queue %s: listening has failed", self._queue)
                self._inbox.fail(error)
                return
            await asyncio.sleep(AGAIN_S)

    async def _follow(self, cluster: Cluster) -> None:
        first = self._positions.get(self._topic, 0)
        async with aclosing(follow(cluster, self._topic, 0, first, max_bytes=READ_BYTES)) as batches:
            async for _, batch in batches:
                for record in read_records(batch):
                    if record.offset >= self._positions.get(self._topic, 0):
                        await self._take(record)

    async def _take(self, record: Record) -> None:
        while self._inbox.broadcasts >= BROADCASTS_MAX:  # noqa: ASYNC110 - the other thread has no loop
            await asyncio.sleep(FULL_S)
        self._positions[self._topic] = record.offset + 1
        if self._is_meant(routing_key_of(to_message(None, record.headers))):
            self._inbox.put(
                KombuArrival(
                    self._channel, self._queue, record.value, record.headers, record.timestamp,
                    offset=record.offset, topic=self._topic,
                )
            )  # fmt: skip


def _log_lost(deliveries: Sequence[Delivery], error: Exception | None) -> None:
    for each in deliveries:
        logger.warning(
            "the lock of %s-%d@%d is lost, and another worker may run the same task: %s",
            each.topic, each.partition, each.offset, error,
        )  # fmt: skip


def _log_refused(answered: Mapping[TopicPartition, Collection[int]], error: KafkaError | None) -> None:
    if error is not None:
        for (topic, partition), offsets in answered.items():
            logger.warning(
                "%s-%d: the acknowledgement of offsets %s was refused, and the tasks may run again: %s",
                topic, partition, ", ".join(map(str, sorted(offsets))), error,
            )  # fmt: skip


def accept(delivery: Delivery) -> None:
    """An acknowledgement that comes too late changes nothing: the lock is lost, and the log says so."""
    try:
        delivery.accept()
    except IllegalStateError as error:
        logger.warning(
            "%s-%d@%d was not acknowledged: %s", delivery.topic, delivery.partition, delivery.offset, error
        )


def reject(delivery: Delivery) -> None:
    try:
        delivery.reject()
    except IllegalStateError as error:
        logger.warning(
            "%s-%d@%d was not rejected: %s", delivery.topic, delivery.partition, delivery.offset, error
        )


def release(link: Link, delivery: Delivery) -> None:
    """`give_back`, which waits only if there is something to wait for."""
    if _is_last(link, delivery):
        link.run(give_back(link, delivery))
    else:
        with contextlib.suppress(IllegalStateError):  # lost just now: it is back already
            delivery.release()


async def give_back(link: Link, delivery: Delivery) -> None:
    """The broker would archive a record that has had its last delivery, so a copy takes its place."""
    if _is_last(link, delivery):
        value, headers = to_record(to_message(delivery.value, delivery.headers) | {"redelivered": True})
        await link.send(delivery.topic, value, headers)
        accept(delivery)
    else:
        with contextlib.suppress(IllegalStateError):
            delivery.release()


def _is_last(link: Link, delivery: Delivery) -> bool:
    return not delivery.is_lost and delivery.delivery_count >= link.facts.delivery_limit
