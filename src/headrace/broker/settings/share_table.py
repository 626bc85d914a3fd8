"""Settings of the broker for share groups: Kafka 4.3's names, defaults and ranges, and our own.

Windows of records in flight go far beyond Kafka's 10,000 (docs/decisions): the engine's cost does not grow with them.
What Kafka sets for threads, buffers and retries of its share coordinator has nothing to change here (foreign.py).
"""

from typing import Any

from headrace.base.settings import ConfigType as Type
from headrace.base.settings import Value
from headrace.broker.settings.setting import Scope, ScopedSetting, row

LOCKS_MAX = 10_000_000
HOUR_MS = 3_600_000
_ONE_NODE = " Headrace is one node, so it can only be 1."


def _share(
    name: str,
    default: Value | None,
    doc: str,
    minimum: int | None = None,
    maximum: int | None = None,
    *,
    kind: Type = Type.INT,
    **rest: Any,
) -> ScopedSetting:
    check = _one if name == "group.share.assignors" else None
    return row(Scope.BROKER, name, kind, default, doc, minimum=minimum, maximum=maximum, check=check, **rest)


def _one(value: Value) -> str | None:
    return None if value else "there must be one assignor"


_HEADRACE = (
    _share(
        "headrace.share.settling.heartbeat.interval.ms", 100,
        "The heartbeat interval of a share group's members while their assignment changes, so that new members get "
        "work at once. Otherwise it is share.heartbeat.interval.ms.", 1, HOUR_MS,
    ),
    _share(
        "headrace.share.initial.rebalance.delay.ms", 100,
        "How long the first member of an empty share group waits for others before it is assigned anything, so that "
        "consumers which start together share the backlog. It does not wait if at most one record is to be delivered.",
        0, HOUR_MS,
    ),
)  # fmt: skip

_DELIVERY = (
    _share(
        "group.share.delivery.count.limit", 5,
        "The maximum number of deliveries of a record before it is archived.", 2, 10,
    ),
    _share(
        "group.share.min.delivery.count.limit", 2,
        "Smallest share.delivery.count.limit a group may set.", 2, 5,
    ),
    _share(
        "group.share.max.delivery.count.limit", 10,
        "Largest share.delivery.count.limit a group may set.", 5, 25,
    ),
    _share(
        "group.share.record.lock.duration.ms", 30_000,
        "How long a record stays locked to the consumer it was delivered to.", 1000, HOUR_MS,
    ),
    _share(
        "group.share.min.record.lock.duration.ms", 15_000,
        "Smallest share.record.lock.duration.ms a group may set.", 1000, 30_000,
    ),
    _share(
        "group.share.max.record.lock.duration.ms", 60_000,
        "Largest share.record.lock.duration.ms a group may set.", 30_000, HOUR_MS,
    ),
    _share(
        "group.share.partition.max.record.locks", 2000,
        "How many records of one partition may be in flight for a group. Kafka allows at most 10000.", 100, LOCKS_MAX,
    ),
    _share(
        "group.share.min.partition.max.record.locks", 100,
        "Smallest share.partition.max.record.locks a group may set.", 100, 2000,
    ),
    _share(
        "group.share.max.partition.max.record.locks", 4000,
        "Largest share.partition.max.record.locks a group may set. Kafka allows at most 10000.", 2000, LOCKS_MAX,
    ),
    _share(
        "group.share.max.share.sessions", 2000,
        "The maximum number of share sessions, that is, of consumers that fetch at the same time.", 1,
    ),
)  # fmt: skip

_MEMBERS = (
    _share(
        "group.share.session.timeout.ms", 45_000,
        "A share-group member that sends no heartbeat for this long is removed.", 1,
    ),
    _share(
        "group.share.min.session.timeout.ms", 45_000,
        "Smallest share.session.timeout.ms a group may set.", 1,
    ),
    _share(
        "group.share.max.session.timeout.ms", 60_000,
        "Largest share.session.timeout.ms a group may set.", 1,
    ),
    _share(
        "group.share.heartbeat.interval.ms", 5000,
        "The heartbeat interval of share-group members.", 1,
    ),
    _share(
        "group.share.min.heartbeat.interval.ms", 5000,
        "Smallest share.heartbeat.interval.ms a group may set.", 1,
    ),
    _share(
        "group.share.max.heartbeat.interval.ms", 15_000,
        "Largest share.heartbeat.interval.ms a group may set.", 1,
    ),
    _share(
        "group.share.assignment.interval.ms", 1000,
        "Shortest time between two assignments of one share group. By default, small groups (up to 16 "
        "members and 1000 partitions) are reassigned at every change.", 0, is_dynamic=True,
    ),
    _share(
        "group.share.min.assignment.interval.ms", 0,
        "Smallest share.assignment.interval.ms a group may set.", 0,
    ),
    _share(
        "group.share.max.assignment.interval.ms", 15_000,
        "Largest share.assignment.interval.ms a group may set.", 0,
    ),
    _share("group.share.max.size", 200, "The maximum number of members of a share group.", 1, 1000),
    _share(
        "group.share.assignors", ("simple",),
        "The server-side assignor of share groups. There is one: it spreads members evenly over partitions.",
        kind=Type.LIST, choices=("simple",),
    ),
)  # fmt: skip

_STATE = (
    _share(
        "share.coordinator.state.topic.num.partitions", 50,
        "Partitions of `__share_group_state`. Fixed once the topic exists.", 1,
    ),
    _share(
        "share.coordinator.state.topic.replication.factor", 1,
        "Replicas of `__share_group_state`." + _ONE_NODE, 1, 1, kind=Type.SHORT,
    ),
    _share(
        "share.coordinator.state.topic.min.isr", 1,
        "Replicas of `__share_group_state` in sync." + _ONE_NODE, 1, 1, kind=Type.SHORT,
    ),
    _share(
        "share.coordinator.state.topic.segment.bytes", 100 << 20,
        "Segment size of `__share_group_state`.", 1 << 20,
    ),
    _share(
        "share.coordinator.snapshot.update.records.per.snapshot", 500,
        "How many changes of a share-partition are written before a snapshot of its state.", 0, 500,
    ),
    _share(
        "share.coordinator.state.topic.prune.interval.ms", 300_000,
        "How often `__share_group_state` is rid of what no snapshot needs.", 1, is_internal=True,
    ),
    _share(
        "headrace.share.state.history.ms", 600_000,
        "How long the history of share groups is kept in `__share_group_state`, for `headrace state --at` and the "
        "dashboard. At most 10,000 records are kept for it, because a start reads them.", 0, kind=Type.LONG,
    ),
)  # fmt: skip

_DEAD_LETTERS = (
    _share(
        "errors.deadletterqueue.auto.create.topics.enable", False,
        "Whether a group's dead-letter topic is created when it is first needed.",
        kind=Type.BOOLEAN, is_dynamic=True,
    ),
    _share(
        "errors.deadletterqueue.topic.name.prefix", "dlq.",
        "What the names of dead-letter topics must begin with; empty allows any name.",
        kind=Type.STRING, is_dynamic=True,
    ),
)  # fmt: skip

SHARE_SETTINGS: tuple[ScopedSetting, ...] = (*_HEADRACE, *_DELIVERY, *_MEMBERS, *_STATE, *_DEAD_LETTERS)
