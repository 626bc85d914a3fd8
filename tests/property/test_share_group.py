"""A share group whose members and topics come, change and go: it always finds its way to a good assignment.

Method: a machine plays members and administrator. After every step the journal must rebuild the group; and once all
members have come twice after the assignment interval, every partition that anyone subscribes to must have a member.
"""

from collections.abc import Iterable

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from headrace.share.assignor import flatten
from headrace.share.errors import FencedMemberEpoch, GroupMaxSizeReached, UnknownMember
from headrace.share.group import ShareGroupRules
from headrace.share.membership import GroupChange, GroupSettings, HeartbeatRequest, MemberHeartbeat, TopicInfo

MEMBERS = st.sampled_from(["m1", "m2", "m3", "m4", "m5"])
NAMES = ("a", "b", "c")
SUBSCRIPTIONS = st.lists(st.sampled_from(NAMES), min_size=1, max_size=3, unique=True).map(tuple)
SETTINGS = GroupSettings(members_max=4, session_ms=5_000, assignment_interval_ms=200)


def fingerprint(topics: Iterable[tuple[str, bytes, int]]) -> int:
    return hash(tuple(sorted(topics)))


class ShareGroupMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.group = ShareGroupRules("g", fingerprint=fingerprint)
        self.topics = {"a": TopicInfo(b"a1", 2)}
        self.generation = 1
        self.journal: list[GroupChange] = []
        self.now_ms = 0
        self.known: dict[str, int] = {}  # what each member knows its epoch to be
        self.epoch_before = 1

    def beat(self, member: str, epoch: int, subscribed: tuple[str, ...] | None = None) -> MemberHeartbeat:
        request = HeartbeatRequest(member_id=member, member_epoch=epoch, subscribed=subscribed)
        beat = self.group.heartbeat(request, topics=self.topics.get, settings=SETTINGS, now_ms=self.now_ms)
        self.apply(beat.changes)
        self.group.touch(member, self.now_ms + SETTINGS.session_ms)
        assert beat.member_epoch >= self.known.get(member, 0)
        self.known[member] = beat.member_epoch
        current = self.group.currents[member].assigned
        assert beat.assignment in (None, current)
        return beat

    def apply(self, changes: list[GroupChange]) -> None:
        self.journal += changes
        self.group.apply(changes, now_ms=self.now_ms)

    @rule(member=MEMBERS, subscribed=SUBSCRIPTIONS)
    def join(self, member: str, subscribed: tuple[str, ...]) -> None:
        try:
            assert self.beat(member, 0, subscribed).assignment is not None
        except GroupMaxSizeReached:
            assert member not in self.known
            assert len(self.known) == SETTINGS.members_max

    @rule(member=MEMBERS, subscribed=st.none() | SUBSCRIPTIONS, back=st.integers(-1, 2))
    def heartbeat(self, member: str, subscribed: tuple[str, ...] | None, back: int) -> None:
        if member not in self.known:
            return
        previous = self.group.currents[member].previous_epoch
        epoch = max(1, self.known[member] - back)
        try:
            self.beat(member, epoch, subscribed)
        except FencedMemberEpoch:
            assert epoch not in (self.known[member], previous)

    @rule(member=MEMBERS)
    def leave(self, member: str) -> None:
        try:
            self.apply(self.group.leave(member, topics=self.topics.get))
            del self.known[member]
        except UnknownMember:
            assert member not in self.known

    @rule(wait_ms=st.sampled_from([50, 200, 3_000]))
    def wait(self, wait_ms: int) -> None:
        self.now_ms += wait_ms
        for member in self.group.expired(self.now_ms):
            self.apply(self.group.leave(member, topics=self.topics.get))
            del self.known[member]

    @rule(name=st.sampled_from(NAMES), partitions=st.integers(1, 3))
    def create_or_grow(self, name: str, partitions: int) -> None:
        topic = self.topics.get(name)
        self.generation += 1
        if topic is None:
            self.topics[name] = TopicInfo(f"{name}{self.generation}".encode(), partitions)
        else:
            self.topics[name] = TopicInfo(topic.topic_id, topic.partitions + partitions)

    @rule(name=st.sampled_from(NAMES))
    def delete(self, name: str) -> None:
        topic = self.topics.pop(name, None)
        if topic is not None:
            self.apply(self.group.forget_topics([topic.topic_id]))

    @rule()
    def settle(self) -> None:
        """Everyone comes, the interval passes, everyone comes again: all partitions are held, by subscribers only."""
        for _ in range(2):
            self.now_ms += SETTINGS.assignment_interval_ms
            for member, epoch in list(self.known.items()):
                self.beat(member, epoch)
        assert not self.known or self.group.epoch == self.group.assignment_epoch
        held = set()
        for member, metadata in self.group.members.items():
            assigned = self.group.currents[member].assigned
            assert set(assigned) <= {
                self.topics[name].topic_id for name in metadata.subscribed if name in self.topics
            }
            held |= set(flatten(assigned))
        wanted = {name for metadata in self.group.members.values() for name in metadata.subscribed}
        existing = [self.topics[name] for name in wanted if name in self.topics]
        assert held == {(topic.topic_id, index) for topic in existing for index in range(topic.partitions)}
        for topic in existing:
            assert self.group.initialized[topic.topic_id].partitions == tuple(range(topic.partitions))
        self.now_ms += SETTINGS.motion_ms
        for member, epoch in list(self.known.items()):
            beat = self.beat(member, epoch)
            assert (beat.changes, beat.heartbeat_ms) == ([], SETTINGS.heartbeat_ms)

    @invariant()
    def replay_gives_the_same_group(self) -> None:
        replayed = ShareGroupRules("g", fingerprint=fingerprint)
        replayed.apply(self.journal)
        assert replayed.snapshot() == self.group.snapshot()

    @invariant()
    def epochs_are_in_order(self) -> None:
        group = self.group
        assert group.epoch >= self.epoch_before
        self.epoch_before = group.epoch
        assert group.assignment_epoch <= group.epoch
        assert all(current.member_epoch <= group.assignment_epoch for current in group.currents.values())
        assert group.members.keys() == group.currents.keys() == self.known.keys()
        assert group.targets.keys() <= group.members.keys()
        assert (group.deadline_ms() is None) == group.is_empty


TestShareGroup = ShareGroupMachine.TestCase
TestShareGroup.settings = settings(stateful_step_count=30)
