"""DescribeQuorum (55), v0-v2: who votes on cluster metadata. This node alone, with nobody to wait for.

The metadata store counts its changes; that count stands where Kafka has the offset of its metadata log.
"""

from typing import TYPE_CHECKING

from headrace.broker.call import Call
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.describe_quorum_request import DescribeQuorumRequest
from headrace.wire.messages.describe_quorum_response import (
    DescribeQuorumResponse,
    Listener,
    Node,
    PartitionData,
    ReplicaState,
    TopicData,
)

if TYPE_CHECKING:
    from headrace.broker.core import BrokerCore

VERSIONS = (0, 2)
METADATA_LOG = "__cluster_metadata"
LEADER_EPOCH = 1


def handle(core: "BrokerCore", request: DescribeQuorumRequest, call: Call) -> DescribeQuorumResponse:
    topics = [
        TopicData(
            topic_name=topic.topic_name,
            partitions=[
                _describe(core, partition.partition_index)
                if topic.topic_name == METADATA_LOG and partition.partition_index == 0
                else PartitionData(
                    partition_index=partition.partition_index,
                    error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    error_message=None,
                )
                for partition in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    host, port = core.address_of(call.listener)
    listener = Listener(name=call.listener, host=host, port=port)
    return DescribeQuorumResponse(
        error_message=None, topics=topics, nodes=[Node(node_id=core.node_id, listeners=[listener])]
    )


def _describe(core: "BrokerCore", index: int) -> PartitionData:
    now_ms = core.clock.wall_ms()
    changes = core.metadata.changes
    return PartitionData(
        partition_index=index,
        error_message=None,
        leader_id=core.node_id,
        leader_epoch=LEADER_EPOCH,
        high_watermark=changes,
        current_voters=[
            ReplicaState(
                replica_id=core.node_id,
                log_end_offset=changes,
                last_fetch_timestamp=now_ms,
                last_caught_up_timestamp=now_ms,
            )
        ],
    )
