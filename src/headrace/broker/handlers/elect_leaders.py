"""ElectLeaders (43), v0-v2: one node leads every partition, so there is never an election to hold (84)."""

from typing import TYPE_CHECKING

from headrace.broker.call import Call
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages.elect_leaders_request import ElectLeadersRequest
from headrace.wire.messages.elect_leaders_response import (
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

if TYPE_CHECKING:
    from headrace.broker.core import BrokerCore

VERSIONS = (0, 2)
PREFERRED, UNCLEAN = 0, 1


def handle(core: "BrokerCore", request: ElectLeadersRequest, call: Call) -> ElectLeadersResponse:
    if request.election_type not in (PREFERRED, UNCLEAN):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown election type {request.election_type}")
    if request.topic_partitions is None:
        # Kafka names all topics here, and of their partitions only those that had an election.
        return ElectLeadersResponse(
            replica_election_results=[ReplicaElectionResult(topic=topic.name) for topic in core.topics]
        )
    return ElectLeadersResponse(
        replica_election_results=[
            ReplicaElectionResult(
                topic=asked.topic,
                partition_result=[_result(core, asked.topic, index) for index in asked.partitions],
            )
            for asked in request.topic_partitions
        ]
    )


def _result(core: "BrokerCore", name: str, index: int) -> PartitionResult:
    topic = core.topics.get(name)
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if topic is None:
        text = f"No such topic as {name}"
    elif not 0 <= index < len(topic.partitions):
        text = f"No such partition as {name}-{index}"
    else:
        code = ErrorCode.ELECTION_NOT_NEEDED
        text = "Leader election not needed for topic partition."
    return PartitionResult(partition_id=index, error_code=code, error_message=text)


def error_response(
    request: ElectLeadersRequest, code: ErrorCode, message: str | None, call: Call
) -> ElectLeadersResponse:
    return ElectLeadersResponse(
        error_code=code,
        replica_election_results=[
            ReplicaElectionResult(
                topic=asked.topic,
                partition_result=[
                    PartitionResult(partition_id=index, error_code=code, error_message=message)
                    for index in asked.partitions
                ],
            )
            for asked in request.topic_partitions or ()
        ],
    )
