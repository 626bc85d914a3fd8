"""What becomes of the committed offsets of a consumer group that has no members when they are moved."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from headrace.cli.failures import Refused
from headrace.client.admin.results import OffsetChange
from headrace.wire.enums import OffsetSpec
from headrace.wire.ids import TopicAndPartition

if TYPE_CHECKING:
    from headrace.client.admin import Admin
    from headrace.client.admin.share_offsets import To


def plan(
    admin: "Admin", group_id: str, to: "To", wanted: Sequence[str | TopicAndPartition] | None
) -> dict[TopicAndPartition, OffsetChange]:
    """What would become of the group's offsets, in the topics named or in all where it has any."""
    group = admin.describe_consumer_group(group_id)
    if group.members:
        shown = ", ".join(f"{member.client_id} at {member.host}" for member in group.members[:5])
        raise Refused(
            f"group {group_id!r} has members: {shown}. Stop them first, or wait for their sessions to end."
        )
    before = {place: one.offset for place, one in group.offsets.items()}
    places = _places(admin, before, to, wanted)
    starts = admin.list_offsets(dict.fromkeys(places, OffsetSpec.EARLIEST))
    ends = admin.list_offsets(dict.fromkeys(places, OffsetSpec.LATEST))
    times = admin.list_offsets(dict.fromkeys(places, to)) if isinstance(to, datetime) else {}
    changes: dict[TopicAndPartition, OffsetChange] = {}
    for place in places:
        start, end = starts[place].offset or 0, ends[place].offset or 0
        if isinstance(to, Mapping):
            after = to[place]
            if not start <= after <= end:
                raise Refused(
                    f"offset {after} is not in the log of {place[0]}-{place[1]}, which has {start} to {end}."
                )
        elif isinstance(to, datetime):
            found = times[place].offset
            after = end if found is None else found
        else:
            after = start if to is OffsetSpec.EARLIEST else end
        changes[place] = OffsetChange(*place, before.get(place), after)
    return changes


def _places(
    admin: "Admin",
    before: Mapping[TopicAndPartition, int | None],
    to: "To",
    wanted: Sequence[str | TopicAndPartition] | None,
) -> list[TopicAndPartition]:
    if isinstance(to, Mapping):
        return sorted(to)
    if wanted is None:
        return sorted(before)
    names = {one if isinstance(one, str) else one[0] for one in wanted}
    described = admin.describe_topics(names)
    places = {
        (name, each.partition) for name in names for each in described[name].partitions if name in wanted
    } | {one for one in wanted if not isinstance(one, str)}
    for topic, partition in places:
        if not 0 <= partition < len(described[topic].partitions):
            raise Refused(
                f"topic {topic!r} has no partition {partition}, only 0 to {len(described[topic].partitions) - 1}."
            )
    return sorted(places)
