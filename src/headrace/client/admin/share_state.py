"""A share group's windows as they are written down, read from `__share_group_state` by plain fetches.

Each share-partition lives in one partition of that topic, by the hash that FindCoordinator uses, so only those are
read: from their log start, which is never before a snapshot that is still needed, to their end. Old records are
deleted behind our back now and then; a read that finds its place gone begins anew.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from headrace.client.admin.call import Call, in_parallel
from headrace.client.admin.offsets import start_and_end_offsets
from headrace.client.admin.replay import Replay, ReplayedState
from headrace.client.admin.results import (
    Place,
    ShareStateRecord,
    StateRecordKind,
    known,
)
from headrace.client.admin.share_offsets import Topics, described_offsets, places_of
from headrace.client.delivery import TopicPartition
from headrace.client.errors import OffsetOutOfRangeError, error_for
from headrace.client.plain_fetch import read_range
from headrace.share.view import SharePartitionState, written_runs
from headrace.wire.codec import MalformedMessage
from headrace.wire.errors import ErrorCode
from headrace.wire.ids import partition_for, uuid_text
from headrace.wire.records import read_records
from headrace.wire.share_state import STATE_TOPIC, ShareKey, Snapshot, Update, decode

READS_MAX = 5
"""How often a read begins anew because its records were pruned meanwhile; pruning is minutes apart."""


@dataclass(frozen=True, slots=True)
class _Found:
    key: ShareKey
    body: Snapshot | Update | None
    state_partition: int
    offset: int
    timestamp: int


async def share_state(call: Call, group_id: str, topics: Topics | None) -> dict[Place, SharePartitionState]:
    keys = await _keys(call, group_id, topics)
    replay = Replay()
    for record in await _read(call, keys.values()):
        replay.feed(record.key, record.body)
    places = [place for place, key in keys.items() if key in replay.states]
    starts, ends = await start_and_end_offsets(call, places)
    return {
        place: _view(
            keys[place],
            place,
            replay.states[keys[place]],
            log_start_offset=starts[place].offset or 0,
            log_end_offset=ends[place].offset or 0,
        )
        for place in places
    }


async def share_state_records(call: Call, group_id: str, topics: Topics | None) -> list[ShareStateRecord]:
    keys = await _keys(call, group_id, topics)
    names = {key: place for place, key in keys.items()}
    return [
        ShareStateRecord(
            kind=_kind(record.body),
            group_id=group_id,
            topic=names[record.key].topic,
            topic_id=uuid_text(record.key.topic_id),
            partition=record.key.partition,
            value=record.body,
            state_partition=record.state_partition,
            offset=record.offset,
            timestamp=record.timestamp,
        )
        for record in await _read(call, keys.values())
    ]


async def _keys(call: Call, group_id: str, topics: Topics | None) -> dict[TopicPartition, ShareKey]:
    places = None if topics is None else await places_of(call, topics)
    found = await described_offsets(call, group_id, places)
    return {
        place: ShareKey(group_id, bytes(topic_id), place.partition) for place, (topic_id, _) in found.items()
    }


async def _read(call: Call, keys: Iterable[ShareKey]) -> list[_Found]:
    """Every record that the state topic has for these share-partitions, oldest first within each of them."""
    wanted = frozenset(keys)
    if not wanted:
        return []
    await call.cluster.refresh([STATE_TOPIC])
    topic = call.cluster.topic(STATE_TOPIC)
    if topic is None:
        return []
    homes = sorted({partition_for(key.text, len(topic.partitions)) for key in wanted})
    found = await in_parallel(_read_partition(call, home, wanted) for home in homes)
    return [record for records in found for record in records]


async def _read_partition(call: Call, home: int, wanted: frozenset[ShareKey]) -> list[_Found]:
    place = STATE_TOPIC, home
    for tries_left in reversed(range(READS_MAX)):
        starts, ends = await start_and_end_offsets(call, [place])
        start, end = starts[place].offset or 0, ends[place].offset or 0
        try:
            return await _read_between(call, home, start, end, wanted)
        except OffsetOutOfRangeError:
            if not tries_left:
                raise
    raise AssertionError("unreachable")


async def _read_between(
    call: Call, home: int, start: int, end: int, wanted: frozenset[ShareKey]
) -> list[_Found]:
    found: list[_Found] = []
    if start >= end:
        return found
    async for _, batch in read_range(call.cluster, STATE_TOPIC, home, start, end - 1):
        for record in read_records(batch):
            try:
                decoded = decode(record.key or b"", record.value)
            except MalformedMessage as error:
                raise error_for(
                    ErrorCode.CORRUPT_MESSAGE,
                    f"record {record.offset} is no share state: {error}",
                    about=f"partition {home} of topic {STATE_TOPIC!r}",
                ) from None
            if decoded is not None and decoded[0] in wanted and start <= record.offset < end:
                found.append(_Found(*decoded, home, record.offset, record.timestamp))
    return found


def _kind(body: Snapshot | Update | None) -> StateRecordKind:
    if body is None:
        return StateRecordKind.TOMBSTONE
    return StateRecordKind.SNAPSHOT if isinstance(body, Snapshot) else StateRecordKind.UPDATE


def _view(
    key: ShareKey,
    place: TopicPartition,
    state: ReplayedState,
    *,
    log_start_offset: int,
    log_end_offset: int,
) -> SharePartitionState:
    runs = written_runs(state.batches())
    start_offset = known(state.start_offset)
    return SharePartitionState(
        group_id=key.group_id,
        topic=place.topic,
        topic_id=uuid_text(key.topic_id),
        partition=key.partition,
        start_offset=start_offset,
        next_offset=runs[-1].last + 1 if runs else start_offset,
        state_epoch=state.state_epoch,
        leader_epoch=state.leader_epoch,
        snapshot_epoch=state.snapshot_epoch,
        delivery_complete_count=known(state.complete_count),
        runs=runs,
        log_start_offset=log_start_offset,
        log_end_offset=log_end_offset,
        is_live=False,
    )
