"""DeleteShareGroupState (86), v0: forgets share-partitions; those that are not known are fine too.

Answered when it is durable.
"""

from typing import TYPE_CHECKING

from headrace.broker.call import Call
from headrace.broker.later import Later, resolved
from headrace.broker.share.state_requests import answer_each
from headrace.wire.errors import KafkaError
from headrace.wire.messages.delete_share_group_state_request import (
    DeleteShareGroupStateRequest,
    PartitionData,
)
from headrace.wire.messages.delete_share_group_state_response import (
    DeleteShareGroupStateResponse,
    DeleteStateResult,
    PartitionResult,
)
from headrace.wire.share_state import ShareKey

if TYPE_CHECKING:
    from headrace.broker.core import BrokerCore

VERSIONS = (0, 0)


def handle(
    core: "BrokerCore", request: DeleteShareGroupStateRequest, call: Call
) -> Later[DeleteShareGroupStateResponse]:
    def delete(key: ShareKey, asked: PartitionData) -> Later[PartitionResult]:
        durable = core.share_state.delete(key)
        done = PartitionResult(partition=asked.partition)
        return durable.map(lambda _: done) if durable is not None else resolved(done)

    answers = answer_each(request.group_id, request.topics, delete, _refused)
    return answers.map(
        lambda topics: DeleteShareGroupStateResponse(
            results=[DeleteStateResult(topic_id=topic_id, partitions=results) for topic_id, results in topics]
        )
    )


def _refused(partition: int, error: KafkaError) -> PartitionResult:
    return PartitionResult(partition=partition, error_code=error.code, error_message=error.text)
