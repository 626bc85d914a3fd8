"""The facts of a share group's membership: what a heartbeat says, what the group keeps and journals, what it answers.

The changes are what Kafka's records 10 to 15 in `__consumer_offsets` say, as plain data: the broker writes them
there and reads them back.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from headrace.share.assignor import Assignment
from headrace.share.errors import InvalidRequest

MEMBER_ID_MAX = 36
JOIN_EPOCH = 0
LEAVE_EPOCH = -1


class TopicInfo(NamedTuple):
    """A topic as it exists now."""

    topic_id: bytes
    partitions: int


TopicLookup: TypeAlias = Callable[[str], TopicInfo | None]
Fingerprint: TypeAlias = Callable[[Iterable[tuple[str, bytes, int]]], int]
"""A number that changes when one of the topics (name, id, partition count) does; 0 for none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatRequest:
    member_id: str
    member_epoch: int
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    subscribed: tuple[str, ...] | None = None  # None: as before

    def check(self) -> None:
        """Refuses what no group could answer."""
        if not self.member_id or len(self.member_id) > MEMBER_ID_MAX:
            raise InvalidRequest(f"MemberId must have 1 to {MEMBER_ID_MAX} characters.")
        if self.member_epoch < LEAVE_EPOCH:
            raise InvalidRequest("MemberEpoch is invalid.")
        if self.rack_id == "":
            raise InvalidRequest("RackId can't be empty.")
        if self.member_epoch == JOIN_EPOCH and not self.subscribed:
            raise InvalidRequest("SubscribedTopicNames must be set in first request.")


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    """Read anew for every heartbeat."""

    session_ms: int = 45_000  # share.session.timeout.ms
    heartbeat_ms: int = 5_000  # share.heartbeat.interval.ms
    assignment_interval_ms: int = 1_000  # share.assignment.interval.ms
    initial_delay_ms: int = (
        0  # for how long an empty group's first member waits for others before the assignment
    )
    is_small_group_at_once: bool = False  # the assignment interval does not hold for a small group
    members_max: int = 200  # group.share.max.size
    motion_heartbeat_ms: int = 100  # what members are told while an assignment is in motion
    motion_ms: int = 3_000  # for how long after the group's epoch moved it counts as in motion


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberMetadata:
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    subscribed: tuple[str, ...] = ()  # sorted


@dataclass(frozen=True, slots=True, kw_only=True)
class CurrentAssignment:
    member_epoch: int = 0
    previous_epoch: int = 0
    assigned: Assignment = field(default_factory=dict)


class TopicState(NamedTuple):
    """Partitions of a topic whose share state is (being) initialized for the group."""

    name: str
    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class MemberChanged:
    member_id: str
    metadata: MemberMetadata | None  # None: the member is gone


@dataclass(frozen=True, slots=True)
class EpochChanged:
    epoch: int
    metadata_hash: int


@dataclass(frozen=True, slots=True)
class TargetEpochChanged:
    assignment_epoch: int


@dataclass(frozen=True, slots=True)
class TargetChanged:
    member_id: str
    target: Assignment | None


@dataclass(frozen=True, slots=True)
class CurrentChanged:
    member_id: str
    current: CurrentAssignment | None


@dataclass(frozen=True, slots=True)
class StateTopicsChanged:
    """All of it, each time; by topic id."""

    initialized: Mapping[bytes, TopicState]
    initializing: Mapping[bytes, TopicState] = field(default_factory=dict)
    deleting: Mapping[bytes, str] = field(default_factory=dict)


GroupChange: TypeAlias = (
    MemberChanged | EpochChanged | TargetEpochChanged | TargetChanged | CurrentChanged | StateTopicsChanged
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberHeartbeat:
    """A decided heartbeat: first initialize, then journal, then apply, then answer."""

    changes: list[GroupChange]
    initialize: Mapping[
        bytes, TopicState
    ]  # partitions whose share state is to be created now, with `state_epoch`
    grown: frozenset[bytes]  # of these topics, those that the group has read before: they got more partitions
    state_epoch: int
    member_epoch: int
    heartbeat_ms: int
    assignment: Assignment | None  # None: as the member knows it
