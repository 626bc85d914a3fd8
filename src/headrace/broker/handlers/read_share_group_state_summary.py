"""ReadShareGroupStateSummary (87), v0-v1: start offsets and epochs of share-partitions.

v1 also has how many records above the start are complete (KIP-1226). A share-partition that is
not known is no error: its start offset is -1.
"""

from typing import TYPE_CHECKING

from headrace.broker.call import Call
from headrace.broker.later import Later, resolved
from headrace.broker.share.state_requests import answer_each
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages.read_share_group_state_summary_request import (
    PartitionData,
    ReadShareGroupStateSummaryRequest,
)
from headrace.wire.messages.read_share_group_state_summary_response import (
    PartitionResult,
    ReadShareGroupStateSummaryResponse,
    ReadStateSummaryResult,
)
from headrace.wire.share_state import ShareKey

if TYPE_CHECKING:
    from headrace.broker.core import BrokerCore

VERSIONS = (0, 1)


def handle(
    core: "BrokerCore", request: ReadShareGroupStateSummaryRequest, call: Call
) -> Later[ReadShareGroupStateSummaryResponse]:
    def summarize(key: ShareKey, asked: PartitionData) -> Later[PartitionResult]:
        topic = core.topics.by_id(key.topic_id)
        if topic is None or key.partition >= len(topic.partitions):
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        state = core.share_state.get(key)
        if state is None:
            return resolved(PartitionResult(partition=asked.partition, start_offset=-1))
        return resolved(
            PartitionResult(
                partition=asked.partition,
                state_epoch=state.state_epoch,
                leader_epoch=state.leader_epoch,
                start_offset=state.start_offset,
                delivery_complete_count=state.complete_count,
            )
        )

    answers = answer_each(request.group_id, request.topics, summarize, _refused)
    return answers.map(
        lambda topics: ReadShareGroupStateSummaryResponse(
            results=[
                ReadStateSummaryResult(topic_id=topic_id, partitions=results) for topic_id, results in topics
            ]
        )
    )


def _refused(partition: int, error: KafkaError) -> PartitionResult:
    return PartitionResult(partition=partition, error_code=error.code, error_message=error.text)
