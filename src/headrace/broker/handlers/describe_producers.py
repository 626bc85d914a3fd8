"""DescribeProducers (61), v0: which producers a partition remembers, and where their open transactions begin.

`kafka-transactions` finds transactions that hang with it. A name that no topic can have answers
INVALID_TOPIC_EXCEPTION.
"""

from typing import TYPE_CHECKING

from headrace.broker.call import Call
from headrace.broker.pieces import CutList
from headrace.broker.topics import check_name
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages.describe_producers_request import DescribeProducersRequest
from headrace.wire.messages.describe_producers_response import (
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)

if TYPE_CHECKING:
    from headrace.broker.core import BrokerCore

VERSIONS = (0, 0)
CUTS = {0: CutList("topics", "topics", "partition_indexes", "partitions")}


def handle(core: "BrokerCore", request: DescribeProducersRequest, call: Call) -> DescribeProducersResponse:
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                name=topic.name,
                partitions=[_describe(core, topic.name, index) for index in topic.partition_indexes],
            )
            for topic in request.topics
        ]
    )


def _describe(core: "BrokerCore", topic: str, index: int) -> PartitionResponse:
    try:
        check_name(topic)
        partition = core.topics.require(topic, index)
    except KafkaError as error:
        return _refused(index, error.code, error.message)
    producers = [
        ProducerState(
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            last_sequence=producer.last_sequence,
            last_timestamp=producer.last_timestamp,
            coordinator_epoch=producer.coordinator_epoch,
            current_txn_start_offset=producer.transaction_start_offset,
        )
        for producer in partition.log.producer_states.views()
    ]
    return PartitionResponse(partition_index=index, active_producers=producers)


def _refused(index: int, code: ErrorCode, message: str | None) -> PartitionResponse:
    return PartitionResponse(partition_index=index, error_code=code, error_message=message)
