"""All groups of a cluster at once: members, offsets and lag, with few requests however many groups there are.

Each broker lists the groups that it coordinates, so it is asked about exactly those, many in one request. That costs
a cluster of a thousand groups a few dozen requests, where describing one group after the other would cost thousands.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from headrace.client.admin.call import AdminCall, in_parallel
from headrace.client.admin.groups import NAMES_TOPICS_MAX, listings_of
from headrace.client.admin.results import GroupListing, known
from headrace.client.delivery import TopicPartition
from headrace.client.errors import error_for
from headrace.wire.enums import GroupType
from headrace.wire.ids import TopicAndPartition
from headrace.wire.message import Message
from headrace.wire.messages.consumer_group_describe_request import ConsumerGroupDescribeRequest
from headrace.wire.messages.describe_groups_request import DescribeGroupsRequest
from headrace.wire.messages.describe_share_group_offsets_request import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from headrace.wire.messages.list_groups_request import ListGroupsRequest
from headrace.wire.messages.offset_fetch_request import OffsetFetchRequest, OffsetFetchRequestGroup
from headrace.wire.messages.share_group_describe_request import ShareGroupDescribeRequest

GROUPS_MAX = 2_000
GROUPS_AT_A_TIME = 50
"""In one request: the broker does not serve anybody else meanwhile."""


class GroupPlace(NamedTuple):
    """Where a group stands in a partition."""

    offset: int | None
    """The start offset of a share group, the committed offset of a consumer group."""
    lag: int | None
    """As the coordinator of a share group tells it; None for consumer groups."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSurvey:
    listing: GroupListing
    members: int | None = None
    """None where the type of the group is not known here."""
    places: Mapping[TopicPartition, GroupPlace] = field(default_factory=dict)
    error: str | None = None


async def survey_groups(call: AdminCall, *, groups_max: int) -> tuple[list[GroupSurvey], int]:
    """The groups, share groups first, and how many more there are than `groups_max`."""

    async def attempt() -> list[tuple[int, GroupListing]]:
        await call.cluster.refresh()
        nodes = list(call.cluster.nodes)
        answers = await in_parallel(call.send(node, ListGroupsRequest()) for node in nodes)
        return [
            (node, listing)
            for node, answer in zip(nodes, answers, strict=True)
            for listing in listings_of(answer)
        ]

    # A group that moved from one broker to another meanwhile is in both responses.
    found = {listing.group_id: (node, listing) for node, listing in await call.retrying(attempt)}
    order = sorted(found.values(), key=lambda one: (one[1].type is not GroupType.SHARE, one[1].group_id))
    batches: dict[tuple[int, GroupType], list[GroupListing]] = {}
    for node, listing in order[:groups_max]:
        batches.setdefault((node, listing.type), []).append(listing)
    surveyed = await in_parallel(
        _survey(call, node, kind, listings[begin : begin + GROUPS_AT_A_TIME])
        for (node, kind), listings in batches.items()
        for begin in range(0, len(listings), GROUPS_AT_A_TIME)
    )
    return [one for batch in surveyed for one in batch], max(0, len(order) - groups_max)


async def _survey(
    call: AdminCall, node: int, kind: GroupType, listings: Sequence[GroupListing]
) -> list[GroupSurvey]:
    ask = _ASK.get(kind)
    if ask is None:
        return [GroupSurvey(listing=listing) for listing in listings]
    ids = [listing.group_id for listing in listings]
    describing, fetching, places_of = ask
    described = await call.send(node, describing(ids))
    fetched = await call.send(node, fetching(ids), version_max=_VERSION_MAX.get(kind))
    groups = {
        group.group_id: group for group in described.groups
    }  # Apache Kafka answers in an order of its own
    offsets = {group.group_id: group for group in fetched.groups}
    return [
        _joined(
            GroupSurvey(listing=listing), groups[listing.group_id], offsets.get(listing.group_id), places_of
        )
        for listing in listings
    ]


