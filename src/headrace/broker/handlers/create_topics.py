"""CreateTopics (19), v2-v7: new topics with a number of partitions or with each partition's replicas named.

-1 stands for the broker's default, of partitions as of replicas. One node has one replica, so a replication factor
above 1 is refused with 38. v5 answers with the settings the topic got, v7 with its id. Topics stand or fall one by one;
a name that is there twice is refused (42); a request for more than 10,000 partitions is refused as a whole (44).
The topics are made some at a time, each time in one transaction, so that a thousand of them hold up nobody; the answer
leaves when all of them are durable.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from headrace.broker.call import Call
from headrace.broker.configs import creation_entries
from headrace.broker.later import Later
from headrace.broker.placement import check_assignment
from headrace.broker.slices import Steps
from headrace.broker.topics import NewTopic, check_partitions, unified
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.message import ZERO_UUID
from headrace.wire.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from headrace.wire.messages.create_topics_response import (
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsResponse,
)

if TYPE_CHECKING:
    from headrace.broker.core import BrokerCore

VERSIONS = (2, 7)
TAKES_MANY = True
DEFAULT = -1
PARTITIONS_MAX = 10_000
"""In one request."""
TOPICS_PER_STEP = 100
"""Topics that are made in one turn of the loop, in one transaction."""
METADATA_LOG = "__cluster_metadata"


def handle(
    core: "BrokerCore", request: CreateTopicsRequest, call: Call
) -> CreateTopicsResponse | Later[CreateTopicsResponse]:
    _refuse_excess(request, core.settings.get_int("num.partitions"))
    times = Counter(topic.name for topic in request.topics)
    refused = [
        CreatableTopicResult(
            name=name, error_code=ErrorCode.INVALID_REQUEST, error_message="Duplicate topic name."
        )
        for name, count in times.items()
        if count > 1
    ]
    wanted = [topic for topic in request.topics if times[topic.name] == 1]
    made: Later[CreateTopicsResponse] = Later()

    def steps() -> Steps:
        results: list[CreatableTopicResult] = []
        for begin in range(0, len(wanted), TOPICS_PER_STEP):
            if begin:
                yield
            part = wanted[begin : begin + TOPICS_PER_STEP]
            results += _create_some(core, part, is_dry_run=request.validate_only)
        core.durable(()).map(lambda _: CreateTopicsResponse(topics=results + refused)).then(
            made.resolve, made.fail
        )

    core.slices.run(steps(), made.fail)
    return made.value if made.is_done else made


def _refuse_excess(request: CreateTopicsRequest, default: int) -> None:
    total = 0
    for topic in request.topics:
        if topic.assignments:
            total += len(topic.assignments)
        else:
            total += default if topic.num_partitions == DEFAULT else max(topic.num_partitions, 0)
    if total > PARTITIONS_MAX:
        raise KafkaError(ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request.")


Shown = dict[tuple[tuple[str, str], ...], list[CreatableTopicConfigs]]
"""What is answered about settings, by the topic's own ones."""


class _Planned(NamedTuple):
    topic: NewTopic
    result: CreatableTopicResult


def _create_some(
    core: "BrokerCore", asked: Sequence[CreatableTopic], *, is_dry_run: bool
) -> list[CreatableTopicResult]:
    """In the order they were asked for. Those that can be made are made together."""
    planned: list[_Planned] = []
    results: list[CreatableTopicResult] = []
    names: dict[str, str] = {}
    shown: Shown = {}
    for topic in asked:
        try:
            plan = _plan(core, topic, names, shown)
        except KafkaError as error:
            results.append(_refused(topic.name, error))
            continue
        names[unified(topic.name)] = topic.name
        planned.append(plan)
        results.append(plan.result)
    if is_dry_run or not planned:
        return results
    try:
        topics = core.topics.create_all([plan.topic for plan in planned])
    except KafkaError as error:
        failed = {plan.topic.name for plan in planned}
        return [_refused(result.name, error) if result.name in failed else result for result in results]
    for plan, made in zip(planned, topics, strict=True):
        plan.result.topic_id = made.id
    return results


def _refused(name: str, error: KafkaError) -> CreatableTopicResult:
    return CreatableTopicResult(name=name, error_code=error.code, error_message=error.message)


def _plan(core: "BrokerCore", topic: CreatableTopic, among: Mapping[str, str], shown: Shown) -> _Planned:
    if topic.name == METADATA_LOG:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"Creation of internal topic {METADATA_LOG} is prohibited."
        )
    core.topics.check_free(topic.name, among)
    configs = _configs(topic)
    core.topics.check_configs(configs)
    partitions = _partitions(core, topic)
    result = CreatableTopicResult(
        name=topic.name,
        topic_id=ZERO_UUID,
        error_message=None,
        num_partitions=partitions,
        replication_factor=1,
        configs=_shown(core, configs, shown),
    )
    return _Planned(NewTopic(topic.name, partitions, configs), result)


def _shown(core: "BrokerCore", configs: Mapping[str, str], shown: Shown) -> list[CreatableTopicConfigs]:
    """Most topics of a request have the same settings, and finding out takes longer than making a topic."""
    key = tuple(sorted(configs.items()))
    if key not in shown:
        shown[key] = [
            CreatableTopicConfigs(name=entry.name, value=entry.value, config_source=entry.source)
            for entry in creation_entries(core.settings, configs)
        ]
    return shown[key]


def _configs(topic: CreatableTopic) -> dict[str, str]:
    nulls = [config.name for config in topic.configs if config.value is None]
    if nulls:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG, f"Null value not supported for topic configs: {','.join(nulls)}"
        )
    return {config.name: config.value or "" for config in topic.configs}


def _partitions(core: "BrokerCore", topic: CreatableTopic) -> int:
    if topic.assignments:
        return _assigned_partitions(core, topic)
    replicas = 1 if topic.replication_factor == DEFAULT else topic.replication_factor
    if replicas < 1:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )
    partitions = (
        core.settings.get_int("num.partitions") if topic.num_partitions == DEFAULT else topic.num_partitions
    )
    check_partitions(partitions)
    if replicas > 1:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Unable to replicate the partition {replicas} time(s): The target replication factor of "
            f"{replicas} cannot be reached because only 1 broker(s) are registered.",
        )
    return partitions


def _assigned_partitions(core: "BrokerCore", topic: CreatableTopic) -> int:
    for what, value in (
        ("replication factor", topic.replication_factor),
        ("numPartitions", topic.num_partitions),
    ):
        if value != DEFAULT:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"A manual partition assignment was specified, but {what} was not set to -1.",
            )
    indexes: set[int] = set()
    for assignment in topic.assignments:
        if assignment.partition_index in indexes:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Found multiple manual partition assignments for partition {assignment.partition_index}",
            )
        indexes.add(assignment.partition_index)
        check_assignment(assignment.broker_ids, core.node_id)
    if indexes != set(range(len(indexes))):
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "partitions should be a consecutive 0-based integer sequence",
        )
    return len(indexes)
