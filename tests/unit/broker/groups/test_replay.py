"""Goal: whatever happens, the journal brings it back. Method: Hypothesis drives clients of every kind, time and topics;
after each step a second coordinator reads the journal.
"""

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from headrace.broker.groups.consumer import ConsumerGroup
from headrace.broker.handlers import delete_groups
from headrace.broker.later import Later
from headrace.broker.producer import ProducerIdAndEpoch
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.delete_groups_request import DeleteGroupsRequest
from headrace.wire.messages.join_group_response import JoinGroupResponse
from tests.unit.broker.groups.classic_client import ClassicClient
from tests.unit.broker.groups.consumer_client import ConsumerClient
from tests.unit.broker.groups.fake_core import FakeCore
from tests.unit.broker.groups.test_offset_requests import commit_in_transaction

CLASSIC, CONSUMERS = st.integers(0, 2), st.integers(0, 3)
GROUPS = st.sampled_from(["classic", "new", "either"])
TOPICS = ["t", "u", "u-2"]


class Groups(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.core = FakeCore()
        self.core.topics.create("t", 3)
        self.classic = [
            ClassicClient(self.core, "classic"),
            ClassicClient(self.core, "classic", instance_id="static"),
            ClassicClient(self.core, "either", version=3),
        ]
        self.consumers = [
            ConsumerClient(self.core, "a", "new"),
            ConsumerClient(self.core, "b", "new", pattern="u.*"),
            ConsumerClient(self.core, "c", "new", instance_id="static", assignor="range"),
            ConsumerClient(self.core, "d", "either"),
        ]
        self.parked: dict[int, Later[JoinGroupResponse]] = {}

    @rule(number=CLASSIC)
    def join_classic(self, number: int) -> None:
        answer = self.classic[number].join()
        if isinstance(answer, Later):
            self.parked[number] = answer

    @rule(number=CLASSIC)
    def sync_classic(self, number: int) -> None:
        client, parked = self.classic[number], self.parked.get(number)
        if parked is not None and parked.is_done and parked.value.error_code == ErrorCode.NONE:
            client.take(parked.value).sync(**{member.member_id: b"x" for member in parked.value.members})

    @rule(number=CLASSIC)
    def leave_classic(self, number: int) -> None:
        self.classic[number].leave()
        self.classic[number].member_id = ""

    @rule(number=CLASSIC, offset=st.integers(0, 9))
    def commit_classic(self, number: int, offset: int) -> None:
        self.classic[number].commit(offset)

    @rule(number=CONSUMERS)
    def join_consumer(self, number: int) -> None:
        self.consumers[number].join()

    @rule(number=CONSUMERS)
    def beat(self, number: int) -> None:
        self.consumers[number].beat()

    @rule(number=CONSUMERS, topics=st.sets(st.sampled_from(TOPICS)))
    def subscribe(self, number: int, topics: set[str]) -> None:
        self.consumers[number].beat(subscribed_topic_names=[*topics])

    @rule(number=CONSUMERS, epoch=st.sampled_from([-1, -2]))
    def leave_consumer(self, number: int, epoch: int) -> None:
        self.consumers[number].leave(epoch)

    @rule(number=CONSUMERS, offset=st.integers(0, 9), partition=st.integers(0, 2))
    def commit_consumer(self, number: int, offset: int, partition: int) -> None:
        self.consumers[number].commit(offset, partition=partition)

    @rule(ms=st.sampled_from([500, 3_000, 10_000, 50_000, 600_000]))
    def pass_time(self, ms: int) -> None:
        self.core.pass_time(ms)

    @rule(name=st.sampled_from(TOPICS), partitions=st.integers(1, 4))
    def make_or_grow_topic(self, name: str, partitions: int) -> None:
        topic = self.core.topics.get(name)
        if topic is None:
            self.core.topics.create(name, partitions)
        else:
            self.core.topics.add_partitions(name, len(topic.partitions) + partitions)

    @rule(name=st.sampled_from(TOPICS))
    def delete_topic(self, name: str) -> None:
        if self.core.topics.get(name) is not None:
            self.core.topics.delete(name)

    @rule(group_id=GROUPS, offset=st.integers(0, 9), producer_id=st.integers(1, 2))
    def commit_in_transaction(self, group_id: str, offset: int, producer_id: int) -> None:
        commit_in_transaction(self.core, offset, ProducerIdAndEpoch(producer_id, 0), group_id=group_id)

    @rule(group_id=GROUPS, producer_id=st.integers(1, 2), commit=st.booleans())
    def end_transaction(self, group_id: str, producer_id: int, commit: bool) -> None:
        self.core.end_transaction(ProducerIdAndEpoch(producer_id, 0), group_id, commit=commit)

    @rule(group_id=GROUPS)
    def delete_group(self, group_id: str) -> None:
        self.core.handle(delete_groups, DeleteGroupsRequest(groups_names=[group_id]))

    @invariant()
    def the_journal_brings_everything_back(self) -> None:
        self.core.check_replay()

    @invariant()
    def no_partition_has_two_holders(self) -> None:
        for group in self.core.groups.state.registry:
            if isinstance(group, ConsumerGroup):
                held = [
                    one for member in group.members.values() for one in {**member.held, **member.revoking}
                ]
                assert len(held) == len(set(held))


TestGroups = Groups.TestCase
TestGroups.settings = settings(max_examples=40, stateful_step_count=30)
