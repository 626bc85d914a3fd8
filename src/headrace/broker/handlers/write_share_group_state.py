"""WriteShareGroupState (85), v0-v1: what a leader has settled of share-partitions.

v1 also counts the records that are complete (KIP-1226). Epochs lower than the stored ones are fenced.
Answered when it is durable.
"""

from typing import TYPE_CHECKING

from headrace.broker.call import Call
from headrace.broker.later import Later
from headrace.broker.share.state_requests import answer_each
from headrace.share.changes import StateBatch
from headrace.share.states import RecordState
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages.write_share_group_state_request import PartitionData, WriteShareGroupStateRequest
from headrace.wire.messages.write_share_group_state_request import StateBatch as WrittenBatch
from headrace.wire.messages.write_share_group_state_response import (
    PartitionResult,
    WriteShareGroupStateResponse,
    WriteStateResult,
)
from headrace.wire.share_state import ShareKey

if TYPE_CHECKING:
    from headrace.broker.core import BrokerCore

VERSIONS = (0, 1)
WRITTEN_STATES = frozenset(RecordState) - {RecordState.ACQUIRED}


def handle(
    core: "BrokerCore", request: WriteShareGroupStateRequest, call: Call
) -> Later[WriteShareGroupStateResponse]:
    def write(key: ShareKey, asked: PartitionData) -> Later[PartitionResult]:
        durable = core.share_state.write(
            key,
            state_epoch=asked.state_epoch,
            leader_epoch=asked.leader_epoch,
            start_offset=asked.start_offset,
            complete_count=asked.delivery_complete_count,
            batches=[_batch(batch) for batch in asked.state_batches],
            may_be_late=True,
        )
        return durable.map(lambda _: PartitionResult(partition=asked.partition))

    answers = answer_each(request.group_id, request.topics, write, _refused)
    return answers.map(
        lambda topics: WriteShareGroupStateResponse(
            results=[WriteStateResult(topic_id=topic_id, partitions=results) for topic_id, results in topics]
        )
    )


def _batch(batch: WrittenBatch) -> StateBatch:
    """Kafka takes any number for a state; one that nobody could read back must not get in."""
    if batch.delivery_state not in WRITTEN_STATES or batch.first_offset > batch.last_offset:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{batch} is not a valid record state.")
    state = RecordState(batch.delivery_state)
    return StateBatch(batch.first_offset, batch.last_offset, state, batch.delivery_count)


def _refused(partition: int, error: KafkaError) -> PartitionResult:
    return PartitionResult(partition=partition, error_code=error.code, error_message=error.text)
