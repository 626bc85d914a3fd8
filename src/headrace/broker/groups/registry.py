"""What every type of group can do, and the one table of group ids.

A group id belongs to one group, whatever its type: classic, consumer (KIP-848) or share (KIP-932). The coordinator,
offsets and admin requests see groups only through `Group`.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeVar

from headrace.broker.groups.offsets import OffsetAndMetadata
from headrace.broker.groups.records import JournalEntry
from headrace.wire.enums import GroupType
from headrace.wire.errors import ErrorCode, KafkaError

G = TypeVar("G")


class Now(NamedTuple):
    """One instant on both clocks."""

    ms: int
    """Monotonic: deadlines."""
    wall_ms: int
    """Since 1970: what the journal records."""


@dataclass(frozen=True, slots=True)
class Write:
    """What a machine wants in the journal. Then exactly one of the two is called, at once.

    Without `written`, the change is whatever applying the entries does.
    """

    entries: Sequence[JournalEntry]
    written: Callable[[], None] | None = None
    refused: Callable[[ErrorCode], None] = lambda _: None


class Group(Protocol):
    @property
    def group_id(self) -> str: ...

    @property
    def type(self) -> GroupType: ...

    @property
    def protocol_type_name(self) -> str:
        """As ListGroups shows it: "consumer", another client's own word, or nothing for a simple group."""

    @property
    def state_name(self) -> str: ...

    @property
    def is_empty(self) -> bool: ...

    def check_offset_commit(
        self, *, member_id: str, instance_id: str | None, epoch: int, version: int, is_transactional: bool
    ) -> "CommitCheck | None":
        """Raises KafkaError unless this member may commit. Returns what remains to be checked for each partition."""

    def check_offset_fetch(self, *, member_id: str | None, epoch: int) -> None: ...

    def check_offset_delete(self) -> None: ...

    def check_delete(self) -> None: ...

    def note_offset_commit(self, member_id: str, now: Now) -> None:
        """A commit was accepted: where commits keep a session alive, they do so here."""

    def is_subscribed_to(self, topic: str) -> bool: ...

    def offsets_idle_since(self, committed: OffsetAndMetadata) -> int | None:
        """When an offset's retention began to count, by the wall clock; None: it does not."""

    def tombstones(self) -> list[JournalEntry]: ...

    def deadline_ms(self) -> int | None:
        """When `expire` wants to be called next."""

    def expire(self, now: Now) -> Write | None:
        """Deals with one thing that is due; called again until nothing is."""

    def start_clocks(self, now: Now) -> Write | None:
        """The group has come from the journal: its members get a whole session to show up again."""

    def forget_topic(self, topic: str) -> None:
        """The topic was made, deleted or has grown: what was computed from it is stale."""

    def snapshot(self) -> object:
        """Everything that a replay of the journal must bring back, for comparison."""


CommitCheck = Callable[[str, bytes, int], None]
"""Takes a topic's name and id and a partition; raises KafkaError."""


def require_group_id(group_id: str) -> None:
    if not group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID)


class Registry:
    def __init__(self) -> None:
        self._groups: dict[str, Group] = {}
        self.check: Callable[[str], None] = lambda group_id: None
        """Raises KafkaError for a group whose part of the journal cannot be read: nobody knows what it was."""

    def __iter__(self) -> Iterator[Group]:
        return iter([*self._groups.values()])

    def get(self, group_id: str) -> Group | None:
        self.check(group_id)
        return self._groups.get(group_id)

    def has(self, group: Group) -> bool:
        """It has not been deleted, nor has another taken its place."""
        return self._groups.get(group.group_id) is group

    def require(self, group_id: str) -> Group:
        group = self.get(group_id)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        return group

    def require_type(self, group_id: str, kind: type[G], word: str) -> G:
        group = self.require(group_id)
        if not isinstance(group, kind):
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a {word} group.")
        return group

    def put(self, group: Group) -> None:
        self._groups[group.group_id] = group

    def remove(self, group_id: str) -> None:
        self._groups.pop(group_id, None)
