"""What the dashboard changes. Each says in a sentence what was done; the page asks for a confirmation first."""

from collections.abc import Mapping
from datetime import UTC, datetime

from headrace.client.dead_letters import RedriveResult
from headrace.web.model import (
    CreateTopic,
    DeleteTopic,
    Discard,
    Done,
    GroupChoice,
    HeldRecord,
    Redrive,
    ResetDone,
    ResetOffsets,
    SetConfig,
)
from headrace.web.site import NotThere, Site
from headrace.wire.enums import OffsetSpec


async def reset_offsets(site: Site, wanted: ResetOffsets) -> ResetDone:
    to: OffsetSpec | datetime | Mapping[tuple[str, int], int]
    topics = None if wanted.topic is None else [wanted.topic]
    match wanted.to:
        case "earliest":
            to = OffsetSpec.EARLIEST
        case "latest":
            to = OffsetSpec.LATEST
        case "time":
            if wanted.time is None:
                raise ValueError("to=time needs a time, in milliseconds since 1970")
            to = datetime.fromtimestamp(wanted.time / 1000, UTC)
        case "offset":
            if wanted.topic is None or wanted.partition is None or wanted.offset is None:
                raise ValueError("to=offset needs a topic, a partition and an offset")
            to, topics = {(wanted.topic, wanted.partition): wanted.offset}, None
    changes = await site.source.admin.alter_share_group_offsets(
        wanted.group, to=to, topics=topics, dry_run=wanted.dry_run
    )
    site.note_change()
    return ResetDone(
        is_dry_run=wanted.dry_run,
        changes=tuple(changes.values()),
    )


async def delete_group(site: Site, wanted: GroupChoice) -> Done:
    await site.source.admin.delete_groups([wanted.group])
    site.note_change()
    return Done(message=f"Group {wanted.group} is deleted.")


async def set_config(site: Site, wanted: SetConfig) -> Done:
    if not wanted.changes:
        raise ValueError("there is nothing to change: `changes` is empty")
    await site.source.admin.set_group_config(wanted.group, wanted.changes)
    site.note_change()
    count = len(wanted.changes)
    return Done(message=f"{count} config{'s' if count > 1 else ''} of group {wanted.group} changed.")


async def create_topic(site: Site, wanted: CreateTopic) -> Done:
    await site.source.admin.create_topic(
        wanted.topic,
        wanted.partitions,
        replication_factor=wanted.replication_factor,
        configs=wanted.configs,
    )
    site.note_change()
    count = wanted.partitions
    return Done(message=f"Topic {wanted.topic} is created, with {count} partition{'s' if count > 1 else ''}.")


async def delete_topic(site: Site, wanted: DeleteTopic) -> Done:
    if wanted.confirm != wanted.topic:
        raise ValueError(f"type the topic's name to delete it: {wanted.confirm!r} is not {wanted.topic!r}")
    await site.source.admin.delete_topics([wanted.topic])
    site.note_change()
    return Done(message=f"Topic {wanted.topic} is deleted.")


async def release_record(site: Site, wanted: HeldRecord) -> Done:
    if site.source.detail is None:
        raise NotThere(
            "only the broker that leads the partition can release another member's record, and Kafka has no request "
            "for that; this works in the dashboard of `headrace serve --http`"
        )
    holder = await site.source.detail.release(wanted.group, wanted.topic, wanted.partition, wanted.offset)
    site.note_change()
    return Done(
        message=f"Record {wanted.offset} of {wanted.topic}-{wanted.partition} was taken from {holder}."
    )


async def redrive(site: Site, wanted: Redrive) -> RedriveResult:
    async with site.redriving:
        result = await site.source.admin.redrive(
            wanted.topic,
            cause=wanted.cause,
            limit=wanted.limit,
            letters=_letters(wanted.partition, wanted.offset),
            value=None if wanted.value is None else wanted.value.encode(),
            again=wanted.again,
            dry_run=wanted.dry_run,
        )
    site.note_change()
    return result


async def discard(site: Site, wanted: Discard) -> RedriveResult:
    async with site.redriving:
        result = await site.source.admin.discard(
            wanted.topic,
            cause=wanted.cause,
            letters=_letters(wanted.partition, wanted.offset),
            again=True,
            dry_run=wanted.dry_run,
        )
    site.note_change()
    return result


def _letters(partition: int | None, offset: int | None) -> list[tuple[int, int]] | None:
    if (partition is None) != (offset is None):
        raise ValueError("a letter needs a partition and an offset")
    return None if partition is None or offset is None else [(partition, offset)]
