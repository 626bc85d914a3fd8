"""The members of a classic group: who they are, who leads, which protocol they agree on."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush

from headrace.broker.later import Later
from headrace.wire.codec import MalformedMessage, read_message
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from headrace.wire.messages.group_metadata_value import MemberMetadata
from headrace.wire.messages.join_group_response import JoinGroupResponse
from headrace.wire.messages.sync_group_response import SyncGroupResponse

Protocols = tuple[tuple[str, bytes], ...]
"""Names with the member's metadata for each, the preferred one first."""


@dataclass(slots=True, kw_only=True)
class ClassicMember:
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_ms: int
    session_ms: int
    protocols: Protocols
    assignment: bytes = b""
    is_new: bool = False
    """Has not been through a rebalance yet: it may expire even while its JoinGroup is parked."""
    deadline_ms: int | None = None
    """When its session ends; None while the group waits, not the member."""
    joining: Later[JoinGroupResponse] | None = field(default=None, compare=False)
    syncing: Later[SyncGroupResponse] | None = field(default=None, compare=False)

    @property
    def is_excused(self) -> bool:
        """A member that has a request parked with us cannot send heartbeats."""
        return not self.is_new and (self.joining is not None or self.syncing is not None)

    def metadata(self, protocol_name: str | None) -> bytes:
        return next((metadata for name, metadata in self.protocols if name == protocol_name), b"")

    def answer_join(self, response: JoinGroupResponse) -> None:
        parked, self.joining = self.joining, None
        if parked is not None:
            parked.resolve(response)

    def answer_sync(self, response: SyncGroupResponse) -> bool:
        parked, self.syncing = self.syncing, None
        if parked is not None:
            parked.resolve(response)
        return parked is not None

    def as_record(self, protocol_name: str | None, assignment: bytes) -> MemberMetadata:
        return MemberMetadata(
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            rebalance_timeout=self.rebalance_ms,
            session_timeout=self.session_ms,
            subscription=self.metadata(protocol_name),
            assignment=assignment,
        )


class Deadlines:
    """Who is waited for until when. A client may announce very many: each costs the logarithm of their number."""

    def __init__(self) -> None:
        self._by_id: dict[str, int] = {}
        self._heap: list[tuple[int, str]] = []
        """With those that were discarded, until they come to the front or outnumber the others."""

    def __contains__(self, member_id: str) -> bool:
        return member_id in self._by_id

    def __len__(self) -> int:
        return len(self._by_id)

    def add(self, member_id: str, deadline_ms: int) -> None:
        self._by_id[member_id] = deadline_ms
        heappush(self._heap, (deadline_ms, member_id))

    def discard(self, member_id: str) -> None:
        self._by_id.pop(member_id, None)
        if len(self._heap) > 64 + 2 * len(self._by_id):
            self._heap = sorted((deadline_ms, known) for known, deadline_ms in self._by_id.items())

    def first_ms(self) -> int | None:
        """The first deadline."""
        while self._heap and self._by_id.get(self._heap[0][1]) != self._heap[0][0]:
            heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def pop_first(self) -> None:
        if self.first_ms() is not None:
            del self._by_id[heappop(self._heap)[1]]


class Members:
    def __init__(self, members: Sequence[ClassicMember] = (), leader_id: str | None = None) -> None:
        self._by_id = {member.member_id: member for member in members}
        self._static = {
            member.instance_id: member.member_id for member in members if member.instance_id is not None
        }
        self.leader_id = leader_id

    def __iter__(self) -> Iterator[ClassicMember]:
        return iter([*self._by_id.values()])

    def __len__(self) -> int:
        return len(self._by_id)

    def __contains__(self, member_id: str) -> bool:
        return member_id in self._by_id

    def get(self, member_id: str) -> ClassicMember | None:
        return self._by_id.get(member_id)

    def static(self, instance_id: str | None) -> ClassicMember | None:
        return self._by_id[self._static[instance_id]] if instance_id in self._static else None

    def require(self, member_id: str, instance_id: str | None) -> ClassicMember:
        """The member, unless another one has taken its instance id over."""
        if instance_id is not None:
            holder = self.static(instance_id)
            if holder is None:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
            if holder.member_id != member_id:
                raise KafkaError(ErrorCode.FENCED_INSTANCE_ID)
        member = self._by_id.get(member_id)
        if member is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        return member

    def add(self, member: ClassicMember) -> None:
        self._by_id[member.member_id] = member
        if member.instance_id is not None:
            self._static[member.instance_id] = member.member_id
        if self.leader_id is None:
            self.leader_id = member.member_id

    def remove(self, member_id: str) -> None:
        member = self._by_id.pop(member_id, None)
        if member is not None and member.instance_id is not None:
            del self._static[member.instance_id]
        if self.leader_id == member_id:
            self.leader_id = next(iter(self._by_id), None)

    def with_replaced(self, old: ClassicMember, new: ClassicMember) -> "Members":
        """The same members with another in the place of one, as leader too."""
        members = [new if member is old else member for member in self]
        return Members(members, new.member_id if self.leader_id == old.member_id else self.leader_id)

    def elect_joined_leader(self) -> bool:
        """Gives the lead to a member that has come back if the leader has not. False: nobody has."""
        leader = self._by_id.get(self.leader_id or "")
        if leader is None:
            return False
        if leader.joining is None:
            joined = next((member for member in self if member.joining is not None), None)
            if joined is None:
                return False
            self.leader_id = joined.member_id
        return True

    @property
    def joined_count(self) -> int:
        return sum(member.joining is not None for member in self._by_id.values())

    @property
    def rebalance_ms(self) -> int:
        return max((member.rebalance_ms for member in self._by_id.values()), default=0)

    def common_protocols(self) -> set[str]:
        """The names that every member supports."""
        counts = Counter(name for member in self for name in {name for name, _ in member.protocols})
        return {name for name, supporters in counts.items() if supporters == len(self)}

    def select_protocol(self) -> str:
        """The name with the most votes; each member votes for the first of its own that all support."""
        candidates = self.common_protocols()
        votes = Counter(
            next(name for name, _ in member.protocols if name in candidates) for member in self if candidates
        )
        return votes.most_common(1)[0][0]

    def subscribed_topics(self, protocol_name: str | None) -> frozenset[str] | None:
        """What the members of a consumer protocol read; None where their metadata is no consumer's."""
        if not len(self):
            return frozenset()
        topics: set[str] = set()
        for member in self:
            metadata = member.metadata(protocol_name)
            try:
                # Every version of the subscription begins with version 0's fields, after the version itself.
                subscription, _ = read_message(ConsumerProtocolSubscription, 0, metadata, 2)
            except MalformedMessage:
                return None
            topics.update(subscription.topics)
        return frozenset(topics)


def reborn(
    old: ClassicMember, member_id: str, *, protocols: Protocols, rebalance_ms: int, session_ms: int
) -> ClassicMember:
    """A static member that has come back under a new member id: same place and assignment, nothing parked."""
    return replace(
        old,
        member_id=member_id,
        protocols=protocols,
        rebalance_ms=rebalance_ms,
        session_ms=session_ms,
        is_new=False,
        joining=None,
        syncing=None,
    )
