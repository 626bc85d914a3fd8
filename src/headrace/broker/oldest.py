"""How old the oldest record is that a group has not settled: the figure that says whether work is done in time.

A group's start offset (share) or committed offset (consumer) is the oldest record it has not settled, and the header of
that record's batch says when it came. Only headers are read. The walk is a generator: with thousands of partitions it
takes several turns of the loop.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from headrace.share.states import RecordState
from headrace.wire.share_state import ShareKey

if TYPE_CHECKING:
    from headrace.broker.core import BrokerCore
    from headrace.broker.share.state_store import StoredState
    from headrace.broker.topics import Partition

PARTITIONS_PER_STEP = 50
SETTLED = RecordState.ACKNOWLEDGED, RecordState.ARCHIVED

Unsettled = tuple[str, "Partition", int]
"""A group, a partition that it reads, and its first offset there that is not settled."""


def oldest_unsettled(core: "BrokerCore", found: dict[str, int]) -> Iterator[None]:
    """Puts the timestamp (ms) of each group's oldest unsettled record into `found`; groups without one are left out."""
    for count, (group_id, partition, offset) in enumerate(_unsettled(core), 1):
        log = partition.opened_log
        timestamp = None if log is None else log.reader.batch_timestamp(max(offset, log.start_offset))
        if timestamp is not None:
            found[group_id] = min(timestamp, found.get(group_id, timestamp))
        if count % PARTITIONS_PER_STEP == 0:
            yield


def _unsettled(core: "BrokerCore") -> Iterator[Unsettled]:
    for key in list(core.share_state.keys()):
        topic = core.topics.by_id(key.topic_id)
        offset = _share_start(core, key)
        if topic is not None and offset is not None and key.partition < len(topic.partitions):
            yield key.group_id, topic.partitions[key.partition], offset
    for group in core.groups.state.registry:
        for name, partitions in list(core.groups.state.offsets.of_group(group.group_id)):
            topic = core.topics.get(name)
            for index, committed in partitions.items():
                if topic is not None and index < len(topic.partitions):
                    yield group.group_id, topic.partitions[index], committed.offset


def _share_start(core: "BrokerCore", key: ShareKey) -> int | None:
    loaded = core.share_leader.serving(key)
    if loaded is not None:
        return loaded.engine.start_offset
    stored = core.share_state.get(key)
    return None if stored is None or stored.start_offset < 0 else first_unsettled(stored)


def first_unsettled(stored: "StoredState") -> int:
    """The start offset is written with the next write after it has moved; until then settled records come first."""
    offset = stored.start_offset
    for batch in stored.merged():
        if batch.first > offset or batch.state not in SETTLED:
            break
        offset = max(offset, batch.last + 1)
    return offset
