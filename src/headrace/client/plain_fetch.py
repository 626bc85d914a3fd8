"""Reads a range of offsets of one partition by plain Fetch, outside any group. Spark's executors live on it.

    async for header, batch in read_range(cluster, "orders", 0, first=100, last=199): ...

Batches come whole and in order, as they are stored: the first and the last may reach beyond the range, and it is for
the reader to leave out the offsets it did not ask for. The next fetch is under way while the batches of the last one
are worked on, so about twice `max_bytes` may be in memory.

A range is read to its end or there is an error: never does it end early in silence. A leader that was just elected
may for a moment not give out the newest records (its high watermark lags), so a log that seems to end before the range
does is asked again. And so is one that gives nothing although it reaches further: compaction, aborted transactions
and control records leave batches to step over, on Kafka and on our broker, so no log is empty below its high watermark.
Kafka answers so all the same when a record lies in tiered storage and did not come within remote.fetch.max.wait.ms.
Tries without progress are spaced by retry.backoff.ms and end after default.api.timeout.ms.

Who gives the topic's id knows that the records were there. Then that the cluster does not have them is believed only
when it has said so, and nothing else, for the whole time: a broker that has just started may not know its topics yet.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterable, Mapping

from headrace.client.cluster import Cluster, PartitionMetadata, TopicMetadata, retry_backoff
from headrace.client.errors import OffsetOutOfRangeError, error_for, is_retriable
from headrace.wire.batches import HEADER_SIZE, LENGTH_MIN, MAGIC, BatchHeader, is_intact, read_header
from headrace.wire.enums import OffsetSpec
from headrace.wire.error_groups import UNKNOWN_TOPIC
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.ids import uuid_text
from headrace.wire.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from headrace.wire.messages.fetch_response import AbortedTransaction, FetchResponse, PartitionData
from headrace.wire.messages.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from headrace.wire.messages.list_offsets_response import ListOffsetsResponse
from headrace.wire.records import read_marker

MAX_BYTES = 4 * 1024 * 1024
OFFSET_MAX = 2**63 - 1
LATE_BYTES_MIN = 64 * 1024
WAIT_MS = 500
UNKNOWN_TRIES = 3
"""A topic made just now may be unknown to a broker for a moment; one that stays unknown is not there."""
_GONE = UNKNOWN_TOPIC | {ErrorCode.OFFSET_NOT_AVAILABLE}
_CONSUMER = -1
"""Where replicas give their node id, clients give this."""


async def read_range(
    cluster: Cluster,
    topic: str,
    partition: int,
    first: int,
    last: int,
    *,
    committed: bool = False,
    max_bytes: int = MAX_BYTES,
    check_crcs: bool = True,
    timeout_ms: int | None = None,
    topic_id: str | None = None,
) -> AsyncGenerator[tuple[BatchHeader, memoryview], None]:
    """The batches with offsets from `first` to `last`, without control batches; offsets compacted away are not there.

    `committed` leaves out aborted transactions, and waits for open ones. OffsetOutOfRangeError (with
    `log_start_offset`) when retention has taken `first` away, OffsetNotAvailableError when the log does not reach
    `last` within `timeout_ms` (default.api.timeout.ms), RequestTimeoutError when it does and gives nothing for as
    long, CorruptRecordError when a checksum does not fit. With `topic_id` (as Kafka shows it) only that topic is meant:
    UnknownTopicIdError when it was deleted and made again, UnknownTopicOrPartitionError when it stays unknown for as
    long.
    """
    reader = _RangeReader(
        cluster,
        topic,
        partition,
        last,
        committed=committed,
        max_bytes=max_bytes,
        timeout_ms=timeout_ms,
        topic_id=topic_id,
    )
    upcoming = asyncio.create_task(reader.fetch(first))
    try:
        while True:
            data = await upcoming
            batches = reader.whole_batches(memoryview(data.records or b""))
            following = batches[-1][0].next_offset
            is_last = following > last
            if not is_last:
                upcoming = asyncio.create_task(reader.fetch(following))
            for header, batch in reader.visible(batches, data.aborted_transactions or ()):
                if header.last_offset < first or header.base_offset > last:
                    continue
                if check_crcs and not is_intact(batch, 0, header):
                    raise reader.corrupt(header, "fails its checksum")
                yield header, batch
            if is_last:
                return
            first = following
    finally:
        upcoming.cancel()
        await asyncio.gather(upcoming, return_exceptions=True)


async def follow(
    cluster: Cluster, topic: str, partition: int, first: int, *, max_bytes: int = MAX_BYTES
) -> AsyncGenerator[tuple[BatchHeader, memoryview], None]:
    """The batches from `first` on, as they come and without an end; the first one may begin before `first`.

    OffsetOutOfRangeError (with `log_start_offset`) when `first` is not in the log; any other error when it has not
    passed within default.api.timeout.ms.
    """
    reader = _RangeReader(
        cluster, topic, partition, OFFSET_MAX,
        committed=False, max_bytes=max_bytes, timeout_ms=None, topic_id=None,
    )  # fmt: skip
    budget = RetryBudget(cluster)
    while True:
        try:
            data = await reader.look(first, budget.time_s)
        except KafkaError as error:
            await budget.after(error, [topic])
            continue
        budget = RetryBudget(cluster)
        if data is None:
            continue
        batches = reader.whole_batches(memoryview(data.records or b""))
        for header, batch in reader.visible(batches, ()):
            if not is_intact(batch, 0, header):
                raise reader.corrupt(header, "fails its checksum")
            if header.last_offset >= first:
                yield header, batch
        if batches:
            first = batches[-1][0].next_offset


async def list_offsets(
    cluster: Cluster, wanted: Mapping[tuple[str, int], int], *, committed: bool = False
) -> dict[tuple[str, int], int]:
    """The offset at EARLIEST, LATEST or a timestamp (ms) of each (topic, partition); -1 where there is none.

    One request per leader, all at the same time. With `committed`, LATEST is the end of what is committed.
    """
    budget = RetryBudget(cluster)
    found: dict[tuple[str, int], int] = {}
    missing = dict(wanted)
    while missing:
        error: KafkaError | None = None
        try:
            await _find_leaders(cluster, missing)
        except KafkaError as trouble:
            error = trouble
        for place, offset in (await list_offsets_once(cluster, missing, committed=committed)).items():
            if isinstance(offset, KafkaError):
                error = offset
            else:
                found[place] = offset
                del missing[place]
        if error is not None and missing:
            await budget.after(error, {topic for topic, _ in missing})
    return found


async def list_offsets_once(
    cluster: Cluster, wanted: Mapping[tuple[str, int], int], *, committed: bool = False
) -> dict[tuple[str, int], int | KafkaError]:
    """The same by the leaders that are known, in one try: what cannot be had now comes as its error."""
    by_leader: dict[int, dict[tuple[str, int], int]] = {}
    answers: dict[tuple[str, int], int | KafkaError] = {}
    for place, spec in wanted.items():
        try:
            leader = _known(cluster, *place)[1].leader_id
        except KafkaError as error:
            answers[place] = error
        else:
            by_leader.setdefault(leader, {})[place] = spec
    asked = [_ask_offsets(cluster, leader, places, committed) for leader, places in by_leader.items()]
    for answer in await asyncio.gather(*asked):
        answers |= answer
    for topic, index in wanted.keys() - answers.keys():
        about = f"partition {topic}-{index}"
        answers[topic, index] = error_for(ErrorCode.NETWORK_EXCEPTION, "the response lacks it", about=about)
    return answers


class RetryBudget:
    """How long a read goes on without getting anywhere. `is_sure`: what it asks for was there once."""

    def __init__(self, cluster: Cluster, timeout_ms: int | None = None, *, is_sure: bool = False) -> None:
        self._cluster = cluster
        self._retry = retry_backoff(cluster.settings)
        self._is_sure = is_sure
        if timeout_ms is None:
            timeout_ms = cluster.settings.default_api_timeout_ms
        self.time_s = timeout_ms / 1000
        self._began = self._now()
        self._gone_since: float | None = None

    async def after(self, error: KafkaError, topics: Iterable[str], *, tries_max: int | None = None) -> None:
        """Waits and looks the leaders up anew, or raises the error: it does not pass, or has not passed in time."""
        tries, wait_s = self._retry.failures, self._retry.after_failure() / 1000
        if tries_max is None and error.code in UNKNOWN_TOPIC and not self._is_sure:
            tries_max = UNKNOWN_TRIES
        is_hopeless = not is_retriable(error.code) or (tries_max is not None and tries >= tries_max)
        if is_hopeless or self._now() + wait_s > self._since(error) + self.time_s:
            raise error
        await asyncio.sleep(wait_s)
        try:
            await self._cluster.refresh(topics)
        except KafkaError as trouble:
            if not is_retriable(trouble.code):
                raise

    def _since(self, error: KafkaError) -> float:
        """From when on the time counts. It is at most twice as long in all."""
        if error.code not in _GONE:
            self._gone_since = None
        elif self._gone_since is None:
            self._gone_since = self._now()
        return self._gone_since if self._is_sure and self._gone_since is not None else self._began

    def _now(self) -> float:
        return asyncio.get_running_loop().time()


class BatchReader:
    """Cuts the answers of fetches of one partition into batches, and knows the transactions that were aborted."""

    def __init__(self, topic: str, partition: int, *, committed: bool) -> None:
        self._about = f"partition {topic}-{partition}"
        self._committed = committed
        self._aborted: set[int] = set()

    def visible(
        self, batches: list[tuple[BatchHeader, memoryview]], aborted: Iterable[AbortedTransaction]
    ) -> list[tuple[BatchHeader, memoryview]]:
        """Without control batches and, where only committed records are wanted, without aborted ones."""
        starts = sorted((each.first_offset, each.producer_id) for each in aborted)
        position = 0
        kept = []
        for header, batch in batches:
            while position < len(starts) and starts[position][0] <= header.last_offset:
                self._aborted.add(starts[position][1])
                position += 1
            if header.is_control:
                marker = read_marker(batch)
                if marker is not None and not marker.is_commit:
                    self._aborted.discard(header.producer_id)
            elif not (self._committed and header.is_transactional and header.producer_id in self._aborted):
                kept.append((header, batch))
        return kept

    def whole_batches(self, records: memoryview) -> list[tuple[BatchHeader, memoryview]]:
        """The batches of an answer; the last one may be cut off where the answer's limit was reached."""
        batches: list[tuple[BatchHeader, memoryview]] = []
        position, end = 0, len(records)
        while end - position >= HEADER_SIZE:
            header = read_header(records, position)
            if header.magic != MAGIC or header.length < LENGTH_MIN:
                raise self.corrupt(header, "is not a v2 record batch")
            if position + header.size > end:
                break
            batches.append((header, records[position : position + header.size]))
            position += header.size
        if not batches and end:
            raise error_for(
                ErrorCode.CORRUPT_MESSAGE, "the response has no complete record batch", about=self._about
            )
        return batches

    def corrupt(self, header: BatchHeader, what: str) -> KafkaError:
        offsets = f"the batch of offsets {header.base_offset} to {header.last_offset}"
        return error_for(ErrorCode.CORRUPT_MESSAGE, f"{offsets} {what}", about=self._about)


