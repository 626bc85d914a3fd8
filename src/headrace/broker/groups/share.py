"""Share groups (KIP-932) among the other groups: the engine's rules of membership behind what every group can do.

The rules (headrace.share.group) decide and apply; share_groups.py carries decisions to the journal. Here the group
answers what the coordinator, offsets and admin requests ask of any group. A share group commits no offsets and never
expires.
"""

from headrace.broker.groups import share_records
from headrace.broker.groups.offsets import OffsetAndMetadata
from headrace.broker.groups.records import JournalEntry
from headrace.broker.groups.registry import CommitCheck, Now, Write
from headrace.broker.groups.subscriptions import TopicsView, topics_fingerprint
from headrace.share.group import ShareGroupRules
from headrace.share.membership import GroupChange, TopicInfo
from headrace.wire.enums import GroupState, GroupType
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.message import Message


class ShareGroup:
    type = GroupType.SHARE
    protocol_type_name = "share"

    def __init__(self, group_id: str, topics: TopicsView, *, session_ms: int = 45_000) -> None:
        self.group_id = group_id
        self.topics = topics
        self.session_ms = session_ms
        """What members that come from the journal get at first."""
        self.rules = ShareGroupRules(group_id, fingerprint=topics_fingerprint)

    @property
    def state_name(self) -> str:
        return GroupState.EMPTY if self.is_empty else GroupState.STABLE

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

    def offsets_idle_since(self, committed: OffsetAndMetadata) -> int | None:
        return None

    def snapshot(self) -> object:
        return self.rules.snapshot()
