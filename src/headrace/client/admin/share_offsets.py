"""Where share groups stand: their start offsets and lag, and moving or forgetting them."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from headrace.client.admin.call import AdminCall, in_parallel, raise_for
from headrace.client.admin.groups import about, describe_share_group, find_group
from headrace.client.admin.offsets import as_timestamp, by_topic, list_offsets, try_list_offsets
from headrace.client.admin.results import OffsetChange, ShareGroupOffset, in_order, known
from headrace.client.admin.topics import describe_topics
from headrace.client.delivery import TopicPartition
from headrace.client.errors import GroupIdNotFoundError, error_for
from headrace.wire.enums import GroupState, GroupType, OffsetSpec
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.ids import TopicAndPartition
from headrace.wire.messages.alter_share_group_offsets_request import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from headrace.wire.messages.alter_share_group_offsets_response import AlterShareGroupOffsetsResponse
from headrace.wire.messages.delete_share_group_offsets_request import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
from headrace.wire.messages.delete_share_group_offsets_response import DeleteShareGroupOffsetsResponse
from headrace.wire.messages.describe_share_group_offsets_request import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
)
from headrace.wire.messages.describe_share_group_offsets_response import DescribeShareGroupOffsetsResponse

Topics = Iterable[str | TopicAndPartition]
"""Whole topics by name, single partitions as (topic, partition)."""
To = OffsetSpec | datetime | Mapping[TopicAndPartition, int]


async def described_offsets(
    call: AdminCall, group_id: str, places: list[TopicPartition] | None
) -> dict[TopicPartition, tuple[bytes, Any]]:
    """Of each partition its topic's id and what the coordinator says; None asks for all that the group has.

    GroupIdNotFoundError if there is no such share group: the coordinator itself would say that it has no offsets.
    """
    topics = None
    if places is not None:
        topics = [
            DescribeShareGroupOffsetsRequestTopic(topic_name=name, partitions=indexes)
            for name, indexes in by_topic(places).items()
        ]
    asked = DescribeShareGroupOffsetsRequestGroup(group_id=group_id, topics=topics)

    def read(response: DescribeShareGroupOffsetsResponse) -> dict[TopicPartition, tuple[bytes, Any]]:
        (group,) = response.groups
        if group.error_code:
            raise error_for(group.error_code, group.error_message, about=about(group_id))
        found: dict[TopicPartition, tuple[bytes, Any]] = {}
        errors: dict[TopicPartition, KafkaError | None] = {}
        for topic in group.topics:
            for one in topic.partitions:
                place = TopicPartition(topic.topic_name, one.partition_index)
                found[place] = topic.topic_id, one
                errors[place] = _error(group_id, place, one) if one.error_code else None
        raise_for(errors)
        return found

    found = await call.ask_coordinator(group_id, DescribeShareGroupOffsetsRequest(groups=[asked]), read)
    if all(one.start_offset < 0 for _, one in found.values()):
        await describe_share_group(call, group_id)
    return {place: found[place] for place in sorted(found)}


async def share_group_offsets(
    call: AdminCall, group_id: str, topics: Topics | None
) -> dict[TopicAndPartition, ShareGroupOffset]:
    places = None if topics is None else await places_of(call, topics)
    found = await described_offsets(call, group_id, places)
    # A topic may be deleted between the two questions: its end is not known then.
    ends, _ = await try_list_offsets(call, dict.fromkeys(found, OffsetSpec.LATEST))
    return {
        place: ShareGroupOffset(
            topic=place.topic,
            partition=place.partition,
            start_offset=known(one.start_offset),
            end_offset=ends[place].offset if place in ends else None,
            lag=known(one.lag),
            leader_epoch=known(one.leader_epoch) if one.start_offset >= 0 else None,
        )
        for place, (_, one) in found.items()
    }


async def places_of(call: AdminCall, topics: Topics) -> list[TopicPartition]:
    """All partitions of named topics, and partitions named one by one; each must exist."""
    wanted = [topics] if isinstance(topics, str) else list(topics)
    names = [one if isinstance(one, str) else one[0] for one in wanted]
    described = await describe_topics(call, names)
    places: list[TopicPartition] = []
    for one in wanted:
        if isinstance(one, str):
            places += (TopicPartition(one, each.partition) for each in described[one].partitions)
            continue
        place = TopicPartition(*one)
        count = len(described[place.topic].partitions)
        if not 0 <= place.partition < count:
            raise error_for(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"there is no partition {place.partition}; the topic has 0 to {count - 1}",
                about=f"topic {place.topic!r}",
            )
        places.append(place)
    return in_order(places)


async def alter_share_group_offsets(
    call: AdminCall, group_id: str, *, to: To, topics: Topics | None, dry_run: bool
) -> dict[TopicAndPartition, OffsetChange]:
    _check(to, topics)
    exists = await _require_empty(call, group_id)
    places = await _places_to_alter(call, group_id, to, topics, exists)
    if not places:
        return {}
    before = await described_offsets(call, group_id, places) if exists else {}
    after = await _targets(call, places, to)
    changes: dict[TopicAndPartition, OffsetChange] = {
        place: OffsetChange(
            place.topic,
            place.partition,
            known(before[place][1].start_offset) if place in before else None,
            after[place],
        )
        for place in places
    }
    if not dry_run:
        await _alter(call, group_id, after)
    return changes


def _check(to: To, topics: Topics | None) -> None:
    if isinstance(to, Mapping):
        if topics is not None:
            raise ValueError("offsets given one by one name their partitions already; leave out `topics`")
    elif isinstance(to, datetime):
        as_timestamp(to)
    elif to not in (OffsetSpec.EARLIEST, OffsetSpec.LATEST) or not isinstance(to, OffsetSpec):
        raise ValueError(
            "the target must be OffsetSpec.EARLIEST or LATEST, a datetime with a time zone, or a mapping of "
            f"(topic, partition) to offset, got {to!r}"
        )


async def _require_empty(call: AdminCall, group_id: str) -> bool:
    """Whether the group exists. Refuses early, and in a dry run too, what the coordinator would refuse."""
    try:
        found = await find_group(call, group_id)
    except GroupIdNotFoundError:
        return False
    if found.type is not GroupType.SHARE:
        raise error_for(
            ErrorCode.GROUP_ID_NOT_FOUND,
            f"it is a {found.type} group, not a share group",
            about=about(group_id),
        )
    if found.state is not GroupState.EMPTY:
        members = (await describe_share_group(call, group_id)).members
        if members:
            shown = ", ".join(f"{member.client_id} at {member.host}" for member in members[:5])
            more = f" and {len(members) - 5} more" if len(members) > 5 else ""
            raise error_for(
                ErrorCode.NON_EMPTY_GROUP, f"it has members: {shown}{more}", about=about(group_id)
            )
    return True


async def _places_to_alter(
    call: AdminCall, group_id: str, to: To, topics: Topics | None, exists: bool
) -> list[TopicPartition]:
    if isinstance(to, Mapping):
        return await places_of(call, to)
    if topics is not None:
        return await places_of(call, topics)
    if not exists:
        raise error_for(
            ErrorCode.GROUP_ID_NOT_FOUND,
            f"Group {group_id} not found, so it has no topics of its own; name them",
            about=about(group_id),
        )
    return list(await described_offsets(call, group_id, None))


async def _targets(call: AdminCall, places: list[TopicPartition], to: To) -> dict[TopicPartition, int]:
    specs: list[OffsetSpec | datetime] = [OffsetSpec.EARLIEST, OffsetSpec.LATEST]
    if isinstance(to, datetime):
        specs.append(to)
    starts, ends, *timed = await in_parallel(
        list_offsets(call, dict.fromkeys(places, spec)) for spec in specs
    )
    targets = {}
    for place in places:
        start, end = starts[place].offset or 0, ends[place].offset or 0
        if isinstance(to, Mapping):
            targets[place] = _within(place, to[place], start, end)
        elif timed:
            # Where nothing is that young, the group begins with what comes: as Apache's tool does.
            found = timed[0][place].offset
            targets[place] = end if found is None else found
        else:
            targets[place] = end if to is OffsetSpec.LATEST else start
    return targets


def _within(place: TopicPartition, offset: int, start: int, end: int) -> int:
    """Kafka would take any number, and the group would then wait for records that may never come."""
    if not start <= offset <= end:
        raise error_for(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"offset {offset} is not in the log, which has {start} to {end}",
            about=f"partition {place.partition} of topic {place.topic!r}",
        )
    return offset


async def _alter(call: AdminCall, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
    topics = [
        AlterShareGroupOffsetsRequestTopic(
            topic_name=name,
            partitions=[
                AlterShareGroupOffsetsRequestPartition(
                    partition_index=index, start_offset=offsets[TopicPartition(name, index)]
                )
                for index in indexes
            ],
        )
        for name, indexes in by_topic(offsets).items()
    ]

    def read(response: AlterShareGroupOffsetsResponse) -> None:
        if response.error_code:
            raise error_for(response.error_code, response.error_message, about=about(group_id))
        errors: dict[TopicPartition, KafkaError | None] = {}
        for topic in response.responses:
            for one in topic.partitions:
                place = TopicPartition(topic.topic_name, one.partition_index)
                errors[place] = _error(group_id, place, one) if one.error_code else None
        raise_for(errors)

    await call.ask_coordinator(
        group_id, AlterShareGroupOffsetsRequest(group_id=group_id, topics=topics), read
    )


async def delete_share_group_offsets(call: AdminCall, group_id: str, topics: Iterable[str]) -> None:
    wanted = [topics] if isinstance(topics, str) else list(dict.fromkeys(topics))
    request = DeleteShareGroupOffsetsRequest(
        group_id=group_id,
        topics=[DeleteShareGroupOffsetsRequestTopic(topic_name=name) for name in wanted],
    )

    def read(response: DeleteShareGroupOffsetsResponse) -> None:
        if response.error_code:
            raise error_for(response.error_code, response.error_message, about=about(group_id))
        raise_for(
            {
                one.topic_name: error_for(
                    one.error_code, one.error_message, about=f"topic {one.topic_name!r} of {about(group_id)}"
                )
                if one.error_code
                else None
                for one in response.responses
            }
        )

    await call.ask_coordinator(group_id, request, read)


def _error(group_id: str, place: TopicPartition, answer: Any) -> KafkaError:
    return error_for(
        answer.error_code,
        answer.error_message,
        about=f"partition {place.partition} of topic {place.topic!r} of {about(group_id)}",
    )
