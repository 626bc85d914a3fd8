"""What the pages and the API ask for, made from the source: groups, windows, records, topics, dead letters."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime

from headrace.client.admin.results import ConfigEntry, GroupMember, GroupType, OffsetSpec, ShareGroup
from headrace.client.dead_letters import LetterStatus
from headrace.client.plain_fetch import read_range
from headrace.share.view import SharePartitionState
from headrace.web.bodies import row_of
from headrace.web.embedded import GroupCounts
from headrace.web.model import (
    CauseRow,
    ConfigRow,
    DeadLettersPage,
    GroupPage,
    LetterRow,
    MemberRow,
    Microscope,
    OffsetRow,
    PartitionRow,
    RecordChoice,
    RecordRow,
    RecordsChoice,
    RecordsPage,
    TopicPage,
)
from headrace.web.site import NotThere, Site
from headrace.web.windows import UNKNOWN, run_at, window_of
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.records import read_records

LETTERS_SHOWN = 50
GROUP_S = 0.8
LETTERS_S = 4.0
"""How old an answer may be: reading dead letters means reading the topic."""
READ_BYTES = 1 << 20
RECORD_PATIENCE_MS = 1_000
"""A record that is not written yet is not waited for."""
DEAD_LETTER_TOPIC = "errors.deadletterqueue.topic.name"

Place = tuple[str, int]


async def group_page(site: Site, group_id: str) -> GroupPage:
    return await site.cached(("group", group_id), GROUP_S, lambda: _group_page(site, group_id))


async def _group_page(site: Site, group_id: str) -> GroupPage:
    listing = await site.source.admin.find_group(group_id)
    if listing.type is GroupType.SHARE:
        return await _share_group_page(site, group_id)
    if listing.type in (GroupType.CONSUMER, GroupType.CLASSIC):
        return await _consumer_group_page(site, group_id)
    raise NotThere(f"group {group_id!r} is a {listing.type} group, of which this page shows nothing")


async def _share_group_page(site: Site, group_id: str) -> GroupPage:
    admin, detail = site.source.admin, site.source.detail
    group, offsets, configs = await asyncio.gather(
        admin.describe_share_group(group_id),
        admin.share_group_offsets(group_id),
        admin.group_config(group_id),
    )
    views, error = await share_views(site, group_id)
    timeouts: dict[Place, int] = {}
    counts: GroupCounts | None = None
    if detail is not None:
        counts = await detail.counts(group_id)
        for sample in await detail.samples():
            if sample.name == "AcquisitionLockTimeoutPerSec" and sample.labels.get("group") == group_id:
                timeouts[sample.labels["topic"], int(sample.labels["partition"])] = int(sample.value)
    windows = tuple(
        window_of(
            view,
            lag=offsets[place].lag if place in offsets else None,
            lock_timeouts=timeouts.get(place, 0) if detail is not None else None,
        )
        for place, view in views.items()
    )
    return GroupPage(
        group_id=group_id,
        type=GroupType.SHARE.value,
        state=group.state.value,
        group_epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
        assignor=group.assignor,
        coordinator=f"{group.coordinator.host}:{group.coordinator.port} ({group.coordinator.node_id})",
        members=_members(site, group, views, counts),
        windows=windows,
        is_live=detail is not None,
        windows_error=error,
        delivery_limit=_number(configs, "share.delivery.count.limit"),
        lock_ms=_number(configs, "share.record.lock.duration.ms"),
        dead_letter_topic=(configs[DEAD_LETTER_TOPIC].value or None)
        if DEAD_LETTER_TOPIC in configs
        else None,
    )


async def share_views(site: Site, group_id: str) -> tuple[dict[Place, SharePartitionState], str | None]:
    """Live where the broker is ours and here; else as written down, which needs a right that not everybody has."""
    if site.source.detail is not None:
        return await site.source.detail.share_state(group_id), None
    try:
        return {
            (*place,): view for place, view in (await site.source.admin.share_state(group_id)).items()
        }, None
    except KafkaError as error:
        return {}, str(error)


def _members(
    site: Site,
    group: ShareGroup,
    views: Mapping[Place, SharePartitionState],
    counts: GroupCounts | None,
) -> tuple[MemberRow, ...]:
    held: dict[str, int] = {}
    for view in views.values():
        for run in view.runs:
            if run.holder is not None:
                held[run.holder] = held.get(run.holder, 0) + run.count
    rates = site.member_rates(group.group_id, counts) if counts is not None else {}
    return tuple(
        _member(
            member,
            holds=held.get(member.member_id, 0) if counts is not None else None,
            rates=rates.get(member.member_id, (None, None)),
        )
        for member in sorted(group.members, key=lambda one: (one.client_id, one.member_id))
    )


def _member(member: GroupMember, *, holds: int | None, rates: tuple[float | None, float | None]) -> MemberRow:
    return MemberRow(
        member_id=member.member_id,
        client_id=member.client_id,
        host=member.host,
        rack=member.rack,
        member_epoch=member.member_epoch,
        assignment=tuple(f"{topic}-{partition}" for topic, partition in sorted(member.assignment)),
        holds=holds,
        rate_delivered=rates[0],
        rate_acknowledged=rates[1],
    )


async def _consumer_group_page(site: Site, group_id: str) -> GroupPage:
    group = await site.source.admin.describe_consumer_group(group_id)
    return GroupPage(
        group_id=group_id,
        type=group.type.value,
        state=group.state.value,
        group_epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
        assignor=group.assignor,
        coordinator=f"{group.coordinator.host}:{group.coordinator.port} ({group.coordinator.node_id})",
        members=tuple(_member(member, holds=None, rates=(None, None)) for member in group.members),
        offsets=tuple(
            OffsetRow(
                topic=one.topic,
                partition=one.partition,
                offset=one.offset,
                end_offset=one.end_offset,
                lag=one.lag,
                member_id=one.member_id,
            )
            for one in group.offsets.values()
        ),
    )


async def microscope(site: Site, choice: RecordChoice) -> Microscope:
    record = await one_record(site, choice.topic, choice.partition, choice.offset)
    alone = Microscope(
        group_id=None,
        topic=choice.topic,
        partition=choice.partition,
        offset=choice.offset,
        state="in the log" if record else "not there",
        explanation="" if record else "The log has no record at this offset.",
        delivery_count=None,
        delivery_limit=None,
        holder=None,
        lock_ms_left=None,
        is_live=False,
        may_release=False,
        record=record,
    )
    if choice.group is None:
        return alone
    views, error = await share_views(site, choice.group)
    if error is not None:
        raise NotThere(error)
    view = views.get((choice.topic, choice.partition))
    if view is None:
        raise NotThere(f"group {choice.group!r} has no state for {choice.topic}-{choice.partition}")
    configs = await site.source.admin.group_config(choice.group)
    limit = _number(configs, "share.delivery.count.limit")
    run = run_at(view, choice.offset)
    state, explanation = explain(view, choice.offset, delivery_limit=limit)
    return replace(
        alone,
        group_id=choice.group,
        state=state,
        explanation=explanation,
        delivery_count=run.delivery_count if run is not None and run.state != UNKNOWN else None,
        delivery_limit=limit,
        holder=run.holder if run else None,
        lock_ms_left=run.lock_ms_left if run else None,
        is_live=view.is_live,
        may_release=state == "acquired" and site.source.detail is not None and not site.options.is_read_only,
    )


def explain(view: SharePartitionState, offset: int, *, delivery_limit: int | None) -> tuple[str, str]:
    """A record's state, and in a sentence why it is in it and what comes next."""
    of_limit = f" of at most {delivery_limit}" if delivery_limit else ""
    if offset >= view.log_end_offset:
        return "not there", f"The log ends at {view.log_end_offset}: no record has this offset yet."
    if view.start_offset is None:
        return "undecided", "The group has not begun here: its first member's fetch decides where it starts."
    if offset < view.start_offset:
        return (
            "settled",
            f"Below the start offset {view.start_offset}: it was accepted or archived, or is from before the group.",
        )
    run = run_at(view, offset)
    if run is None:
        full = view.window_max is not None and view.in_flight >= view.window_max
        why = (
            f"the window is full ({view.in_flight} of {view.window_max}): it waits until its oldest records are settled"
            if full
            else "no member has fetched this far yet"
        )
        return "waiting", f"Behind the window: {why}."
    match run.state:
        case "acquired":
            left = f" for another {run.lock_ms_left / 1000:.0f} s" if run.lock_ms_left is not None else ""
            return run.state, f"Delivery {run.delivery_count}{of_limit}; {run.holder} holds it{left}."
        case "available":
            before = f" It was delivered {run.delivery_count} times{of_limit}." if run.delivery_count else ""
            return run.state, f"The next member that fetches gets it.{before}"
        case "acknowledged":
            return run.state, "Accepted; it goes when the records before it are settled too."
        case "archiving":
            return run.state, "Given up; its copy is on the way to the dead-letter topic."
        case "archived":
            return run.state, f"Given up: rejected, or delivered too often ({run.delivery_count}{of_limit})."
    return (
        UNKNOWN,
        "Nothing is written about it, so it is perhaps acquired: only the broker that serves it knows locks.",
    )


