"""Reads partitions on and on by plain Fetch, outside any share group: all partitions of a broker in one request.

    tail = Tail(cluster, settings, arrived=wake_up)
    partition = tail.follow("orders", topic_id, 0, offset=100)
    ...
    while (part := partition.take()) is not None: ...

Only committed records are read. At most one fetch is under way for each broker, and a partition is fetched again when
less than half of PARTITION_BYTES of it waits to be taken, so about one and a half times as much may be in memory.
Failures are tried again for as long as a partition is followed; `Tail.trouble` says which there are.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from headrace.client.cluster import Cluster, retry_backoff
from headrace.client.errors import error_for
from headrace.client.plain_fetch import BatchReader
from headrace.client.settings import ShareSettings
from headrace.wire.batches import is_intact
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from headrace.wire.messages.fetch_response import FetchResponse, PartitionData

logger = logging.getLogger("headrace.client")

PARTITION_BYTES = 1024 * 1024
LATE_S = 30.0
"""How much longer than fetch.max.wait.ms a response may take."""


class LogPart(NamedTuple):
    """A batch, or none where there are only offsets without visible records."""

    end: int
    """The offset behind it."""
    batch: memoryview | None


class TailPartition:
    """One that is followed. Only the tail puts something in."""

    def __init__(self, topic: str, topic_id: bytes, index: int, offset: int) -> None:
        self.topic, self.topic_id, self.index = topic, topic_id, index
        self.position = offset
        """Where the next fetch begins."""
        self.is_followed = True
        self.is_fetching = False
        self.is_out_of_range = False
        """Its position is not in the log. It is not fetched before `move`."""
        self.trouble: Exception | None = None
        self.again_s = 0.0
        self._parts: deque[LogPart] = deque()
        self._bytes = 0
        self._moves = 0

    def take(self) -> LogPart | None:
        """The next part of the log, in order, if there is one at hand."""
        if not self._parts:
            return None
        part = self._parts.popleft()
        self._bytes -= len(part.batch or b"")
        return part

    @property
    def is_empty(self) -> bool:
        """There is nothing to take."""
        return not self._parts

    @property
    def wants_more(self) -> bool:
        is_free = self.is_followed and not self.is_fetching and not self.is_out_of_range
        return is_free and self._bytes < PARTITION_BYTES // 2

    @property
    def generation(self) -> int:
        """What was asked for before a `move` is not taken."""
        return self._moves

    def move(self, offset: int) -> None:
        """Forgets what is at hand and goes on at another offset."""
        self._parts.clear()
        self._bytes = 0
        self._moves += 1
        self.position, self.is_out_of_range = offset, False

    def skip_to(self, offset: int) -> None:
        """Goes on at a later offset, behind what is at hand."""
        self.put([LogPart(offset, None)])
        self.is_out_of_range = False

    def put(self, parts: Iterable[LogPart]) -> None:
        for part in parts:
            self._parts.append(part)
            self._bytes += len(part.batch or b"")
            self.position = part.end


class Tail:
    """Follows partitions until `close`. `arrived` is called when there is something to take, or to look at."""

    def __init__(self, cluster: Cluster, settings: ShareSettings, *, arrived: Callable[[], None]) -> None:
        self._cluster = cluster
        self._settings = settings
        self._arrived = arrived
        self._followed: list[TailPartition] = []
        self._fetching: dict[int, asyncio.Task[None]] = {}
        self._finding: asyncio.Task[None] | None = None
        """Looks for leaders that are not known."""
        self._soon = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._retries = retry_backoff(settings)
        self._running = self._loop.create_task(self._run())

    @property
    def trouble(self) -> dict[int, Exception]:
        """What keeps a partition from being read now."""
        return {each.index: each.trouble for each in self._followed if each.trouble is not None}

    def follow(self, topic: str, topic_id: bytes, index: int, offset: int) -> TailPartition:
        partition = TailPartition(topic, topic_id, index, offset)
        self._followed.append(partition)
        self.look()
        return partition

    def leave(self, partition: TailPartition) -> None:
        partition.is_followed = False
        self._followed = [each for each in self._followed if each is not partition]

    def look(self) -> None:
        """Something was taken, or moved: there may be something to fetch."""
        self._soon.set()

    async def close(self) -> None:
        tasks = [self._running, *self._fetching.values()]
        if self._finding is not None:
            tasks.append(self._finding)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)

    async def _run(self) -> None:
        while True:
            self._soon.clear()
            wait_s = self._begin()
            try:
                async with asyncio.timeout(wait_s):
                    await self._soon.wait()
            except TimeoutError:
                pass

    def _begin(self) -> float | None:
        """Sends a fetch to every broker that has none and leads something. Returns when to look again."""
        now_s = self._loop.time()
        by_leader: dict[int, list[TailPartition]] = {}
        without_leader: list[TailPartition] = []
        waits: list[float] = []
        for each in self._followed:
            if not each.wants_more:
                continue
            if each.again_s > now_s:
                waits.append(each.again_s - now_s)
                continue
            leader = self._leader_of(each)
            if leader is None:
                without_leader.append(each)
            elif leader not in self._fetching:
                by_leader.setdefault(leader, []).append(each)
        for leader, partitions in by_leader.items():
            task = self._loop.create_task(self._fetch(leader, partitions))
            self._fetching[leader] = task
            task.add_done_callback(lambda _, leader=leader: self._fetched(leader))  # type: ignore[misc]
        if without_leader and self._finding is None:
            self._finding = self._loop.create_task(self._find_leaders(without_leader))
            self._finding.add_done_callback(self._found)
        return min(waits, default=None)

    def _fetched(self, leader: int) -> None:
        del self._fetching[leader]
        self._soon.set()

    async def _find_leaders(self, partitions: Sequence[TailPartition]) -> None:
        """Beside the fetches: partitions that have a leader do not wait for those that have none."""
        by_topic: dict[str, list[TailPartition]] = {}
        for each in partitions:
            by_topic.setdefault(each.topic, []).append(each)
        await self._refresh(by_topic)
        for topic, these in by_topic.items():
            missing = [each for each in these if self._leader_of(each) is None]
            if missing:
                self._failed(missing, error_for(ErrorCode.LEADER_NOT_AVAILABLE, about=f"topic {topic!r}"))

    def _found(self, _: "asyncio.Task[None]") -> None:
        self._finding = None
        self._soon.set()

    def _leader_of(self, partition: TailPartition) -> int | None:
        topic = self._cluster.topic_by_id(partition.topic_id)
        known = topic.partitions.get(partition.index) if topic is not None else None
        return known.leader_id if known is not None and known.leader_id in self._cluster.nodes else None

    async def _refresh(self, topics: Iterable[str]) -> None:
        try:
            await self._cluster.refresh(topics)
        except Exception as error:  # whatever it is: they are asked for again
            logger.debug("metadata of %s cannot be read: %s", ", ".join(topics), error)

    async def _fetch(self, leader: int, partitions: Sequence[TailPartition]) -> None:
        asked = {(each.topic_id, each.index): (each, each.generation) for each in partitions}
        # The broker lets only the first be larger than it should: each is the first at some time.
        self._followed.sort(key=lambda each: (each.topic_id, each.index) in asked)
        for each in partitions:
            each.is_fetching = True
        try:
            response = await self._ask(leader, partitions)
            for topic in response.responses:
                for data in topic.partitions:
                    partition, generation = asked[topic.topic_id, data.partition_index]
                    if partition.is_followed and partition.generation == generation:
                        await self._take(partition, data, response)
        except Exception as error:  # whatever it is: what is followed is read, sooner or later
            self._failed(partitions, error)
            await self._refresh([partitions[0].topic])
        finally:
            for each in partitions:
                each.is_fetching = False
            self._arrived()

    async def _ask(self, leader: int, partitions: Sequence[TailPartition]) -> FetchResponse:
        by_topic: dict[bytes, list[FetchPartition]] = {}
        for each in partitions:
            topic = self._cluster.topic_by_id(each.topic_id)
            known = topic.partitions.get(each.index) if topic is not None else None
            by_topic.setdefault(each.topic_id, []).append(
                FetchPartition(
                    partition=each.index,
                    fetch_offset=each.position,
                    current_leader_epoch=known.leader_epoch if known is not None else -1,
                    partition_max_bytes=PARTITION_BYTES,
                )
            )
        settings = self._settings
        request = FetchRequest(
            max_wait_ms=settings.fetch_max_wait_ms,
            min_bytes=1,
            max_bytes=settings.fetch_max_bytes,
            isolation_level=1,
            topics=[
                FetchTopic(topic=partitions[0].topic, topic_id=topic_id, partitions=each)
                for topic_id, each in by_topic.items()
            ],
        )
        connection = await self._cluster.connection(leader)
        timeout_ms = settings.fetch_max_wait_ms + LATE_S * 1000
        response: FetchResponse = await connection.send(request, timeout_ms=timeout_ms)
        if response.error_code:
            raise error_for(response.error_code, about=f"broker {leader}")
        if not response.responses and response.throttle_time_ms:
            await asyncio.sleep(min(response.throttle_time_ms / 1000, LATE_S))
        return response

    async def _take(self, partition: TailPartition, data: PartitionData, response: FetchResponse) -> None:
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            partition.is_out_of_range = True
            return
        if data.error_code:
            hint = data.current_leader
            if not self._cluster.learn_leader(
                partition.topic_id,
                partition.index,
                hint.leader_id,
                hint.leader_epoch,
                response.node_endpoints,
            ):
                self._failed([partition], error_for(data.error_code, about=_about(partition)))
                await self._refresh([partition.topic])
            return
        try:
            partition.put(_parts_of(partition, data))
        except KafkaError as error:
            self._failed([partition], error)
        else:
            partition.trouble, partition.again_s = None, 0.0
            self._retries.reset()

    def failed(self, partition: TailPartition, error: Exception) -> None:
        """What was taken cannot be used: it is fetched again, after a while. `move` says from where."""
        self._failed([partition], error)
        self.look()

    def _failed(self, partitions: Iterable[TailPartition], error: Exception) -> None:
        again_s = (
            self._loop.time() + self._retries.after_failure() / 1000
        )  # the same for all: they go together
        for each in partitions:
            if each.trouble is None or str(each.trouble) != str(error):
                logger.warning("%s cannot be read now, retrying: %s", _about(each), error)
            each.trouble = error
            each.again_s = again_s


def _parts_of(partition: TailPartition, data: PartitionData) -> list[LogPart]:
    """All of it, or KafkaError. A reader for each response: it names the aborted transactions that it needs."""
    reader = BatchReader(partition.topic, partition.index, committed=True)
    batches = reader.whole_batches(memoryview(data.records or b""))
    parts = []
    for header, batch in reader.visible(batches, data.aborted_transactions or ()):
        if not is_intact(batch, 0, header):
            raise reader.corrupt(header, "fails its checksum")
        parts.append(LogPart(header.next_offset, batch))
    if batches and (not parts or parts[-1].end < batches[-1][0].next_offset):
        parts.append(LogPart(batches[-1][0].next_offset, None))
    return parts


def _about(partition: TailPartition) -> str:
    return f"partition {partition.topic}-{partition.index}"
