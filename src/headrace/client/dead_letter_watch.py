"""Counts the dead letters of a cluster again and again, and reads each letter only once.

    watch = DeadLetterWatch(cluster)
    await watch.refresh(["dlq.orders"])      # reads the topic
    await watch.refresh(["dlq.orders"])      # reads what is new
    watch.listing("dlq.orders").causes()

What has become of a letter is written in the same partition, behind it (`headrace.client.dead_letters`), so reading on
from where the last refresh ended is enough. A topic keeps its newest `letters_max` letters; when a topic was deleted
and created again, or when retention has removed the place where reading would go on, it is read from the start.
A partition that cannot be read now keeps what is known of it, and does not hold up the others.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from headrace.client.cluster import Cluster
from headrace.client.dead_letters import DeadLetter, LetterStatus, Listing, PartitionLetters, places_of_topic
from headrace.client.plain_fetch import list_offsets_once
from headrace.wire.enums import OffsetSpec
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.ids import TopicAndPartition

logger = logging.getLogger("headrace.client")

LETTERS_MAX = 10_000
TOPICS_MAX = 200


@dataclass(slots=True)
class _WatchedTopic:
    topic_id: bytes
    partitions: dict[int, PartitionLetters] = field(default_factory=dict)
    passed_over: dict[int, int] = field(default_factory=dict)
    listing: Listing | None = None


class DeadLetterWatch:
    def __init__(self, cluster: Cluster, *, letters_max: int = LETTERS_MAX) -> None:
        self._cluster = cluster
        self._letters_max = letters_max
        self._watched: dict[str, _WatchedTopic] = {}
        self._lock = asyncio.Lock()
        self._is_stale = False
        """A partition could not be read: its leader may have moved."""
        self.denied: dict[str, KafkaError] = {}
        """By topic: that it may not be read. What waits in it is not known."""

    @property
    def topics(self) -> tuple[str, ...]:
        return tuple(self._watched)

    async def refresh(self, topics: Iterable[str], *, fresh: bool = True) -> None:
        """Topics that are not named any more, or are not there, are forgotten.

        With `fresh`, topics that were created anew and new partitions are noticed too, for one request more.
        """
        async with self._lock:
            await self._refresh(sorted(set(topics))[:TOPICS_MAX], fresh=fresh)

    async def _refresh(self, wanted: Sequence[str], *, fresh: bool) -> None:
        self._watched = {name: seen for name, seen in self._watched.items() if name in wanted}
        self.denied = {name: error for name, error in self.denied.items() if name in wanted}
        if not wanted:
            return
        if fresh or self._is_stale or any(name not in self._watched for name in wanted):
            await self._cluster.refresh(wanted)
            self._is_stale = False
        places: list[TopicAndPartition] = []
        for name in wanted:
            try:
                places += await places_of_topic(self._cluster, name)
            except KafkaError as error:
                self._watched.pop(name, None)
                self._note(name, error)
        if not places:
            return
        starts = await list_offsets_once(self._cluster, dict.fromkeys(places, OffsetSpec.EARLIEST))
        ends = await list_offsets_once(self._cluster, dict.fromkeys(places, OffsetSpec.LATEST))
        counts: dict[str, int] = {}
        for name, _ in places:
            counts[name] = counts.get(name, 0) + 1
        for place in places:
            self.denied.pop(place[0], None)
        for place in places:
            try:
                start, end = _offset(starts[place]), _offset(ends[place])
                await self._read(place, start, end, max(1, self._letters_max // counts[place[0]]))
            except KafkaError as error:
                logger.debug("dead letters cannot be read now: %s", error)
                self._is_stale = True
                self._note(place[0], error)

    def _note(self, topic: str, error: KafkaError) -> None:
        if error.code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            self.denied[topic] = error

    async def _read(self, place: TopicAndPartition, start: int, end: int, letters_max: int) -> None:
        topic = self._cluster.topic(place[0])
        if topic is None:
            return
        watched = self._watched.get(place[0])
        if watched is None or watched.topic_id != topic.topic_id:
            watched = self._watched[place[0]] = _WatchedTopic(topic.topic_id)
        partition = watched.partitions.get(place[1])
        if partition is None or not start <= partition.position <= end:
            partition = watched.partitions[place[1]] = PartitionLetters(place, max(start, end - letters_max))
            watched.listing = None
        if partition.forget_below(max(start, end - 2 * letters_max)):
            watched.listing = None
        if partition.position < end:
            watched.listing = None
            await partition.read_to(self._cluster, end)
        watched.passed_over[place[1]] = max(0, partition.first - start)

    def listing(self, topic: str) -> Listing | None:
        """What was read of a topic; None if it is not watched."""
        watched = self._watched.get(topic)
        if watched is None:
            return None
        if watched.listing is None:
            partitions = sorted(watched.partitions.items())
            watched.listing = Listing(
                topic,
                tuple(letter for _, one in partitions for letter in one.letters.values()),
                {index: one.position for index, one in partitions},
                sum(watched.passed_over.values()),
            )
        return watched.listing

    def waiting_by_group(self) -> Mapping[str, int]:
        """How many letters wait, for each group that a letter names."""
        counts: dict[str, int] = {}
        for letter in self._waiting():
            if letter.group_id is not None:
                counts[letter.group_id] = counts.get(letter.group_id, 0) + 1
        return counts

    def waiting(self) -> int:
        return sum(1 for _ in self._waiting())

    def _waiting(self) -> Iterable[DeadLetter]:
        for topic in self._watched:
            listing = self.listing(topic)
            for letter in listing.letters if listing is not None else ():
                if letter.status is LetterStatus.WAITING:
                    yield letter


def _offset(answer: int | KafkaError) -> int:
    if isinstance(answer, KafkaError):
        raise answer
    return answer
