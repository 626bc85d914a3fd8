"""InitializeShareGroupState (83), v0: share-partitions begin anew at an offset, or at one decided later (-1).

What was kept of them before is gone. A state epoch lower than the stored one is fenced. Answered when it is durable.
"""

from typing import TYPE_CHECKING

from headrace.broker.call import Call
from headrace.broker.later import Later
from headrace.broker.share.state_requests import answer_each
from headrace.wire.errors import KafkaError
from headrace.wire.messages.initialize_share_group_state_request import (
    InitializeShareGroupStateRequest,
    PartitionData,
)
from headrace.wire.messages.initialize_share_group_state_response import (
    InitializeShareGroupStateResponse,
    InitializeStateResult,
    PartitionResult,
)
from headrace.wire.share_state import ShareKey

if TYPE_CHECKING:
    from headrace.broker.core import BrokerCore

VERSIONS = (0, 0)


def handle(
    core: "BrokerCore", request: InitializeShareGroupStateRequest, call: Call
) -> Later[InitializeShareGroupStateResponse]:
    def initialize(key: ShareKey, asked: PartitionData) -> Later[PartitionResult]:
        durable = core.share_state.initialize(
            key, state_epoch=asked.state_epoch, start_offset=asked.start_offset
        )
        return durable.map(lambda _: PartitionResult(partition=asked.partition))

    answers = answer_each(request.group_id, request.topics, initialize, _refused)
    return answers.map(
        lambda topics: InitializeShareGroupStateResponse(
            results=[
                InitializeStateResult(topic_id=topic_id, partitions=results) for topic_id, results in topics
            ]
        )
    )


def _refused(partition: int, error: KafkaError) -> PartitionResult:
    return PartitionResult(partition=partition, error_code=error.code, error_message=error.text)
