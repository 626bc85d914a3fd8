"""Where the group starts: `latest` means the end of the partitions that there are, not of those that are added later.

Kafka up to 4.3 applies `share.auto.offset.reset` to each partition when the group first reads it. With `latest`, the
records that were written to a new partition before the group saw it would be passed over. So before the query joins a
group that starts at `latest`, the partitions that the group does not know are given a start offset by name, and then
the group's setting is changed to `earliest`: it counts for partitions that come later, and they have no records from
before. A group with members cannot be given offsets; it keeps its setting, and the query says so.
"""

import logging
from collections.abc import Collection, Mapping

from headrace.client.admin.aio import AsyncAdmin
from headrace.client.admin.results import TopicDescription
from headrace.client.errors import GroupIdNotFoundError, NonEmptyGroupError
from headrace.wire.enums import OffsetSpec
from headrace.wire.errors import KafkaError
from headrace.wire.ids import TopicAndPartition

logger = logging.getLogger("headrace.spark")
RESET = "share.auto.offset.reset"
EARLIEST, LATEST = "earliest", "latest"


async def start_group(
    admin: AsyncAdmin,
    group: str,
    topics: Mapping[str, TopicDescription],
    *,
    found: str | None,
    wanted: str | None,
    is_new: bool,
) -> None:
    """`found` is the group's setting, None where it cannot be read; `wanted` is option startingOffsets.

    That option counts for a query without a checkpoint (`is_new`), and later for topics that are new to the group.
    """
    chosen = wanted if is_new and wanted is not None else found
    if chosen == LATEST:
        if await _start_at_the_end(admin, group, topics, found):
            return
    elif wanted == LATEST:
        await _try_to_pin(admin, group, topics)
    if is_new and wanted is not None and wanted != found:
        await admin.set_group_config(group, {RESET: wanted})


async def _start_at_the_end(
    admin: AsyncAdmin, group: str, topics: Mapping[str, TopicDescription], found: str | None
) -> bool:
    """Whether all partitions have a start offset, and new ones will be read from their beginning."""
    why_not = await _try_to_pin(admin, group, topics)
    if why_not is None and found != EARLIEST:
        try:
            await admin.set_group_config(group, {RESET: EARLIEST})
        except KafkaError as error:
            why_not = str(error)
        else:
            logger.warning(
                "Group %s starts at the end of the partitions that there are now. Its %s is set to earliest, so that "
                "partitions that are added later are read from their beginning.",
                *(group, RESET),
            )
    if why_not is not None:
        logger.warning(
            "Group %s starts at `latest`, and that cannot be confined to the partitions that there are now (%s): on "
            "Kafka before 4.4, records that are written to a new partition before the group sees it are passed over. "
            "When the group has read all its partitions, `headrace group config set %s %s=earliest` changes that.",
            *(group, why_not, group, RESET),
        )
    return why_not is None


async def _try_to_pin(admin: AsyncAdmin, group: str, topics: Mapping[str, TopicDescription]) -> str | None:
    """Gives a start offset to each partition that the group does not know. Why not all it knows have one, if so."""
    try:
        try:
            known = await admin.share_group_offsets(group)
        except GroupIdNotFoundError:
            known = {}
        there = [(name, each.partition) for name, topic in topics.items() for each in topic.partitions]
        unknown = [place for place in there if place not in known]
        names = {topic for topic, _ in known}
        # A partition that the group does not know, of a topic that it knows, was added since.
        added = [place for place in unknown if place[0] in names]
        starts = await _offsets(admin, OffsetSpec.EARLIEST, added)
        ends = await _offsets(admin, OffsetSpec.LATEST, [place for place in unknown if place not in starts])
        if unknown:
            await admin.alter_share_group_offsets(group, to={**starts, **ends})
    except NonEmptyGroupError:
        return "the group has members"
    except KafkaError as error:
        return str(error)
    undecided = sorted(place for place, each in known.items() if each.start_offset is None)
    if undecided:
        return f"of {undecided[0][0]}-{undecided[0][1]} nothing is settled yet"
    return None


async def _offsets(
    admin: AsyncAdmin, spec: OffsetSpec, places: Collection[TopicAndPartition]
) -> dict[TopicAndPartition, int]:
    listed = await admin.list_offsets(dict.fromkeys(places, spec)) if places else {}
    return {place: found.offset or 0 for place, found in listed.items()}
