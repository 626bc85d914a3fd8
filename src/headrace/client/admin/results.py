"""The results of the admin client: frozen dataclasses, ready to print or to convert to JSON.

Unknown offsets, lags and epochs are None, never -1. Topic IDs have the 22 characters that Kafka's own tools show.
Results for several partitions are dicts by `(topic, partition)`, in order.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import TypeVar

from headrace.base.names import nearest
from headrace.base.settings import ConfigType
from headrace.client.cluster import Node
from headrace.client.delivery import TopicPartition
from headrace.share.holds import PastHold
from headrace.wire.enums import ConfigSource, GroupState, GroupType
from headrace.wire.ids import TopicAndPartition
from headrace.wire.share_holds import holds_of
from headrace.wire.share_state import Snapshot, Update

E = TypeVar("E", bound=Enum)


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    cluster_id: str
    controller: Node | None
    nodes: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Features:
    """The feature levels of the cluster, such as that of `share.version`, and the levels that its brokers support."""

    finalized: Mapping[str, int]
    supported: Mapping[str, tuple[int, int]]
    """The lowest and highest level."""
    epoch: int | None
    """Increases with every change of the finalized levels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionDescription:
    partition: int
    leader: int | None
    leader_epoch: int | None
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline_replicas: tuple[int, ...]
    start_offset: int | None = None
    """None unless offsets were requested."""
    end_offset: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDescription:
    name: str
    topic_id: str
    is_internal: bool
    partitions: tuple[PartitionDescription, ...]

    @property
    def replication_factor(self) -> int:
        return len(self.partitions[0].replicas) if self.partitions else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigEntry:
    name: str
    value: str | None
    """None if the value is unset or sensitive."""
    source: ConfigSource
    is_read_only: bool
    is_sensitive: bool
    type: ConfigType
    documentation: str | None = None

    @property
    def is_default(self) -> bool:
        """True if the config is not set for this topic or group, nor for its broker."""
        return self.source is ConfigSource.DEFAULT


@dataclass(frozen=True, slots=True)
class GroupListing:
    group_id: str
    type: GroupType
    state: GroupState
    protocol: str
    """"share" or "consumer"; for classic groups, the protocol type that their members sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMember:
    member_id: str
    client_id: str
    host: str
    assignment: tuple[TopicPartition, ...]
    subscribed: tuple[str, ...] = ()
    member_epoch: int | None = None
    """None in classic groups."""
    rack: str | None = None
    instance_id: str | None = None
    """`group.instance.id` of a static member. Share groups have no static members."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareGroupDescription:
    group_id: str
    state: GroupState
    group_epoch: int
    assignment_epoch: int
    assignor: str
    coordinator: Node
    members: tuple[GroupMember, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedOffset:
    topic: str
    partition: int
    offset: int | None
    """The next offset to read; None if the partition is assigned but nothing was committed yet."""
    leader_epoch: int | None
    metadata: str
    end_offset: int | None
    lag: int | None
    member_id: str | None
    """The member that the partition is assigned to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupDescription:
    group_id: str
    type: GroupType
    state: GroupState
    group_epoch: int | None
    """Epochs are None in classic groups."""
    assignment_epoch: int | None
    assignor: str
    coordinator: Node
    members: tuple[GroupMember, ...]
    offsets: Mapping[TopicAndPartition, CommittedOffset]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareGroupOffset:
    topic: str
    partition: int
    start_offset: int | None
    """None until the first acknowledgement is stored."""
    end_offset: int | None
    """The end offset of the log, which is the offset of the next record."""
    lag: int | None
    """Records that are neither accepted nor archived, including acquired ones, as the broker counts them (KIP-1226)."""
    leader_epoch: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScramUser:
    """A user with SCRAM credentials. `credentials` has the number of iterations for each mechanism."""

    name: str
    credentials: dict[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskUsage:
    """One log directory of a broker."""

    broker_id: int
    path: str
    total_bytes: int | None
    """The size of the volume with the directory; None if the broker does not report it."""
    free_bytes: int | None
    sizes: Mapping[TopicAndPartition, int]
    """The size of each partition in bytes, by topic and partition."""
    error: str | None = None
    """Why the broker cannot use the directory."""


@dataclass(frozen=True, slots=True)
class OffsetChange:
    """The start offset of a partition before and after a reset, or a dry run of one."""

    topic: str
    partition: int
    before: int | None
    after: int


@dataclass(frozen=True, slots=True)
class ListedOffset:
    offset: int | None
    """None if the log has no record of that time or later."""
    timestamp: int | None
    leader_epoch: int | None


class StateRecordKind(StrEnum):
    SNAPSHOT = "snapshot"
    UPDATE = "update"
    TOMBSTONE = "tombstone"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareStateRecord:
    """A record of `__share_group_state`."""

    kind: StateRecordKind
    group_id: str
    topic: str
    topic_id: str
    partition: int
    value: Snapshot | Update | None
    state_partition: int
    """The partition of the record in `__share_group_state`, and its offset there."""
    offset: int
    timestamp: int

    @property
    def holds(self) -> tuple[PastHold, ...]:
        """The holds that ended with it: who had the records since when. Headrace writes them, Apache Kafka does not."""
        return () if self.value is None else tuple(holds_of(self.value, self.timestamp))


def parse_choice(kind: type[E], given: "E | str") -> E:
    """A member of the enum by its value, ignoring case. ValueError lists the choices."""
    if isinstance(given, kind):
        return given
    for member in kind:
        if str(member.value).lower() == str(given).lower():
            return member
    values = [str(member.value) for member in kind if str(member.value).lower() != "unknown"]
    what = re.sub(r"(?<!^)(?=[A-Z])", " ", kind.__name__).lower()
    meant = nearest(str(given), values)
    hint = f"; did you mean {meant!r}?" if meant else f"; choose from {', '.join(values)}"
    raise ValueError(f"{given!r} is not a {what}{hint}")


def known_or(kind: type[E], given: str, fallback: E) -> E:
    """The value from a broker, which may be newer than this client."""
    try:
        return parse_choice(kind, given)
    except ValueError:
        return fallback


def known(number: int) -> int | None:
    """A number from Kafka, with None for -1, which means unknown."""
    return None if number < 0 else number


def in_order(places: Iterable[TopicAndPartition]) -> list[TopicPartition]:
    return [TopicPartition(*place) for place in sorted(set(places))]
