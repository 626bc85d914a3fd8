"""What the admin client answers with: plain values, frozen, ready to print or to turn into JSON.

Offsets, lags and epochs that the cluster does not know are None, never -1. Ids of topics are the 22 characters that
Kafka's own tools show. Where an answer has a part for each partition it is a dict by `(topic, partition)`, in order.
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
from headrace.wire.enums import ConfigSource, GroupState, GroupType
from headrace.wire.ids import TopicAndPartition
from headrace.wire.share_state import Snapshot, Update

E = TypeVar("E", bound=Enum)


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    cluster_id: str
    controller: Node | None
    nodes: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Features:
    """What the cluster has switched on, such as `share.version`, and what its brokers could."""

    finalized: Mapping[str, int]
    supported: Mapping[str, tuple[int, int]]
    """Lowest and highest level."""
    epoch: int | None
    """Grows with every change of the finalized levels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionDescription:
    partition: int
    leader: int | None
    leader_epoch: int | None
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline_replicas: tuple[int, ...]
    start_offset: int | None = None
    """Offsets are filled in on request."""
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
    """None also for what is secret."""
    source: ConfigSource
    is_read_only: bool
    is_sensitive: bool
    type: ConfigType
    documentation: str | None = None

    @property
    def is_default(self) -> bool:
        """Nobody has set it: neither for this topic or group, nor for its broker."""
        return self.source is ConfigSource.DEFAULT


@dataclass(frozen=True, slots=True)
class GroupListing:
    group_id: str
    type: GroupType
    state: GroupState
    protocol: str
    """"share" or "consumer"; of classic groups whatever their members have said."""


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
    """Of a static member; share groups have none."""


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
    """Where the group goes on; None for a partition it is assigned and has not committed yet."""
    leader_epoch: int | None
    metadata: str
    end_offset: int | None
    lag: int | None
    member_id: str | None
    """Who has the partition now."""


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
    """None until the first acknowledgement is written down."""
    end_offset: int | None
    """Of the log: where the next record will be."""
    lag: int | None
    """Records that are neither accepted nor archived, as the broker counts them (KIP-1226): acquired ones are among."""
    leader_epoch: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScramUser:
    """A user that logs in with SCRAM. `credentials` has the iterations of the password's hash by mechanism."""

    name: str
    credentials: dict[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskUsage:
    """One log directory of a broker."""

    broker_id: int
    path: str
    total_bytes: int | None
    """Of the volume that the directory is on; None where the broker does not tell."""
    free_bytes: int | None
    sizes: Mapping[TopicAndPartition, int]
    """Bytes of each partition, by topic and partition."""
    error: str | None = None
    """Why the broker cannot use the directory."""


@dataclass(frozen=True, slots=True)
class OffsetChange:
    """One line of a reset, done or only planned."""

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
    """One record of `__share_group_state`, as it lies there."""

    kind: StateRecordKind
    group_id: str
    topic: str
    topic_id: str
    partition: int
    value: Snapshot | Update | None
    state_partition: int
    """Where in the state topic, and at which offset there."""
    offset: int
    timestamp: int


def parse_choice(kind: type[E], given: "E | str") -> E:
    """A member of the enum by its value, in any spelling of case; ValueError names the choices."""
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
    """What a broker says, which may be newer than this client."""
    try:
        return parse_choice(kind, given)
    except ValueError:
        return fallback


def known(number: int) -> int | None:
    """Kafka's -1, for what nobody knows, as None."""
    return None if number < 0 else number


def in_order(places: Iterable[TopicAndPartition]) -> list[TopicPartition]:
    return [TopicPartition(*place) for place in sorted(set(places))]
