"""What the pages and the API ask for, made from the source: groups, windows, records, topics, dead letters."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace

from headrace.client.admin.explain import explain, member_name
from headrace.client.admin.results import ConfigEntry, GroupMember, ShareGroupDescription
from headrace.client.admin.scaling import GroupLoad, scale
from headrace.client.admin.survey import place_lag
from headrace.share.view import SharePartitionState
from headrace.web.browse import one_record
from headrace.web.embedded import GroupCounts
from headrace.web.model import (
    ConfigRow,
    GroupPage,
    GroupScale,
    MemberRow,
    ReaderRow,
    RecordChoice,
    RecordPage,
    RecordRow,
    ScaleChoice,
    TopicPage,
)
from headrace.web.site import NotThere, Site
from headrace.web.windows import UNKNOWN, run_at, window_of
from headrace.wire.enums import GroupType
from headrace.wire.errors import KafkaError
from headrace.wire.ids import TopicAndPartition

CONFIGS_OF = {
    "share": ("share.", "errors.deadletterqueue."),
    "consumer": ("consumer.",),
    "streams": ("streams.",),
}
"""Beginnings of the names of configs, by the kind of group that they are for."""
GROUP_S = 0.8
READERS_MAX = 200
DEAD_LETTER_TOPIC = "errors.deadletterqueue.topic.name"


async def group_page(site: Site, group_id: str) -> GroupPage:
    return await site.cached(("group", group_id), GROUP_S, lambda: _group_page(site, group_id))


async def _group_page(site: Site, group_id: str) -> GroupPage:
    listing = await site.source.admin.find_group(group_id)
    if listing.type is GroupType.SHARE:
        return await _share_group_page(site, group_id)
    if listing.type in (GroupType.CONSUMER, GroupType.CLASSIC):
        return await _consumer_group_page(site, group_id)
    raise NotThere(f"group {group_id!r} is a {listing.type} group, which this page cannot show")


async def _share_group_page(site: Site, group_id: str) -> GroupPage:
    admin, detail = site.source.admin, site.source.detail
    group, offsets, configs = await asyncio.gather(
        admin.describe_share_group(group_id),
        admin.share_group_offsets(group_id),
        admin.group_config(group_id),
    )
    views, error = await share_views(site, group_id)
    timeouts: dict[TopicAndPartition, int] = {}
    counts: GroupCounts | None = None
    if detail is not None:
        counts = await detail.counts(group_id)
        for sample in await detail.samples():
            if sample.name == "AcquisitionLockTimeoutPerSec" and sample.labels.get("group") == group_id:
                timeouts[sample.labels["topic"], int(sample.labels["partition"])] = int(sample.value)
    windows = tuple(
        window_of(
            view,
            lag=offsets[place].lag if place in offsets and offsets[place].lag is not None else view.lag,
            lock_timeouts=timeouts.get(place, 0) if detail is not None else None,
            names={one.member_id: member_name(one.client_id, one.host) for one in group.members},
            members=len(group.members),
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


async def share_views(
    site: Site, group_id: str
) -> tuple[dict[TopicAndPartition, SharePartitionState], str | None]:
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
    group: ShareGroupDescription,
    views: Mapping[TopicAndPartition, SharePartitionState],
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
        offsets=tuple(group.offsets.values()),
    )


async def group_scale(site: Site, choice: ScaleChoice) -> GroupScale:
    """From what was last sampled. Old figures are refused: an autoscaler must not act on them."""
    overview = site.overview
    if overview.sampled_at is None or overview.gone_since is not None:
        raise ConnectionError(overview.error or "nothing has been sampled yet")
    row = next((row for row in overview.groups if row.group_id == choice.group), None)
    if row is None:
        await site.source.admin.find_group(choice.group)  # says that there is none
        raise NotThere(f"group {choice.group!r} is not sampled yet, or there are too many groups")
    if row.error is not None:
        raise ConnectionError(f"group {choice.group!r} cannot be read: {row.error}")
    found = scale(
        GroupLoad(members=row.members, lag=row.lag, rate_done=row.rate_done),
        drain_s=choice.drain_s,
        least=choice.min,
        most=choice.max,
        rate_per_member=choice.rate,
    )
    return GroupScale(
        group_id=choice.group,
        members=found.members,
        desired_members=found.desired_members,
        lag=found.lag,
        rate_per_member=found.rate_per_member,
        reason=found.reason,
        sampled_at=overview.sampled_at,
    )


async def microscope(site: Site, choice: RecordChoice) -> RecordPage:
    record = await one_record(site, choice.topic, choice.partition, choice.offset)
    alone = _without_group(choice, record)
    if choice.group is None:
        return alone
    views, error = await share_views(site, choice.group)
    if error is not None:
        raise NotThere(error)
    view = views.get((choice.topic, choice.partition))
    if view is None:
        raise NotThere(f"group {choice.group!r} has no state for {choice.topic}-{choice.partition}")
    configs, members = await asyncio.gather(
        site.source.admin.group_config(choice.group), share_members(site, choice.group)
    )
    names = {one.member_id: member_name(one.client_id, one.host) for one in members}
    limit = _number(configs, "share.delivery.count.limit")
    run = run_at(view, choice.offset)
    why = explain(
        view,
        choice.offset,
        delivery_limit=limit,
        names=names,
        members=len(members),
        readers=sum((choice.topic, choice.partition) in one.assignment for one in members),
    )
    return replace(
        alone,
        group_id=choice.group,
        state=why.state,
        explanation=why.text,
        blocker=why.blocker,
        delivery_count=run.delivery_count if run is not None and run.state != UNKNOWN else None,
        delivery_limit=limit,
        holder=run.holder if run else None,
        holder_name=names.get(run.holder, run.holder) if run and run.holder else None,
        held_ms=run.held_ms if run else None,
        renewals=run.renewals if run else None,
        lock_ms_left=run.lock_ms_left if run else None,
        is_live=view.is_live,
        may_release=why.state == "acquired"
        and site.source.detail is not None
        and not site.options.is_read_only,
    )


def _without_group(choice: RecordChoice, record: RecordRow | None) -> RecordPage:
    return RecordPage(
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


async def share_members(site: Site, group_id: str) -> tuple[GroupMember, ...]:
    async def ask() -> tuple[GroupMember, ...]:
        return (await site.source.admin.describe_share_group(group_id)).members

    return await site.cached(("members", group_id), GROUP_S, ask)


async def topic_page(site: Site, name: str) -> TopicPage:
    admin = site.source.admin
    topic = (await admin.describe_topics([name], offsets=True))[name]
    configs = await admin.topic_config(name)
    row = next((one for one in site.overview.topics if one.name == name), None)
    retention_ms, retention_bytes = _number(configs, "retention.ms"), _number(configs, "retention.bytes")
    return TopicPage(
        name=name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=topic.partitions,
        configs=_config_rows(configs),
        readers=readers_of(site, name),
        records=sum((one.end_offset or 0) - (one.start_offset or 0) for one in topic.partitions),
        rate_in=row.rate_in if row else None,
        size=row.size if row else None,
        retention_ms=retention_ms if retention_ms is not None and retention_ms >= 0 else None,
        retention_bytes=retention_bytes if retention_bytes is not None and retention_bytes >= 0 else None,
        cleanup=(configs["cleanup.policy"].value or "") if "cleanup.policy" in configs else "",
    )


def readers_of(site: Site, topic: str) -> tuple[ReaderRow, ...]:
    """The groups that have offsets in a topic, as last sampled."""
    sampler = site.sampler
    rows = {row.group_id: row for row in sampler.overview.groups}
    readers = []
    for group_id, survey in sampler.surveys.items():
        places = [place for place in survey.places if place.topic == topic]
        row = rows.get(group_id)
        if not places or row is None:
            continue
        lags = [lag for place in places if (lag := place_lag(survey, place, sampler.ends)) is not None]
        readers.append(
            ReaderRow(
                group_id=group_id,
                type=row.type,
                lag=sum(lags) if lags else None,
                members=row.members,
                level=row.level,
                reasons=row.reasons,
            )
        )
    return tuple(sorted(readers, key=lambda one: (-(one.lag or 0), one.group_id))[:READERS_MAX])


async def group_configs(site: Site, group_id: str) -> tuple[ConfigRow, ...]:
    async def ask() -> tuple[ConfigRow, ...]:
        return _config_rows(await site.source.admin.group_config(group_id))

    return await site.cached(("configs", group_id), GROUP_S, ask)


def configs_for(kind: str, rows: tuple[ConfigRow, ...]) -> tuple[ConfigRow, ...]:
    """Without those that only groups of other kinds have: Kafka lists them for every group. What is set stays."""
    kind = kind if kind in CONFIGS_OF else "consumer"  # a classic group may become one
    others = tuple(prefix for name, prefixes in CONFIGS_OF.items() if name != kind for prefix in prefixes)
    return tuple(row for row in rows if row.is_set or not row.name.startswith(others))


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
