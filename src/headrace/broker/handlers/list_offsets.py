"""ListOffsets (2), v1-v11: the offset that belongs to a point in time.

Special times: -1 latest (the last stable offset for read_committed), -2 earliest, -3 the record with the largest
timestamp (v7+), -4 earliest local (v8+), -5 latest tiered (v9+), -6 earliest pending upload (v11). Nothing is tiered
here: -4 is the earliest offset, -5 and -6 answer "none".
"""

from collections import Counter
from itertools import islice
from typing import TYPE_CHECKING

from headrace.broker.call import Call
from headrace.broker.epochs import check_leader_epoch
from headrace.broker.later import Later
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
LATEST, EARLIEST, MAX_TIMESTAMP = OffsetSpec.LATEST, OffsetSpec.EARLIEST, OffsetSpec.MAX_TIMESTAMP
EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -4, -5, -6
SPECIAL_SINCE = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}
NONE = (-1, -1)
READ_COMMITTED = 1
PARTITIONS_PER_STEP = 1_000
"""Partitions that are answered in one turn of the loop."""
SEARCH_COST = 10
"""A search by time reads the log: it counts for so many partitions."""


def handle(
    core: "BrokerCore", request: ListOffsetsRequest, call: Call
) -> ListOffsetsResponse | Later[ListOffsetsResponse]:
    committed = request.isolation_level == READ_COMMITTED
    asked = [
        (place, partition) for place, topic in enumerate(request.topics) for partition in topic.partitions
    ]
    times = Counter((place, partition.partition_index) for place, partition in asked)

    def find(one: tuple[int, ListOffsetsPartition]) -> ListOffsetsPartitionResponse:
        place, partition = one
        if times[place, partition.partition_index] > 1:
            return _refused(partition.partition_index, ErrorCode.INVALID_REQUEST)
        try:
            return _find(core, request.topics[place].name, partition, committed, call.api_version)
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

    return core.slices.each(asked, find, per_step=PARTITIONS_PER_STEP, cost=_cost).map(respond).now()


def _cost(asked: tuple[int, ListOffsetsPartition]) -> int:
    return SEARCH_COST if asked[1].timestamp >= 0 or asked[1].timestamp == MAX_TIMESTAMP else 1


def _find(
    core: "BrokerCore", topic: str, asked: ListOffsetsPartition, committed: bool, version: int
) -> ListOffsetsPartitionResponse:
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
        timestamp, offset = log.max_timestamp() or NONE
    elif asked.timestamp >= 0:
        timestamp, offset = log.offset_for_time(asked.timestamp, committed=committed) or NONE
    elif asked.timestamp not in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        # A special time from a newer Kafka, as far as we can tell.
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    return ListOffsetsPartitionResponse(
        partition_index=asked.partition_index,
        timestamp=timestamp,
        offset=offset,
        leader_epoch=_epoch_at(log, offset) if offset >= 0 else -1,
    )


def _epoch_at(log: "PartitionLog", offset: int) -> int:
    """The epoch in which the record at `offset` was written, or will be."""
    if offset >= log.end_offset:
        return log.leader_epoch
    return max((epoch for epoch, start in log.epochs.entries if start <= offset), default=log.leader_epoch)


def _refused(index: int, code: ErrorCode) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(partition_index=index, error_code=code)
