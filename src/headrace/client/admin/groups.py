"""Groups of every type: list, describe and delete them; and the committed offsets of consumer groups."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from headrace.client.admin.call import AdminCall, in_parallel, outcome, raise_for
from headrace.client.admin.offsets import by_topic, try_list_offsets
from headrace.client.admin.results import (
    CommittedOffset,
    ConsumerGroupDescription,
    GroupListing,
    GroupMember,
    ShareGroupDescription,
    in_order,
    known,
    known_or,
)
from headrace.client.arguments import require_offset
from headrace.client.delivery import TopicPartition
from headrace.client.errors import GroupIdNotFoundError, UnsupportedVersionError, error_for
from headrace.wire.codec import MalformedMessage, read_message
from headrace.wire.enums import GroupState, GroupType, OffsetSpec
from headrace.wire.errors import ErrorCode
from headrace.wire.ids import TopicAndPartition
from headrace.wire.messages.consumer_group_describe_request import ConsumerGroupDescribeRequest
from headrace.wire.messages.consumer_group_describe_response import ConsumerGroupDescribeResponse
from headrace.wire.messages.consumer_protocol_assignment import ConsumerProtocolAssignment
from headrace.wire.messages.delete_groups_request import DeleteGroupsRequest
from headrace.wire.messages.delete_groups_response import DeleteGroupsResponse
from headrace.wire.messages.describe_groups_request import DescribeGroupsRequest
from headrace.wire.messages.describe_groups_response import DescribedGroupMember, DescribeGroupsResponse
from headrace.wire.messages.list_groups_request import ListGroupsRequest
from headrace.wire.messages.list_groups_response import ListedGroup, ListGroupsResponse
from headrace.wire.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from headrace.wire.messages.offset_commit_response import OffsetCommitResponse
from headrace.wire.messages.offset_fetch_request import OffsetFetchRequest, OffsetFetchRequestGroup
from headrace.wire.messages.offset_fetch_response import OffsetFetchResponse
from headrace.wire.messages.share_group_describe_request import ShareGroupDescribeRequest
from headrace.wire.messages.share_group_describe_response import ShareGroupDescribeResponse

NAMES_TOPICS_MAX = 9
"""The last version of OffsetFetch and OffsetCommit that names topics; later ones have only their ids."""
CONSUMER_PROTOCOL = "consumer"


async def list_groups(
    call: AdminCall, *, types: Sequence[GroupType], states: Sequence[GroupState]
) -> list[GroupListing]:
    """Each broker knows the groups it coordinates, so all of them are asked."""
    request = ListGroupsRequest(states_filter=states, types_filter=types)

    async def ask(node_id: int) -> list[GroupListing]:
        return listings_of(await call.send(node_id, request))

    async def attempt() -> list[list[GroupListing]]:
        await call.cluster.refresh()
        return await in_parallel(ask(node_id) for node_id in call.cluster.nodes)

    # A group that moved from one broker to the other meanwhile may be in two answers.
    found = {group.group_id: group for groups in await call.retrying(attempt) for group in groups}
    return [
        group
        for _, group in sorted(found.items())
        if (not types or group.type in types) and (not states or group.state in states)
    ]


async def find_group(call: AdminCall, group_id: str) -> GroupListing:
    """One group, asked of its coordinator; GroupIdNotFoundError if there is none."""

    def read(response: ListGroupsResponse) -> GroupListing:
        for group in listings_of(response):
            if group.group_id == group_id:
                return group
        raise error_for(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.", about=about(group_id))

    return await call.ask_coordinator(group_id, ListGroupsRequest(), read)


def listings_of(response: ListGroupsResponse) -> list[GroupListing]:
    if response.error_code:
        raise error_for(response.error_code, about="groups")
    return [_listing(group) for group in response.groups]


def _listing(group: ListedGroup) -> GroupListing:
    return GroupListing(
        group.group_id,
        known_or(GroupType, group.group_type, GroupType.UNKNOWN),
        known_or(GroupState, group.group_state, GroupState.UNKNOWN),
        group.protocol_type,
    )


async def delete_groups(call: AdminCall, group_ids: Iterable[str]) -> None:
    wanted = list(dict.fromkeys(group_ids))
    results = await in_parallel(outcome(_delete_group(call, group_id)) for group_id in wanted)
    raise_for(dict(zip(wanted, results, strict=True)))


async def _delete_group(call: AdminCall, group_id: str) -> None:
    def read(response: DeleteGroupsResponse) -> None:
        (result,) = response.results
        if result.error_code:
            raise error_for(result.error_code, about=about(group_id))

    await call.ask_coordinator(group_id, DeleteGroupsRequest(groups_names=[group_id]), read)


async def describe_share_group(call: AdminCall, group_id: str) -> ShareGroupDescription:
    def read(response: ShareGroupDescribeResponse) -> Any:
        (group,) = response.groups
        if group.error_code:
            raise error_for(group.error_code, group.error_message, about=about(group_id))
        return group

    group = await call.ask_coordinator(group_id, ShareGroupDescribeRequest(group_ids=[group_id]), read)
    return ShareGroupDescription(
        group_id=group_id,
        state=known_or(GroupState, group.group_state, GroupState.UNKNOWN),
        group_epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
        assignor=group.assignor_name,
        coordinator=await call.coordinator(group_id),
        members=_in_order(_member(member) for member in group.members),
    )


async def describe_consumer_group(call: AdminCall, group_id: str) -> ConsumerGroupDescription:
    """With `group.protocol=consumer` or classic: the one is tried, then the other."""
    try:
        group = await _describe_modern(call, group_id)
    except (GroupIdNotFoundError, UnsupportedVersionError):
        group = await _describe_classic(call, group_id)
    committed = await _committed(call, group_id)
    holders = {place: member.member_id for member in group.members for place in member.assignment}
    places = in_order([*committed, *holders])
    # A committed topic may be gone by now: its end is not known then, and so is its lag.
    ends, _ = await try_list_offsets(call, dict.fromkeys(places, OffsetSpec.LATEST))
    offsets: dict[TopicAndPartition, CommittedOffset] = {}
    for place in places:
        offset, leader_epoch, metadata = committed.get(place, (None, None, ""))
        end_offset = ends[place].offset if place in ends else None
        lag = None if offset is None or end_offset is None else max(0, end_offset - offset)
        offsets[place] = CommittedOffset(
            topic=place.topic,
            partition=place.partition,
            offset=offset,
            leader_epoch=leader_epoch,
            metadata=metadata,
            end_offset=end_offset,
            lag=lag,
            member_id=holders.get(place),
        )
    return replace(group, offsets=offsets)


async def _describe_modern(call: AdminCall, group_id: str) -> ConsumerGroupDescription:
    def read(response: ConsumerGroupDescribeResponse) -> Any:
        (group,) = response.groups
        if group.error_code:
            raise error_for(group.error_code, group.error_message, about=about(group_id))
        return group

    group = await call.ask_coordinator(group_id, ConsumerGroupDescribeRequest(group_ids=[group_id]), read)
    return ConsumerGroupDescription(
        group_id=group_id,
        type=GroupType.CONSUMER,
        state=known_or(GroupState, group.group_state, GroupState.UNKNOWN),
        group_epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
        assignor=group.assignor_name,
        coordinator=await call.coordinator(group_id),
        members=_in_order(_member(member) for member in group.members),
        offsets={},
    )


async def _describe_classic(call: AdminCall, group_id: str) -> ConsumerGroupDescription:
    def read(response: DescribeGroupsResponse) -> Any:
        (group,) = response.groups
        if group.error_code:
            raise error_for(group.error_code, group.error_message, about=about(group_id))
        return group

    try:
        group = await call.ask_coordinator(group_id, DescribeGroupsRequest(groups=[group_id]), read)
    except GroupIdNotFoundError:
        found = await find_group(call, group_id)  # says so itself if there is none
        raise error_for(
            ErrorCode.GROUP_ID_NOT_FOUND, f"it is a {found.type} group", about=about(group_id)
        ) from None
    return ConsumerGroupDescription(
        group_id=group_id,
        type=GroupType.CLASSIC,
        state=known_or(GroupState, group.group_state, GroupState.UNKNOWN),
        group_epoch=None,
        assignment_epoch=None,
        assignor=group.protocol_data,
        coordinator=await call.coordinator(group_id),
        members=_in_order(_classic_member(member, group.protocol_type) for member in group.members),
        offsets={},
    )


async def _committed(call: AdminCall, group_id: str) -> dict[TopicPartition, tuple[int, int | None, str]]:
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group_id, topics=None)])

    def read(response: OffsetFetchResponse) -> dict[TopicPartition, tuple[int, int | None, str]]:
        (group,) = response.groups
        if group.error_code:
            raise error_for(group.error_code, about=about(group_id))
        found = {}
        for topic in group.topics:
            for one in topic.partitions:
                if one.error_code:
                    raise error_for(one.error_code, about=f"offsets of {about(group_id)}")
                if one.committed_offset >= 0:
                    found[TopicPartition(topic.name, one.partition_index)] = (
                        one.committed_offset,
                        known(one.committed_leader_epoch),
                        one.metadata or "",
                    )
        return found

    return await call.ask_coordinator(group_id, request, read, version_max=NAMES_TOPICS_MAX)


async def alter_consumer_group_offsets(
    call: AdminCall, group_id: str, offsets: Mapping[TopicAndPartition, int]
) -> None:
    """As a client that is no member: a broker takes that for a group without members alone."""
    for place, offset in offsets.items():
        require_offset(place, offset)
    if not offsets:
        return
    request = OffsetCommitRequest(
        group_id=group_id,
        topics=[
            OffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=index, committed_offset=offsets[topic, index]
                    )
                    for index in indexes
                ],
            )
            for topic, indexes in by_topic(in_order(offsets)).items()
        ],
    )

    def read(response: OffsetCommitResponse) -> None:
        for topic in response.topics:
            for one in topic.partitions:
                if one.error_code:
                    where = f"{about(group_id)}, partition {one.partition_index} of topic {topic.name!r}"
                    raise error_for(one.error_code, about=where)

    await call.ask_coordinator(group_id, request, read, version_max=NAMES_TOPICS_MAX)


def about(group_id: str) -> str:
    return f"group {group_id!r}"


def _in_order(members: Iterable[GroupMember]) -> tuple[GroupMember, ...]:
    return tuple(sorted(members, key=lambda member: (member.client_id, member.member_id)))


def _member(member: Any) -> GroupMember:
    """Of a share group or of one with `group.protocol=consumer`: all but the instance id is alike."""
    return GroupMember(
        member_id=member.member_id,
        client_id=member.client_id,
        host=member.client_host,
        assignment=_places(
            (topic.topic_name, topic.partitions) for topic in member.assignment.topic_partitions
        ),
        subscribed=tuple(sorted(member.subscribed_topic_names)),
        member_epoch=member.member_epoch,
        rack=member.rack_id,
        instance_id=getattr(member, "instance_id", None),
    )


def _classic_member(member: DescribedGroupMember, protocol: str) -> GroupMember:
    return GroupMember(
        member_id=member.member_id,
        client_id=member.client_id,
        host=member.client_host,
        assignment=_classic_assignment(member.member_assignment) if protocol == CONSUMER_PROTOCOL else (),
        instance_id=member.group_instance_id,
    )


def _classic_assignment(data: bytes) -> tuple[TopicPartition, ...]:
    """Written by the group's own members: what cannot be read is shown as nothing."""
    if len(data) < 2:
        return ()
    version = int.from_bytes(data[:2], "big", signed=True)
    low, high = ConsumerProtocolAssignment.VERSIONS
    try:
        assignment, _ = read_message(ConsumerProtocolAssignment, max(low, min(version, high)), data, 2)
    except MalformedMessage:
        return ()
    return _places((topic.topic, topic.partitions) for topic in assignment.assigned_partitions)


def _places(topics: Iterable[tuple[str, Sequence[int]]]) -> tuple[TopicPartition, ...]:
    return tuple(in_order((topic, index) for topic, indexes in topics for index in indexes))
