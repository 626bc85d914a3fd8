"""ListOffsets (2), v1-v11: the offset that belongs to a point in time.

Special times: -1 latest (the last stable offset for read_committed), -2 earliest, -3 the record with the largest
timestamp (v7+), -4 earliest local (v8+), -5 latest tiered (v9+), -6 earliest pending upload (v11). Nothing is tiered
here: -4 is the earliest offset, -5 and -6 answer "none".

A search by time reads the log in steps, and batches that are not small are opened on a worker thread. It ends when its
client has gone: batches that claim other times than their records have can make it open very many.
"""

from collections import Counter
from collections.abc import Generator
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from headrace.broker.call import Call
from headrace.broker.epochs import check_leader_epoch
from headrace.broker.later import Later
from headrace.broker.slices import WaitingSteps
from headrace.log.times import (
    AT_LEISURE_BYTES_MAX,
    AT_ONCE_BYTES_MAX,
    Found,
    Search,
    search_max_timestamp,
    search_time,
)
from headrace.wire.enums import OffsetSpec
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages.list_offsets_request import ListOffsetsPartition, ListOffsetsRequest
from headrace.wire.messages.list_offsets_response import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

if TYPE_CHECKING:
    from headrace.broker.core import BrokerCore
    from headrace.log.partition_log import PartitionLog

VERSIONS = (1, 11)
TAKES_MANY = True
LATEST, EARLIEST, MAX_TIMESTAMP = OffsetSpec.LATEST, OffsetSpec.EARLIEST, OffsetSpec.MAX_TIMESTAMP
EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -4, -5, -6
SPECIAL_SINCE = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}
NONE = (-1, -1)
READ_COMMITTED = 1
PARTITIONS_PER_STEP = 1_000
"""Partitions that are answered in one turn of the loop."""
SEARCH_COST = 50
"""A search by time reads the log: it counts for so many partitions."""

Asked = tuple[int, ListOffsetsPartition]
"""With the place of its topic in the request."""
Answering = Generator[Later[None] | None, None, ListOffsetsPartitionResponse]


def handle(
    core: "BrokerCore", request: ListOffsetsRequest, call: Call
) -> ListOffsetsResponse | Later[ListOffsetsResponse]:
    committed = request.isolation_level == READ_COMMITTED
    asked = [
        (place, partition) for place, topic in enumerate(request.topics) for partition in topic.partitions
    ]
    times = Counter((place, partition.partition_index) for place, partition in asked)
    answer: Later[ListOffsetsResponse] = Later()
    client = _Client()
    answer.on_abandon = client.leave

    def find(one: Asked) -> Answering:
        place, partition = one
        if times[place, partition.partition_index] > 1:
            return _refused(partition.partition_index, ErrorCode.INVALID_REQUEST)
        try:
            return (
                yield from _find(
                    core, client, request.topics[place].name, partition, committed, call.api_version
                )
            )
        except KafkaError as error:
            return _refused(partition.partition_index, error.code)

    def respond(found: list[ListOffsetsPartitionResponse]) -> ListOffsetsResponse:
        rest = iter(found)
        return ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(name=topic.name, partitions=[*islice(rest, len(topic.partitions))])
                for topic in request.topics
            ]
        )

    def steps() -> WaitingSteps:
        found: list[ListOffsetsPartitionResponse] = []
        spent = 0
        for one in asked:
            if client.is_gone:
                return
            spent += _cost(one)
            if spent > PARTITIONS_PER_STEP and found:
                yield None
                spent = _cost(one)
            found.append((yield from find(one)))
        answer.resolve(respond(found))

    core.slices.run(steps(), answer.fail)
    return answer.now()


class _Client:
    """Who waits for the answer."""

    def __init__(self) -> None:
        self.is_gone = False

    def leave(self) -> None:
        self.is_gone = True


def _cost(asked: Asked) -> int:
    return SEARCH_COST if asked[1].timestamp >= 0 or asked[1].timestamp == MAX_TIMESTAMP else 1


def _find(
    core: "BrokerCore",
    client: _Client,
    topic: str,
    asked: ListOffsetsPartition,
    committed: bool,
    version: int,
) -> Answering:
    log = core.topics.require(topic, asked.partition_index).log
    check_leader_epoch(log, asked.current_leader_epoch)
    if version < SPECIAL_SINCE.get(asked.timestamp, 0):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    timestamp, offset = NONE
    if asked.timestamp == LATEST:
        offset = log.stable_offset if committed else log.end_offset
    elif asked.timestamp in (EARLIEST, EARLIEST_LOCAL):
        offset = log.start_offset
    elif asked.timestamp == MAX_TIMESTAMP:
        timestamp, offset = (yield from _searched(core, client, search_max_timestamp(log))) or NONE
    elif asked.timestamp >= 0:
        search = search_time(log, asked.timestamp, committed=committed)
        timestamp, offset = (yield from _searched(core, client, search)) or NONE
    elif asked.timestamp not in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        # A special time from a newer Kafka, as far as we can tell.
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    return ListOffsetsPartitionResponse(
        partition_index=asked.partition_index,
        timestamp=timestamp,
        offset=offset,
        leader_epoch=_epoch_at(log, offset) if offset >= 0 else -1,
    )


def _searched(
    core: "BrokerCore", client: _Client, search: Search
) -> Generator[Later[None] | None, None, Found | None]:
    while not client.is_gone:
        try:
            batch = next(search)
        except StopIteration as end:
            found: Found | None = end.value
            return found
        if batch is None:
            yield None
        elif batch.is_small:
            batch.look(AT_ONCE_BYTES_MAX)
        else:
            looked = core.opened(partial(batch.look, AT_LEISURE_BYTES_MAX))
            yield looked
            assert looked.value is None  # raises what went wrong
    return None


def _epoch_at(log: "PartitionLog", offset: int) -> int:
    """The epoch in which the record at `offset` was written, or will be."""
    if offset >= log.end_offset:
        return log.leader_epoch
    return max((epoch for epoch, start in log.epochs.entries if start <= offset), default=log.leader_epoch)


def _refused(index: int, code: ErrorCode) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(partition_index=index, error_code=code)
