"""DeleteRecords (21), v0-v2: moves a partition's log start offset; what lies before it is gone for every reader.

-1 stands for the high watermark. Beyond it, or below -1: 1. Internal topics are refused (17), and topics whose policy
is compaction alone (44), because their readers count on the newest record of each key.
"""

from typing import TYPE_CHECKING

from headrace.broker.call import Call
from headrace.broker.later import Later
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages.delete_records_request import DeleteRecordsPartition, DeleteRecordsRequest
from headrace.wire.messages.delete_records_response import (
    DeleteRecordsPartitionResult,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

if TYPE_CHECKING:
    from headrace.broker.core import BrokerCore

VERSIONS = (0, 2)
HIGH_WATERMARK = -1
NO_LOW_WATERMARK = -1


def handle(
    core: "BrokerCore", request: DeleteRecordsRequest, call: Call
) -> DeleteRecordsResponse | Later[DeleteRecordsResponse]:
    """Readers see the new start at once; the client is told when it is safe on disk."""
    core.require_working()
    response = DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=topic.name,
                partitions=[_attempt(core, topic.name, partition) for partition in topic.partitions],
            )
            for topic in request.topics
        ]
    )
    answer: Later[DeleteRecordsResponse] = Later()

    def refuse(error: Exception) -> None:
        if isinstance(error, KafkaError):
            core.note_refused_write(error)
            for partition in [partition for topic in response.topics for partition in topic.partitions]:
                if not partition.error_code:
                    partition.low_watermark, partition.error_code = NO_LOW_WATERMARK, error.code
            answer.resolve(response)
        else:
            answer.fail(error)

    core.saved([core.logs.start_offsets]).then(lambda _: answer.resolve(response), refuse)
    return answer.value if answer.is_done else answer


def _attempt(
    core: "BrokerCore", topic_name: str, asked: DeleteRecordsPartition
) -> DeleteRecordsPartitionResult:
    try:
        low_watermark = _delete(core, topic_name, asked)
    except KafkaError as error:
        return DeleteRecordsPartitionResult(
            partition_index=asked.partition_index, low_watermark=NO_LOW_WATERMARK, error_code=error.code
        )
    return DeleteRecordsPartitionResult(partition_index=asked.partition_index, low_watermark=low_watermark)


def _delete(core: "BrokerCore", topic_name: str, asked: DeleteRecordsPartition) -> int:
    partition = core.topics.require(topic_name, asked.partition_index)
    if partition.topic.is_internal:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION)
    log = partition.log
    if log.config.cleanup_policy == {"compact"}:
        raise KafkaError(ErrorCode.POLICY_VIOLATION)
    before = log.end_offset if asked.offset == HIGH_WATERMARK else asked.offset
    if before < 0:
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
    low_watermark = log.trim(before)
    core.appended(partition)
    return low_watermark