async def one_record(site: Site, topic: str, partition: int, offset: int) -> RecordRow | None:
    try:
        async for _, batch in read_range(
            site.source.cluster, topic, partition, offset, offset, patience_ms=RECORD_PATIENCE_MS
        ):
            for record in read_records(batch):
                if record.offset == offset:
                    return row_of(record, partition, whole=True)
    except KafkaError as error:
        if error.code not in (ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.OFFSET_NOT_AVAILABLE):
            raise
    return None


async def records_page(site: Site, choice: RecordsChoice) -> RecordsPage:
    """From an offset or a time on; the newest if neither is given. Offsets before the log begin at its start."""
    admin = site.source.admin
    place = choice.topic, choice.partition
    starts = await admin.list_offsets({place: OffsetSpec.EARLIEST})
    ends = await admin.list_offsets({place: OffsetSpec.LATEST})
    start, end = starts[place].offset or 0, ends[place].offset or 0
    if choice.time is not None:
        when = datetime.fromtimestamp(choice.time / 1000, UTC)
        found = (await admin.list_offsets({place: when}))[place].offset
        first = end if found is None else found
    elif choice.offset is not None:
        first = max(start, choice.offset)
    else:
        first = max(start, end - choice.limit)
    rows: list[RecordRow] = []
    if first < end:
        reading = read_range(site.source.cluster, *place, first, end - 1, max_bytes=READ_BYTES)
        async for _, batch in reading:
            rows += [
                row_of(record, choice.partition) for record in read_records(batch) if record.offset >= first
            ]
            if len(rows) >= choice.limit:
                break
        await reading.aclose()
    rows = rows[: choice.limit]
    return RecordsPage(
        topic=choice.topic,
        partition=choice.partition,
        start_offset=start,
        end_offset=end,
        records=tuple(rows),
        next_offset=rows[-1].offset + 1 if rows else end,
    )


