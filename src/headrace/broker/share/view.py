"""The live view of a share group: every share-partition it has state for, as this broker serves it now."""

from typing import TYPE_CHECKING

from headrace.broker.groups.share import ShareGroup
from headrace.broker.share.loaded import LoadedPartition
from headrace.share.view import SharePartitionState, live_runs, written_runs
from headrace.wire.ids import uuid_text
from headrace.wire.share_state import ShareKey

if TYPE_CHECKING:
    from headrace.broker.core import BrokerCore
    from headrace.broker.share.state_store import StoredState
    from headrace.broker.topics import Partition

UNKNOWN = -1


def group_view(core: "BrokerCore", group_id: str) -> dict[tuple[str, int], SharePartitionState]:
    """By topic and partition, in order. KafkaError if there is no such share group."""
    core.groups.state.registry.require_type(group_id, ShareGroup, "share")
    loaded = {one.key: one for one in core.share_leader.loaded(group_id) if not one.is_fenced}
    views = {}
    keys = core.share_state.keys()
    for key in keys:
        topic = core.topics.by_id(key.topic_id)
        stored = core.share_state.get(key)
        if key.group_id != group_id or topic is None or stored is None:
            continue
        view = _view(core, key, topic.partitions[key.partition], stored, loaded.get(key))
        views[view.topic, view.partition] = view
    return dict(sorted(views.items()))


def _view(
    core: "BrokerCore",
    key: ShareKey,
    partition: "Partition",
    stored: "StoredState",
    loaded: LoadedPartition | None,
) -> SharePartitionState:
    start_offset: int | None
    next_offset: int | None
    complete: int | None
    if loaded is not None:
        window = loaded.engine.snapshot()
        start_offset, next_offset = window.start_offset, window.next_offset
        complete = loaded.engine.delivery_complete_count
        runs = live_runs(window.ranges, now_ms=core.clock.monotonic_ms())
    else:
        runs = written_runs(stored.merged())
        start_offset = None if stored.start_offset == UNKNOWN else stored.start_offset
        next_offset = runs[-1].last + 1 if runs else start_offset
        complete = None if stored.complete_count == UNKNOWN else stored.complete_count
    return SharePartitionState(
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
        runs=runs,
        log_start_offset=partition.log.start_offset,
        log_end_offset=partition.log.end_offset,
        is_live=True,
        window_max=core.settings.group_int(key.group_id, "share.partition.max.record.locks"),
    )
