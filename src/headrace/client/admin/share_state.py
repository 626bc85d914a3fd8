"""A share group's windows as they are written down, read from `__share_group_state` by plain fetches.

Each share-partition lives in one partition of that topic, by the hash that FindCoordinator uses, so only those are
read, from where their log begins to where it ends. Kafka deletes old records now and then, but only those before the
oldest snapshot that is still needed; a read that finds its place gone begins anew.
"""

from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from contextlib import aclosing, suppress
from datetime import datetime
from typing import Any, NamedTuple, TypeVar

from headrace.client.admin.call import AdminCall, in_parallel
from headrace.client.admin.offsets import as_timestamp, list_offsets
from headrace.client.admin.results import ListedOffset, ShareStateRecord, StateRecordKind, known
from headrace.client.admin.share_offsets import Topics, described_offsets, places_of
from headrace.client.delivery import TopicPartition
from headrace.client.errors import OffsetOutOfRangeError, error_for
from headrace.client.plain_fetch import read_range
from headrace.share.view import SharePartitionState, StateRun, written_runs
from headrace.wire.codec import MalformedMessage
from headrace.wire.enums import OffsetSpec
from headrace.wire.errors import ErrorCode
from headrace.wire.ids import TopicAndPartition, partition_for, uuid_text
from headrace.wire.records import Record, read_records
from headrace.wire.share_history import PastPartition
from headrace.wire.share_replay import ReplayedState, replay
from headrace.wire.share_state import STATE_TOPIC, ShareKey, Snapshot, Update, decode

READS_MAX = 5
"""How often a read begins anew because its records were pruned meanwhile; pruning is minutes apart."""
T = TypeVar("T")


class _Found(NamedTuple):
    key: ShareKey
    body: Snapshot | Update | None
    offset: int
    timestamp: int


class _Replayed(NamedTuple):
    state: ReplayedState
    runs: tuple[StateRun, ...]
    past: PastPartition | None = None
    """If it was replayed up to a time."""


async def share_state(
    call: AdminCall, group_id: str, topics: Topics | None, at: datetime | None = None
) -> dict[TopicAndPartition, SharePartitionState]:
    keys = await _keys(call, group_id, topics)
    played = await _read(call, keys.values(), _play_now if at is None else _play_until(as_timestamp(at)))
    states = {key: state for some in played for key, state in some.items()}
    places = [place for place, key in keys.items() if key in states]
    starts, ends = await in_parallel(
        list_offsets(call, dict.fromkeys(places, spec)) for spec in (OffsetSpec.EARLIEST, OffsetSpec.LATEST)
    )
    before = {} if at is None else await list_offsets(call, dict.fromkeys(places, at))
    return {
        place: view_of(
            keys[place],
            place,
            *states[keys[place]],
            log_start_offset=starts[place].offset or 0,
            log_end_offset=_end(before.get(place), ends[place]),
        )
        for place in places
    }


def _end(then: ListedOffset | None, now: ListedOffset) -> int:
    """Where the log ended at a time: before the first record of that time or later."""
    return (then.offset if then is not None and then.offset is not None else now.offset) or 0


async def _play_now(home: int, records: AsyncIterator[_Found]) -> "dict[ShareKey, _Replayed]":
    states: dict[ShareKey, ReplayedState | None] = {}
    async for record in records:
        states[record.key] = replay(states.get(record.key), record.body, ReplayedState.of)
    return {
        key: _Replayed(state, written_runs(state.merged()))
        for key, state in states.items()
        if state is not None
    }


def _play_until(
    at_ms: int,
) -> "Callable[[int, AsyncIterator[_Found]], Coroutine[Any, Any, dict[ShareKey, _Replayed]]]":
    async def play(home: int, records: AsyncIterator[_Found]) -> dict[ShareKey, _Replayed]:
        pasts: dict[ShareKey, PastPartition] = {}
        async for record in records:
            past = pasts.setdefault(record.key, PastPartition(at_ms))
            past.add(record.timestamp, record.body)
        return {
            key: _Replayed(past.state, past.runs(), past)
            for key, past in pasts.items()
            if past.state is not None
        }

    return play


