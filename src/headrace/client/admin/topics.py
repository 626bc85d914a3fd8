"""Topics: make, list, describe, grow and delete them."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from headrace.client.admin.call import AdminCall, in_parallel, outcome, raise_for
from headrace.client.admin.configs import Value, as_text
from headrace.client.admin.offsets import try_list_offsets
from headrace.client.admin.results import PartitionDescription, TopicDescription, known
from headrace.client.arguments import require_int
from headrace.client.errors import error_for
from headrace.wire.enums import OffsetSpec
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.ids import uuid_text
from headrace.wire.messages.create_partitions_request import CreatePartitionsRequest, CreatePartitionsTopic
from headrace.wire.messages.create_partitions_response import CreatePartitionsResponse
from headrace.wire.messages.create_topics_request import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from headrace.wire.messages.create_topics_response import CreateTopicsResponse
from headrace.wire.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from headrace.wire.messages.delete_topics_response import DeleteTopicsResponse
from headrace.wire.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from headrace.wire.messages.metadata_response import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)


async def create_topic(
    call: AdminCall,
    name: str,
    *,
    partitions: int,
    replication_factor: int,
    configs: Mapping[str, Value | None],
) -> TopicDescription:
    require_int("create_topic: partitions", partitions)
    require_int("create_topic: replication_factor", replication_factor)
    topic = CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replication_factor,
        configs=[
            CreatableTopicConfig(name=key, value=as_text(value))
            for key, value in configs.items()
            if value is not None
        ],
    )

    def read(response: CreateTopicsResponse) -> None:
        (result,) = response.topics
        if result.error_code:
            raise error_for(result.error_code, result.error_message, about=about(name))

    await call.ask(CreateTopicsRequest(topics=[topic], timeout_ms=call.request_ms), read)
    return await _until_led(call, name)


async def _until_led(call: AdminCall, name: str) -> TopicDescription:
    """The controller has made it: brokers hear of it and begin to lead a moment later. Then it can be used."""

    async def attempt() -> TopicDescription:
        told = await in_parallel(_told(call, node_id, name) for node_id in call.cluster.nodes)
        topics = [topic for topic in told if topic is not None]
        if not topics or not all(map(_is_led, topics)):
            raise _not_led(name)
        places = [(name, partition.partition_index) for partition in topics[0].partitions]
        _, errors = await try_list_offsets(call, dict.fromkeys(places, OffsetSpec.LATEST))
        if any(errors.values()):
            raise _not_led(name)
        return _description(topics[0])

    return await call.retrying(attempt)


async def _told(call: AdminCall, node_id: int, name: str) -> MetadataResponseTopic | None:
    """What one broker knows of the topic; None from a broker that is away."""
    try:
        response: MetadataResponse = await call.send(node_id, _metadata([name]))
    except KafkaError:
        return None
    return response.topics[0]


def _is_led(topic: MetadataResponseTopic) -> bool:
    return not topic.error_code and all(partition.leader_id >= 0 for partition in topic.partitions)


def _not_led(name: str) -> KafkaError:
    return error_for(
        ErrorCode.LEADER_NOT_AVAILABLE,
        "the topic is created, but not every partition has a leader yet",
        about=about(name),
    )


async def create_partitions(call: AdminCall, topic: str, total: int) -> None:
    require_int("create_partitions: total", total)
    asked = CreatePartitionsTopic(name=topic, count=total, assignments=None)

    def read(response: CreatePartitionsResponse) -> None:
        (result,) = response.results
        if result.error_code:
            raise error_for(result.error_code, result.error_message, about=about(topic))

    await call.ask(CreatePartitionsRequest(topics=[asked], timeout_ms=call.request_ms), read)


async def delete_topics(call: AdminCall, names: Iterable[str]) -> None:
    wanted = list(dict.fromkeys(names))
    results = await in_parallel(outcome(_delete_topic(call, name)) for name in wanted)
    raise_for(dict(zip(wanted, results, strict=True)))


async def _delete_topic(call: AdminCall, name: str) -> None:
    def read(response: DeleteTopicsResponse) -> None:
        (result,) = response.responses
        if result.error_code:
            raise error_for(result.error_code, result.error_message, about=about(name))

    await call.ask(
        DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=call.request_ms), read
    )


async def list_topics(call: AdminCall, *, internal: bool) -> list[TopicDescription]:
    def read(response: MetadataResponse) -> list[TopicDescription]:
        if response.error_code:
            raise error_for(response.error_code, about="topics")
        found = [_description(topic) for topic in response.topics if not topic.error_code]
        return sorted(
            (topic for topic in found if internal or not topic.is_internal), key=lambda topic: topic.name
        )

    return await call.ask(_metadata(None), read)


async def describe_topics(
    call: AdminCall, names: Iterable[str], *, offsets: bool = False
) -> dict[str, TopicDescription]:
    wanted = list(dict.fromkeys(names))
    if not wanted:
        return {}

    def read(response: MetadataResponse) -> dict[str, TopicDescription]:
        found: dict[str, TopicDescription] = {}
        errors: dict[str, KafkaError | None] = dict.fromkeys(wanted)
        for topic in response.topics:
            name = topic.name or ""
            if topic.error_code:
                errors[name] = error_for(topic.error_code, about=about(name))
            else:
                found[name] = _description(topic)
        raise_for(errors)
        return {name: found[name] for name in wanted}

    topics = await call.ask(_metadata(wanted), read)
    return await _with_offsets(call, topics) if offsets else topics


async def _with_offsets(call: AdminCall, topics: dict[str, TopicDescription]) -> dict[str, TopicDescription]:
    """A partition that nobody leads now stays without offsets."""
    places = [(topic.name, one.partition) for topic in topics.values() for one in topic.partitions]
    (starts, _), (ends, _) = await in_parallel(
        try_list_offsets(call, dict.fromkeys(places, spec))
        for spec in (OffsetSpec.EARLIEST, OffsetSpec.LATEST)
    )

    def filled(topic: str, one: PartitionDescription) -> PartitionDescription:
        start, end = starts.get((topic, one.partition)), ends.get((topic, one.partition))
        return replace(
            one, start_offset=start.offset if start else None, end_offset=end.offset if end else None
        )

    return {
        name: replace(topic, partitions=tuple(filled(name, one) for one in topic.partitions))
        for name, topic in topics.items()
    }


def about(name: str) -> str:
    return f"topic {name!r}"


def _metadata(names: Iterable[str] | None) -> MetadataRequest:
    topics = None if names is None else [MetadataRequestTopic(name=name) for name in names]
    return MetadataRequest(topics=topics, allow_auto_topic_creation=False)


def _description(topic: MetadataResponseTopic) -> TopicDescription:
    return TopicDescription(
        name=topic.name or "",
        topic_id=uuid_text(topic.topic_id),
        is_internal=topic.is_internal,
        partitions=tuple(
            _partition(one) for one in sorted(topic.partitions, key=lambda one: one.partition_index)
        ),
    )


def _partition(partition: MetadataResponsePartition) -> PartitionDescription:
    return PartitionDescription(
        partition=partition.partition_index,
        leader=known(partition.leader_id),
        leader_epoch=known(partition.leader_epoch),
        replicas=tuple(partition.replica_nodes),
        isr=tuple(partition.isr_nodes),
        offline_replicas=tuple(partition.offline_replicas),
    )
