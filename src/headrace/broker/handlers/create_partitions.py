"""CreatePartitions (37), v0-v3: raises a topic's number of partitions to `count`. It can never fall.

As in Kafka one request makes at most 10,000 partitions: all of it is refused if it asks for more.
"""

from collections import Counter
from typing import TYPE_CHECKING

from headrace.broker.call import Call
from headrace.broker.placement import check_assignment
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages.create_partitions_request import CreatePartitionsRequest, CreatePartitionsTopic
from headrace.wire.messages.create_partitions_response import (
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)

if TYPE_CHECKING:
    from headrace.broker.core import BrokerCore

VERSIONS = (0, 3)
PARTITIONS_MAX = 10_000
"""In one request."""


def handle(core: "BrokerCore", request: CreatePartitionsRequest, call: Call) -> CreatePartitionsResponse:
    _refuse_excess(core, request)
    times = Counter(topic.name for topic in request.topics)
    results = {
        topic.name: _attempt(core, topic, times[topic.name] > 1, is_dry_run=request.validate_only)
        for topic in request.topics
    }
    return CreatePartitionsResponse(results=list(results.values()))


def _refuse_excess(core: "BrokerCore", request: CreatePartitionsRequest) -> None:
    total = 0
    for asked in request.topics:
        topic = core.topics.get(asked.name)
        total += max(0, asked.count - len(topic.partitions)) if topic is not None else 0
    if total > PARTITIONS_MAX:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"{total} new partitions in one request, where {PARTITIONS_MAX} are allowed; send several requests.",
        )


def _attempt(
    core: "BrokerCore", topic: CreatePartitionsTopic, is_duplicate: bool, *, is_dry_run: bool
) -> CreatePartitionsTopicResult:
    try:
        if is_duplicate:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
        _check(core, topic)
        if not is_dry_run:
            core.topics.add_partitions(topic.name, topic.count)
    except KafkaError as error:
        return CreatePartitionsTopicResult(
            name=topic.name, error_code=error.code, error_message=error.message
        )
    return CreatePartitionsTopicResult(name=topic.name)


def _check(core: "BrokerCore", topic: CreatePartitionsTopic) -> None:
    core.topics.check_growth(topic.name, topic.count)
    existing = core.topics.get(topic.name)
    assert existing is not None
    additional = topic.count - len(existing.partitions)
    if topic.assignments is None:
        return
    if len(topic.assignments) != additional:
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Attempted to add {additional} additional partition(s), but only {len(topic.assignments)} "
            "assignment(s) were specified.",
        )
    for assignment in topic.assignments:
        check_assignment(assignment.broker_ids, core.node_id)
