"""OffsetForLeaderEpoch (23), v2-v4: where an epoch ended, so that a consumer notices that records were lost."""

from typing import TYPE_CHECKING

from headrace.broker.call import Call
from headrace.broker.epochs import check_leader_epoch
from headrace.broker.pieces import CutList
from headrace.wire.errors import KafkaError
from headrace.wire.messages.offset_for_leader_epoch_request import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
)
from headrace.wire.messages.offset_for_leader_epoch_response import (
    EpochEndOffset,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)

if TYPE_CHECKING:
    from headrace.broker.core import BrokerCore

VERSIONS = (2, 4)
CUTS = {0: CutList("topics", "topics", "partitions", "partitions")}


def handle(
    core: "BrokerCore", request: OffsetForLeaderEpochRequest, call: Call
) -> OffsetForLeaderEpochResponse:
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[_find(core, topic.topic, partition) for partition in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _find(core: "BrokerCore", topic: str, asked: OffsetForLeaderPartition) -> EpochEndOffset:
    try:
        log = core.topics.require(topic, asked.partition).log
        check_leader_epoch(log, asked.current_leader_epoch)
    except KafkaError as error:
        return EpochEndOffset(partition=asked.partition, error_code=error.code)
    epoch, end_offset = log.end_offset_for_epoch(asked.leader_epoch)
    return EpochEndOffset(partition=asked.partition, leader_epoch=epoch, end_offset=end_offset)
