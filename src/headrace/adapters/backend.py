"""What the adapters for task frameworks share: topics, a share group that is ready for work, sending now or later.

A framework sends messages from programs that know nothing of Kafka's topics, so a topic is created when it is first
used. Messages with a delay go to the group's topic of scheduled records (`worker/later.py`); a process that consumes
also runs the forwarder, which moves them to their own topics when they are due.
"""

import asyncio
import logging
import weakref
from collections.abc import Coroutine, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

from headrace.client.admin.aio import AsyncAdmin
from headrace.client.background import BackgroundLoop
from headrace.client.delivery import Delivery
from headrace.client.errors import AuthorizationError, PolicyViolationError, TopicExistsError
from headrace.client.forks import ForkSafeLock
from headrace.client.identity import process_name
from headrace.client.settings import ClientSettings
from headrace.wire.errors import KafkaError
from headrace.worker.bodies import Header
from headrace.worker.errors import QueueError
from headrace.worker.forwarder import Forwarder
from headrace.worker.group_facts import GroupFacts, prepare_group
from headrace.worker.later import control_topic, later_topic
from headrace.worker.outbox import Outbox, settings_for
from headrace.worker.schedule import Schedule

logger = logging.getLogger("headrace.adapters")

T = TypeVar("T")
FOREVER_MS = 2**31 - 1


class TaskBackend:
    """The share group of one application. Methods may be called from any thread; `close` may be followed by more work.

    `settings` are client settings by Kafka's names. `partitions` is for topics that are created here; None leaves the
    number to the brokers.
    """

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str],
        group_id: str,
        settings: Mapping[str, Any],
        partitions: int | None = None,
    ) -> None:
        if not group_id:
            raise QueueError("group_id must be a non-empty string, got ''")
        if partitions is not None and partitions < 1:
            raise QueueError(f"partitions must be >= 1 or None, got {partitions}")
        dotted = {name.replace("_", "."): value for name, value in settings.items()}
        self.group_id = group_id
        self.given: dict[str, Any] = {**dotted, "bootstrap.servers": bootstrap_servers}
        self.outbox = Outbox(settings_for(self.given))
        self.schedule = Schedule(self.given, group_id)
        self._partitions = -1 if partitions is None else partitions
        self._known: set[str] = set()
        self._creating = ForkSafeLock()
        self._lock = ForkSafeLock()
        self._forwarding: _Forwarding | None = None
        weakref.finalize(self, self.outbox.close)  # also at the program's end

    def check_topic(self, topic: str) -> None:
        """Refuses the names of the group's own topics."""
        if topic in (later_topic(self.group_id), control_topic(self.group_id)):
            raise QueueError(
                f"topic {topic!r} holds the scheduled records of group {self.group_id!r}; use another name"
            )

    async def ensure_topics(self, topics: Sequence[str]) -> None:
        """Creates the topics that do not exist. Without the right to do so, it is left to the broker or to others."""
        missing = [topic for topic in topics if topic not in self._known]
        if not missing:
            return
        async with AsyncAdmin(ClientSettings.parse(self.given)) as admin:
            for topic in missing:
                try:
                    await admin.create_topic(topic, self._partitions)
                except TopicExistsError:
                    pass
                except (AuthorizationError, PolicyViolationError) as error:
                    logger.info("topic %s is not created here: %s", topic, error)
                self._known.add(topic)

    async def prepare(self, topics: Sequence[str]) -> GroupFacts:
        """For a consumer: the topics, and a group that begins with the oldest record."""
        await self.ensure_topics(topics)
        return await prepare_group(ClientSettings.parse(self.given), self.group_id, start_from="earliest")

    def send(
        self, topic: str, value: bytes | None, headers: tuple[Header, ...] = (), delay_s: float | None = None
    ) -> None:
        """Returns when the record is stored; KafkaError or QueueError if it is not."""
        self._prepare_sending(topic, delay_s)
        if delay_s is None:
            self.outbox.send(topic, value, headers=headers)
            return
        place = self.schedule.place(topic, headers, delay=delay_s)
        self.outbox.send(place.topic, value, headers=place.headers, partition=place.partition)

    async def send_async(
        self, topic: str, value: bytes | None, headers: tuple[Header, ...] = (), delay_s: float | None = None
    ) -> None:
        """The same on an event loop."""
        if delay_s is not None or topic not in self._known:
            await asyncio.to_thread(self._prepare_sending, topic, delay_s)
        if delay_s is None:
            await self.outbox.send_async(topic, value, headers=headers)
            return
        place = self.schedule.place(topic, headers, delay=delay_s)
        await self.outbox.send_async(place.topic, value, headers=place.headers, partition=place.partition)

    def _prepare_sending(self, topic: str, delay_s: float | None) -> None:
        """One at a time: many first messages at once would all connect to create the topic."""
        if delay_s is None and topic in self._known:
            return
        with self._creating:
            if topic not in self._known:
                run_here(self.ensure_topics([topic]))
            if delay_s is not None:
                self.schedule.prepare()

    def consumer_settings(self, name: str, held_max: int, records_max: int) -> dict[str, Any]:
        """For a share consumer whose records are acknowledged one by one, while later ones are fetched."""
        is_named = "client.id" in self.given
        return {
            **({} if is_named else {"client.id": process_name(name)}),
            **self.given,
            "group.id": self.group_id,
            "share.acknowledgement.mode": "explicit",
            "share.acquire.mode": "record_limit",
            "max.poll.records": records_max,
            "max.unacknowledged": held_max,
            "auto.renew": True,
            "auto.renew.max.ms": FOREVER_MS,
            "max.poll.interval.ms": FOREVER_MS,  # with every slot taken, nothing is polled
        }

    def forward(self) -> None:
        """Begins to move scheduled records that are due, if this process does not do so already."""
        with self._lock:
            if self._forwarding is None or not self._forwarding.is_running:
                self._forwarding = _Forwarding(Forwarder(self.given, self.group_id, (), self.schedule.now_ms))

    def close(self) -> None:
        """Stops forwarding, and sends what is on its way."""
        with self._lock:
            forwarding, self._forwarding = self._forwarding, None
        if forwarding is not None:
            forwarding.stop()
        self.outbox.close()


class _Forwarding:
    """A forwarder at work, on a thread of its own."""

    def __init__(self, forwarder: Forwarder) -> None:
        self._background = BackgroundLoop("headrace-forwarder")
        self._running: Future[None] = self._background.submit(forwarder.run())

    @property
    def is_running(self) -> bool:
        """False in the child of a fork."""
        return self._background.is_own_process and not self._running.done()

    def stop(self) -> None:
        self._background.close()  # which cancels it


def run_here(work: Coroutine[Any, Any, T]) -> T:
    """For callers without an event loop."""
    background = BackgroundLoop("headrace-adapter")
    try:
        return background.run(work)
    finally:
        background.close()


def place_of(delivery: Delivery) -> str:
    """For logs."""
    return f"{delivery.topic}-{delivery.partition}@{delivery.offset}"


def log_lost(deliveries: Sequence[Delivery], error: KafkaError) -> None:
    for delivery in deliveries:
        logger.warning("%s may be delivered again, its lock is lost: %s", place_of(delivery), error)