class _RangeReader(BatchReader):
    """Fetches from one partition, wherever its leader is."""

    def __init__(
        self,
        cluster: Cluster,
        topic: str,
        partition: int,
        last: int,
        *,
        committed: bool,
        max_bytes: int,
        timeout_ms: int | None,
        topic_id: str | None,
    ) -> None:
        super().__init__(topic, partition, committed=committed)
        self._cluster = cluster
        self._topic = topic
        self._topic_id = topic_id
        self._partition = partition
        self._last = last
        self._timeout_ms = timeout_ms
        self._max_bytes = max_bytes

    async def fetch(self, offset: int) -> PartitionData:
        """What the log has from `offset` on: a batch at least."""
        budget = RetryBudget(self._cluster, self._timeout_ms, is_sure=self._topic_id is not None)
        while True:
            tries_max = None
            try:
                topic, partition = await _find(self._cluster, self._topic, self._partition)
                if self._topic_id not in (None, uuid_text(topic.topic_id)):
                    tries_max = UNKNOWN_TRIES  # in case that these metadata are older than the id
                    text = f"topic {self._topic} was deleted and created again"
                    raise error_for(ErrorCode.UNKNOWN_TOPIC_ID, text, about=self._about)
                data = await self._ask(topic, partition, offset, budget.time_s)
                if data is None:
                    continue  # the answer named a new leader
                if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                    end = await self._require_start(offset)
                else:
                    end = data.last_stable_offset if self._committed else data.high_watermark
            except KafkaError as error:
                await budget.after(error, [self._topic], tries_max=tries_max)
                continue
            if not data.error_code and data.records:
                return data
            code = ErrorCode.OFFSET_NOT_AVAILABLE
            text = f"offsets {offset} to {self._last} are wanted, and the log can be read up to {end - 1}"
            if not data.error_code and end > offset:
                code = ErrorCode.REQUEST_TIMED_OUT
                text += ", but nothing came: is its tiered storage slower than remote.fetch.max.wait.ms?"
                # Kafka breaks off what is late and begins anew when asked again: with less to read it may be in time.
                self._max_bytes = max(min(self._max_bytes, LATE_BYTES_MIN), self._max_bytes // 2)
            await budget.after(error_for(code, text, about=self._about), [self._topic])

    async def look(self, offset: int, throttle_s_max: float) -> PartitionData | None:
        """One fetch, which waits a moment for records to come. None: it is to be asked again."""
        topic, partition = await _find(self._cluster, self._topic, self._partition)
        data = await self._ask(topic, partition, offset, throttle_s_max)
        if data is not None and data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            await self._require_start(offset)
        return data

    async def _ask(
        self, topic: TopicMetadata, partition: PartitionMetadata, offset: int, throttle_s_max: float
    ) -> PartitionData | None:
        asked = FetchPartition(
            partition=self._partition,
            fetch_offset=offset,
            current_leader_epoch=partition.leader_epoch,
            partition_max_bytes=self._max_bytes,
        )
        request = FetchRequest(
            max_wait_ms=WAIT_MS,
            min_bytes=1,
            max_bytes=self._max_bytes,
            isolation_level=int(self._committed),
            topics=[FetchTopic(topic=topic.name, topic_id=topic.topic_id, partitions=[asked])],
        )
        response: FetchResponse = await self._cluster.send(partition.leader_id, request)
        if response.error_code:
            raise error_for(response.error_code, about=self._about)
        if not response.responses:  # Kafka's way to hold back a client that is over its quota
            await asyncio.sleep(min(response.throttle_time_ms / 1000, throttle_s_max))
            text = (
                f"the broker holds this client back for {response.throttle_time_ms} ms: it is over its quota"
            )
            raise error_for(ErrorCode.THROTTLING_QUOTA_EXCEEDED, text, about=self._about)
        data = response.responses[0].partitions[0]
        if not data.error_code or data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            return data
        hint = data.current_leader
        if self._cluster.learn_leader(
            topic.topic_id, self._partition, hint.leader_id, hint.leader_epoch, response.node_endpoints
        ):
            return None
        raise error_for(data.error_code, about=self._about)

    async def _require_start(self, offset: int) -> int:
        """Where the log ends, seen that `offset` is not in it; OffsetOutOfRangeError if it starts after `offset`."""
        place = self._topic, self._partition
        start = (await list_offsets(self._cluster, {place: OffsetSpec.EARLIEST}))[place]
        if self._topic_id is not None and start <= offset:
            return (await list_offsets(self._cluster, {place: OffsetSpec.LATEST}))[place]
        text = f"offset {offset} is not in the log, which starts at {start}"
        error = error_for(ErrorCode.OFFSET_OUT_OF_RANGE, text, about=self._about)
        assert isinstance(error, OffsetOutOfRangeError)
        error.log_start_offset = start
        raise error


async def _find(cluster: Cluster, name: str, index: int) -> tuple[TopicMetadata, PartitionMetadata]:
    """The topic and the partition with its leader, from the last metadata or new one."""
    await _find_leaders(cluster, [(name, index)])
    return _known(cluster, name, index)


async def _find_leaders(cluster: Cluster, places: Iterable[tuple[str, int]]) -> None:
    """Asks once for new metadata if a leader is not known."""
    missing = {name for name, index in places if _leader(cluster, name, index) is None}
    if missing:
        await cluster.refresh(missing)


def _leader(cluster: Cluster, name: str, index: int) -> int | None:
    topic = cluster.topic(name)
    partition = topic.partitions.get(index) if topic is not None else None
    return partition.leader_id if partition is not None and partition.leader_id in cluster.nodes else None


def _known(cluster: Cluster, name: str, index: int) -> tuple[TopicMetadata, PartitionMetadata]:
    topic = cluster.topic(name)
    partition = topic.partitions.get(index) if topic is not None else None
    about = f"partition {name}-{index}"
    if topic is None or partition is None:
        code = cluster.topic_errors.get(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        raise error_for(code, about=about)
    if partition.leader_id not in cluster.nodes:
        raise error_for(ErrorCode.LEADER_NOT_AVAILABLE, about=about)
    return topic, partition


async def _ask_offsets(
    cluster: Cluster, leader: int, places: Mapping[tuple[str, int], int], committed: bool
) -> dict[tuple[str, int], int | KafkaError]:
    by_topic: dict[str, list[ListOffsetsPartition]] = {}
    for (topic, partition), timestamp in places.items():
        by_topic.setdefault(topic, []).append(
            ListOffsetsPartition(partition_index=partition, timestamp=timestamp)
        )
    request = ListOffsetsRequest(
        replica_id=_CONSUMER,
        isolation_level=int(committed),
        topics=[ListOffsetsTopic(name=name, partitions=asked) for name, asked in by_topic.items()],
        timeout_ms=cluster.settings.request_timeout_ms,
    )
    try:
        response: ListOffsetsResponse = await cluster.send(leader, request)
    except KafkaError as error:
        return dict.fromkeys(places, error)
    answer: dict[tuple[str, int], int | KafkaError] = {}
    for answered in response.topics:
        for each in answered.partitions:
            about = f"partition {answered.name}-{each.partition_index}"
            answer[answered.name, each.partition_index] = (
                error_for(each.error_code, about=about) if each.error_code else each.offset
            )
    return answer
