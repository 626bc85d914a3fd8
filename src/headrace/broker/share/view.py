"""The live view of a share group: every share-partition it has state for, as this broker serves it now.

A window may be in a hundred thousand pieces. `gather_views` only copies them, on the broker's own thread, where
everybody waits for it; `finish_views` makes the view of that, on any thread.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from headrace.broker.groups.share import ShareGroup
from headrace.broker.share.loaded import LoadedPartition
from headrace.share.changes import StateBatch
from headrace.share.states import RecordState
from headrace.share.view import SharePartitionState, StateRun, live_runs, written_runs
from headrace.share.window import RangeView
from headrace.wire.ids import uuid_text
from headrace.wire.share_state import ShareKey

if TYPE_CHECKING:
    from headrace.broker.core import BrokerCore
    from headrace.broker.share.state_store import StoredState
    from headrace.broker.topics import Partition

UNKNOWN = -1


class GatheredState(NamedTuple):
    """A share-partition's view without its runs, and what they are to be made of."""

    view: SharePartitionState
    ranges: tuple[RangeView, ...] | None
    """Of a window that is being served; else what is stored counts."""
    stored: tuple[StateBatch, ...]
    now_ms: int


class WindowFigures(NamedTuple):
    """What is to be watched of a share-partition that is being served. Cheap, whatever the window holds."""

    group_id: str
    topic: str
    partition: int
    start_offset: int
    in_flight: int
    window_max: int
    near_limit: int
    """Records that wait for their last delivery."""
    lag: int
    """Records of the log that are not settled; also before the first acknowledgement is written down."""


def gather_figures(core: "BrokerCore") -> list[WindowFigures]:
    return [
        WindowFigures(
            loaded.key.group_id,
            loaded.partition.topic.name,
            loaded.partition.index,
            loaded.engine.start_offset,
            loaded.engine.window_size,
            loaded.limits().window_max,
            loaded.engine.near_limit(loaded.limits()),
            _lag(loaded),
        )
        for loaded in core.share_leader.loaded_everywhere()
        if not loaded.is_fenced
    ]


def _lag(loaded: LoadedPartition) -> int:
    unsettled = loaded.partition.log.end_offset - loaded.engine.start_offset
    return max(0, unsettled - loaded.engine.delivery_complete_count)


def group_view(core: "BrokerCore", group_id: str) -> dict[tuple[str, int], SharePartitionState]:
    """By topic and partition, in order. KafkaError if there is no such share group."""
    return finish_views(gather_views(core, group_id))


def finish_views(gathered: Iterable[GatheredState]) -> dict[tuple[str, int], SharePartitionState]:
    views = {}
    for view, ranges, stored, now_ms in gathered:
        runs = written_runs(stored) if ranges is None else live_runs(ranges, now_ms=now_ms)
        next_offset = view.next_offset
        if ranges is None:
            next_offset = runs[-1].last + 1 if runs else view.start_offset
            runs = tuple(_without_holes(replace(view, runs=runs), next_offset))
        views[view.topic, view.partition] = replace(view, runs=runs, next_offset=next_offset)
    return dict(sorted(views.items()))


def _without_holes(view: SharePartitionState, next_offset: int | None) -> Iterable[StateRun]:
    """Nobody holds a record of a window that is not being served."""
    for first, last, run in view.pieces(next_offset):
        yield StateRun(first, last, RecordState.AVAILABLE, 0) if run is None else run


def gather_views(core: "BrokerCore", group_id: str) -> list[GatheredState]:
    """KafkaError if there is no such share group."""
    core.groups.state.registry.require_type(group_id, ShareGroup, "share")
    loaded = {one.key: one for one in core.share_leader.loaded(group_id) if not one.is_fenced}
    gathered = []
    keys = core.share_state.keys()
    for key in keys:
        topic = core.topics.by_id(key.topic_id)
        stored = core.share_state.get(key)
        if key.group_id != group_id or topic is None or stored is None:
            continue
        gathered.append(_gather(core, key, topic.partitions[key.partition], stored, loaded.get(key)))
    return gathered


def _gather(
    core: "BrokerCore",
    key: ShareKey,
    partition: "Partition",
    stored: "StoredState",
    loaded: LoadedPartition | None,
) -> GatheredState:
    ranges: tuple[RangeView, ...] | None = None
    batches: tuple[StateBatch, ...] = ()
    next_offset: int | None = None
    start_offset: int | None = None if stored.start_offset == UNKNOWN else stored.start_offset
    complete: int | None = None if stored.complete_count == UNKNOWN else stored.complete_count
    if loaded is not None:
        window = loaded.engine.snapshot()
        ranges = window.ranges
        start_offset, next_offset = window.start_offset, window.next_offset
        complete = loaded.engine.delivery_complete_count
    else:
        batches = tuple(stored.merged())
    is_committed_only = core.settings.group_str(key.group_id, "share.isolation.level") == "read_committed"
    now_ms = core.clock.monotonic_ms()
    view = SharePartitionState(
        group_id=key.group_id,
        topic=partition.topic.name,
        topic_id=uuid_text(key.topic_id),
        partition=key.partition,
        start_offset=start_offset,
        next_offset=next_offset,
        state_epoch=stored.state_epoch,
        leader_epoch=stored.leader_epoch,
        snapshot_epoch=stored.snapshot_epoch,
        delivery_complete_count=complete,
        runs=(),
        log_start_offset=partition.log.start_offset,
        log_end_offset=partition.log.end_offset,
        is_live=True,
        created_ms=stored.create_timestamp,
        snapshot_ms=stored.write_timestamp,
        window_max=core.settings.group_int(key.group_id, "share.partition.max.record.locks"),
        full_since=None if loaded is None else loaded.full_since_ms,
        stable_offset=partition.log.stable_offset if is_committed_only else None,
        seen_at=now_ms + core.share_leader.wall_time.ahead_ms(),
    )
    return GatheredState(view, ranges, batches, now_ms)