async def topic_page(site: Site, name: str) -> TopicPage:
    admin = site.source.admin
    topic = (await admin.describe_topics([name], offsets=True))[name]
    return TopicPage(
        name=name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=tuple(
            PartitionRow(
                partition=one.partition,
                leader=one.leader,
                replicas=one.replicas,
                isr=one.isr,
                start_offset=one.start_offset,
                end_offset=one.end_offset,
            )
            for one in topic.partitions
        ),
        configs=_config_rows(await admin.topic_config(name)),
    )


async def group_configs(site: Site, group_id: str) -> tuple[ConfigRow, ...]:
    async def ask() -> tuple[ConfigRow, ...]:
        return _config_rows(await site.source.admin.group_config(group_id))

    return await site.cached(("configs", group_id), GROUP_S, ask)


async def dead_letters_page(site: Site, topic: str | None) -> DeadLettersPage:
    topics = await site.cached(("dead-letter topics",), LETTERS_S, lambda: dead_letter_topics(site))
    if topic is None:
        topic = topics[0] if len(topics) == 1 else None
    if topic is None:
        return DeadLettersPage(topics=topics, topic=None)
    chosen = topic
    return await site.cached(("letters", chosen), LETTERS_S, lambda: _dead_letters(site, topics, chosen))


async def _dead_letters(site: Site, topics: tuple[str, ...], topic: str) -> DeadLettersPage:
    listing = await site.source.admin.dead_letters(topic)
    newest = sorted(listing.letters, key=lambda letter: -letter.timestamp)[:LETTERS_SHOWN]
    return DeadLettersPage(
        topics=topics,
        topic=topic,
        causes=tuple(
            CauseRow(
                id=cause.id,
                text=cause.text,
                exception=cause.exception,
                group_id=cause.group_id,
                count=cause.count,
                waiting=cause.waiting,
                claimed=cause.claimed,
                redriven=cause.redriven,
                last_timestamp=cause.last_timestamp,
                source_topics=cause.source_topics,
            )
            for cause in listing.causes()
        ),
        letters=tuple(
            LetterRow(
                partition=letter.partition,
                offset=letter.offset,
                timestamp=letter.timestamp,
                status=letter.status.value,
                source=None
                if letter.source_topic is None
                else f"{letter.source_topic}-{letter.source_partition}@{letter.source_offset}",
                group_id=letter.group_id,
                delivery_count=letter.delivery_count,
                message=letter.message,
                cause=letter.cause,
            )
            for letter in newest
        ),
        total=len(listing.letters),
        waiting=sum(letter.status is LetterStatus.WAITING for letter in listing.letters),
        passed_over=listing.passed_over,
    )


async def dead_letter_topics(site: Site) -> tuple[str, ...]:
    return tuple(await site.source.admin.dead_letter_topics())


def _config_rows(configs: Mapping[str, ConfigEntry]) -> tuple[ConfigRow, ...]:
    return tuple(
        ConfigRow(
            name=entry.name,
            value=entry.value,
            is_set=entry.source.name in ("GROUP", "DYNAMIC_TOPIC"),
            is_read_only=entry.is_read_only or entry.is_sensitive,
            documentation=entry.documentation,
        )
        for entry in sorted(configs.values(), key=lambda entry: entry.name)
    )


def _number(configs: Mapping[str, ConfigEntry], name: str) -> int | None:
    entry = configs.get(name)
    value = entry.value if entry is not None else None
    return int(value) if value is not None and value.lstrip("-").isdigit() else None