PlacesOf = Callable[[Any], Iterable[tuple[TopicPartition, GroupPlace]]]


def _joined(bare: GroupSurvey, described: Any, offsets: Any, places_of: PlacesOf) -> GroupSurvey:
    for answer in (described, offsets):
        if answer is not None and answer.error_code:
            message = getattr(answer, "error_message", None)
            about = f"group {bare.listing.group_id!r}"
            return replace(bare, error=str(error_for(answer.error_code, message, about=about)))
    places = dict(places_of(offsets)) if offsets is not None else {}
    return replace(bare, members=len(described.members), places=places)


def _share_places(group: Any) -> Iterable[tuple[TopicPartition, GroupPlace]]:
    for topic in group.topics:
        for one in topic.partitions:
            if not one.error_code:
                place = TopicPartition(topic.topic_name, one.partition_index)
                yield place, GroupPlace(known(one.start_offset), known(one.lag))


def _committed_places(group: Any) -> Iterable[tuple[TopicPartition, GroupPlace]]:
    for topic in group.topics:
        for one in topic.partitions:
            if not one.error_code and one.committed_offset >= 0:
                yield TopicPartition(topic.name, one.partition_index), GroupPlace(one.committed_offset, None)


def _share_offsets(ids: list[str]) -> Message:
    groups = [DescribeShareGroupOffsetsRequestGroup(group_id=one, topics=None) for one in ids]
    return DescribeShareGroupOffsetsRequest(groups=groups)


def _committed_offsets(ids: list[str]) -> Message:
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=one, topics=None) for one in ids])


_ASK: dict[GroupType, tuple[Callable[[list[str]], Message], Callable[[list[str]], Message], PlacesOf]] = {
    GroupType.SHARE: (lambda ids: ShareGroupDescribeRequest(group_ids=ids), _share_offsets, _share_places),
    GroupType.CONSUMER: (
        lambda ids: ConsumerGroupDescribeRequest(group_ids=ids),
        _committed_offsets,
        _committed_places,
    ),
    GroupType.CLASSIC: (lambda ids: DescribeGroupsRequest(groups=ids), _committed_offsets, _committed_places),
}
_VERSION_MAX = {GroupType.CONSUMER: NAMES_TOPICS_MAX, GroupType.CLASSIC: NAMES_TOPICS_MAX}


def lag_of(survey: GroupSurvey, ends: Mapping[TopicAndPartition, int]) -> int | None:
    """Records to go; None where nobody knows.

    The coordinator of a share group does not know it before the first acknowledgement in a partition.
    """
    lags = [lag for place in survey.places if (lag := place_lag(survey, place, ends)) is not None]
    if survey.listing.type is GroupType.SHARE and not survey.places:
        return 0
    return sum(lags) if lags else None


def has_settled(survey: GroupSurvey, ends: Mapping[TopicAndPartition, int]) -> bool:
    """Whether anything is written of a share group, or there is nothing that its members could hold."""
    if survey.listing.type is not GroupType.SHARE or survey.error is not None:
        return True
    is_known = any(one.offset is not None or one.lag is not None for one in survey.places.values())
    return is_known or not any(ends.get(place) for place in survey.places)


def place_lag(
    survey: GroupSurvey, place: TopicPartition, ends: Mapping[TopicAndPartition, int]
) -> int | None:
    stands = survey.places[place]
    if survey.listing.type is GroupType.SHARE:
        return stands.lag
    if stands.offset is None or place not in ends:
        return None
    return max(0, ends[place] - stands.offset)


def done_of(survey: GroupSurvey, ends: Mapping[TopicAndPartition, int]) -> int | None:
    """A count that grows by one with each record the group settles or passes; None where it cannot be told."""
    places = survey.places
    if not places:
        return None
    if survey.listing.type is not GroupType.SHARE:
        return sum(one.offset or 0 for one in places.values())
    if any(one.lag is None for one in places.values()):
        return None
    return sum(ends.get(place, 0) - (one.lag or 0) for place, one in places.items())
