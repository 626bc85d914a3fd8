"""Share groups (KIP-932) among the other groups: the engine's rules of membership behind what every group can do.

The rules (headrace.share.group) decide and apply; share_requests.py carries decisions to the journal. Here the group
answers what the coordinator, offsets and admin requests ask of any group. A share group commits no offsets and never
expires.
"""

from headrace.broker.groups import share_records
from headrace.broker.groups.hashing import topics_fingerprint
from headrace.broker.groups.offsets import CommittedOffset
from headrace.broker.groups.records import JournalEntry
from headrace.broker.groups.registry import CommitCheck, GroupType, Now, Write
from headrace.broker.groups.subscriptions import TopicsView
from headrace.share.assignor import Assignment
from headrace.share.group import ShareGroup as Rules
from headrace.share.membership import GroupChange, TopicInfo
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.message import Message
from headrace.wire.messages.share_group_describe_response import (
    Assignment as DescribedAssignment,
)
from headrace.wire.messages.share_group_describe_response import (
    DescribedGroup,
    Member,
    TopicPartitions,
)

EMPTY, STABLE = "Empty", "Stable"


class ShareGroup:
    type = GroupType.SHARE
    protocol_type_name = "share"

    def __init__(self, group_id: str, topics: TopicsView, *, session_ms: int = 45_000) -> None:
        self.group_id = group_id
        self.topics = topics
        self.session_ms = session_ms
        """What members that come from the journal get at first."""
        self.rules = Rules(group_id, fingerprint=topics_fingerprint)

    @property
    def state_name(self) -> str:
        return EMPTY if self.is_empty else STABLE

    @property
    def is_empty(self) -> bool:
        return self.rules.is_empty

    def topic_info(self, name: str) -> TopicInfo | None:
        topic = self.topics.get(name)
        return TopicInfo(topic.id, len(topic.partitions)) if topic is not None else None

    def entries(self, changes: list[GroupChange], wall_ms: int) -> list[JournalEntry]:
        return [share_records.entry(self.group_id, change, wall_ms) for change in changes]

    def apply(self, key: Message, value: Message | None) -> None:
        """An entry that comes from the journal."""
        change = share_records.change(key, value)
        if change is not None:
            self.rules.apply([change])

    def tombstones(self) -> list[JournalEntry]:
        return share_records.group_tombstones(self.group_id)

    def deadline_ms(self) -> int | None:
        return self.rules.deadline_ms()

    def expire(self, now: Now) -> Write | None:
        """A member whose session has ended is out, as if it had left."""
        silent = self.rules.expired(now.ms)
        if not silent:
            return None
        changes = self.rules.leave(silent[0], topics=self.topic_info)
        return Write(
            self.entries(changes, now.wall_ms), written=lambda: self.rules.apply(changes, now_ms=now.ms)
        )

    def start_clocks(self, now: Now) -> Write | None:
        for member_id in self.rules.members:
            self.rules.touch(member_id, now.ms + self.session_ms)
        return None

    def forget_topic(self, topic: str) -> None:
        """Nothing computed from topics is kept: each heartbeat looks at them."""

    def check_offset_commit(
        self, *, member_id: str, instance_id: str | None, epoch: int, version: int, is_transactional: bool
    ) -> CommitCheck | None:
        raise self._no_consumer_group()

    def note_offset_commit(self, member_id: str, now: Now) -> None:
        """There are none."""

    def check_offset_fetch(self, *, member_id: str | None, epoch: int) -> None:
        """Kafka answers that nothing is committed, and no error."""

    def check_offset_delete(self) -> None:
        raise self._no_consumer_group()

    def _no_consumer_group(self) -> KafkaError:
        return KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {self.group_id} is not a consumer group.")

    def check_delete(self) -> None:
        if not self.is_empty:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)

    def is_subscribed_to(self, topic: str) -> bool:
        return any(topic in member.subscribed for member in self.rules.members.values())

    def offsets_idle_since(self, committed: CommittedOffset) -> int | None:
        return None

    def describe(self, assignor: str) -> DescribedGroup:
        return DescribedGroup(
            group_id=self.group_id,
            group_state=self.state_name,
            group_epoch=self.rules.epoch,
            assignment_epoch=self.rules.assignment_epoch,
            assignor_name=assignor,
            members=[self._describe_member(member_id) for member_id in self.rules.members],
        )

    def _describe_member(self, member_id: str) -> Member:
        metadata = self.rules.members[member_id]
        current = self.rules.currents[member_id]
        return Member(
            member_id=member_id,
            rack_id=metadata.rack_id,
            member_epoch=current.member_epoch,
            client_id=metadata.client_id,
            client_host=metadata.client_host,
            subscribed_topic_names=metadata.subscribed,
            assignment=self._describe_assignment(current.assigned),
        )

    def _describe_assignment(self, assigned: Assignment) -> DescribedAssignment:
        topics = [(self.topics.by_id(topic_id), indexes) for topic_id, indexes in assigned.items()]
        return DescribedAssignment(
            topic_partitions=[
                TopicPartitions(topic_id=topic.id, topic_name=topic.name, partitions=indexes)
                for topic, indexes in topics
                if topic is not None
            ]
        )

    def snapshot(self) -> object:
        return self.rules.snapshot()