async def share_state_records(
    call: AdminCall, group_id: str, topics: Topics | None
) -> list[ShareStateRecord]:
    keys = await _keys(call, group_id, topics)
    names = {key: place for place, key in keys.items()}

    async def collect(home: int, records: AsyncIterator[_Found]) -> list[ShareStateRecord]:
        return [
            ShareStateRecord(
                kind=_kind(record.body),
                group_id=group_id,
                topic=names[record.key].topic,
                topic_id=uuid_text(record.key.topic_id),
                partition=record.key.partition,
                value=record.body,
                state_partition=home,
                offset=record.offset,
                timestamp=record.timestamp,
            )
            async for record in records
        ]

    return [record for found in await _read(call, keys.values(), collect) for record in found]


async def _keys(call: AdminCall, group_id: str, topics: Topics | None) -> dict[TopicPartition, ShareKey]:
    places = None if topics is None else await places_of(call, topics)
    found = await described_offsets(call, group_id, places)
    return {
        place: ShareKey(group_id, bytes(topic_id), place.partition) for place, (topic_id, _) in found.items()
    }


async def _read(
    call: AdminCall,
    keys: Iterable[ShareKey],
    consume: Callable[[int, AsyncIterator[_Found]], Coroutine[Any, Any, T]],
) -> list[T]:
    """What `consume` makes of the records of these share-partitions: called for each partition that has some."""
    wanted = frozenset(keys)
    if not wanted:
        return []
    await call.cluster.refresh([STATE_TOPIC])
    topic = call.cluster.topic(STATE_TOPIC)
    if topic is None:
        return []

    async def read_partition(home: int) -> T:
        for _ in range(READS_MAX - 1):
            with suppress(OffsetOutOfRangeError):
                return await consume(home, _records(call, home, wanted))
        return await consume(home, _records(call, home, wanted))

    homes = sorted({partition_for(key.text, len(topic.partitions)) for key in wanted})
    return await in_parallel(read_partition(home) for home in homes)


async def _records(call: AdminCall, home: int, wanted: frozenset[ShareKey]) -> AsyncIterator[_Found]:
    """Oldest first, from where the log begins to where it ends now."""
    place = STATE_TOPIC, home
    start = (await list_offsets(call, {place: OffsetSpec.EARLIEST}))[place].offset or 0
    end = (await list_offsets(call, {place: OffsetSpec.LATEST}))[place].offset or 0
    if start >= end:
        return
    async with aclosing(read_range(call.cluster, STATE_TOPIC, home, start, end - 1)) as batches:
        async for _, batch in batches:
            for record in read_records(batch):
                decoded = _decode(home, record)
                if decoded is not None and decoded[0] in wanted and start <= record.offset < end:
                    yield _Found(*decoded, record.offset, record.timestamp)


def _decode(home: int, record: Record) -> tuple[ShareKey, Snapshot | Update | None] | None:
    try:
        return decode(record.key or b"", record.value)
    except MalformedMessage as error:
        raise error_for(
            ErrorCode.CORRUPT_MESSAGE,
            f"record {record.offset} is not a valid share-state record: {error}",
            about=f"partition {home} of topic {STATE_TOPIC!r}",
        ) from None


def _kind(body: Snapshot | Update | None) -> StateRecordKind:
    if body is None:
        return StateRecordKind.TOMBSTONE
    return StateRecordKind.SNAPSHOT if isinstance(body, Snapshot) else StateRecordKind.UPDATE


def view_of(
    key: ShareKey,
    place: TopicPartition,
    state: ReplayedState,
    runs: tuple[StateRun, ...],
    past: PastPartition | None = None,
    *,
    log_start_offset: int,
    log_end_offset: int,
) -> SharePartitionState:
    start_offset = known(state.start_offset)
    if start_offset is None and runs and runs[0].holder is not None:
        # Where it begins is written with the first answer: until then these were held.
        start_offset = runs[0].first
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
        names_holders=None if past is None else past.names_holders,
        ended=() if past is None else past.latest(),
        created_ms=state.create_timestamp,
        snapshot_ms=state.write_timestamp,
    )
