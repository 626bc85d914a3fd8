"""ReadShareGroupState (84), v0: what is kept of share-partitions, for a leader that begins to serve them.

A leader epoch higher than the stored one is noted and fences the leader before; -1 reads without being a leader.
"""

from typing import TYPE_CHECKING

from headrace.broker.call import Call
from headrace.broker.later import Later, resolved
from headrace.broker.share.state_requests import answer_each
from headrace.wire.errors import KafkaError
from headrace.wire.messages.read_share_group_state_request import PartitionData, ReadShareGroupStateRequest
from headrace.wire.messages.read_share_group_state_response import (
    PartitionResult,
    ReadShareGroupStateResponse,
    ReadStateResult,
    StateBatch,
)
from headrace.wire.share_state import ShareKey

if TYPE_CHECKING:
    from headrace.broker.core import BrokerCore

VERSIONS = (0, 0)


def handle(
    core: "BrokerCore", request: ReadShareGroupStateRequest, call: Call
) -> Later[ReadShareGroupStateResponse]:
    def read(key: ShareKey, asked: PartitionData) -> Later[PartitionResult]:
        state = core.share_state.read(key, asked.leader_epoch)
        return resolved(
            PartitionResult(
                partition=asked.partition,
                state_epoch=state.state_epoch,
                start_offset=state.start_offset,
                state_batches=[
                    StateBatch(
                        first_offset=first, last_offset=last, delivery_state=kept, delivery_count=count
                    )
                    for first, last, kept, count in state.merged()
                ],
            )
        )

    answers = answer_each(request.group_id, request.topics, read, _refused)
    return answers.map(
        lambda topics: ReadShareGroupStateResponse(
            results=[ReadStateResult(topic_id=topic_id, partitions=results) for topic_id, results in topics]
        )
    )


def _refused(partition: int, error: KafkaError) -> PartitionResult:
    return PartitionResult(partition=partition, error_code=error.code, error_message=error.text)
