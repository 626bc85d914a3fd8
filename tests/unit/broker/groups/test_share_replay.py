"""A random walk through all that can happen to share groups: at each step the journal must tell the same story."""

import random
from pathlib import Path

import pytest

from headrace.wire.errors import ErrorCode
from headrace.wire.messages.alter_share_group_offsets_request import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from headrace.wire.messages.delete_groups_request import DeleteGroupsRequest
from headrace.wire.messages.delete_share_group_offsets_request import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
from headrace.wire.share_state import ShareKey
from tests.unit.broker.groups.share_world import ShareWorld

GROUPS, TOPICS, MEMBERS = ("g", "h"), ("a", "b", "c"), ("m", "n", "o")
STEPS = 150


class Walk:
    def __init__(self, world: ShareWorld, seed: int) -> None:
        self.world = world
        self.random = random.Random(seed)
        self.epochs: dict[tuple[str, str], int] = {}

    def step(self) -> None:
        weights = {
            self.join: 4, self.beat: 8, self.leave: 2, self.wait: 3, self.make_or_grow: 2, self.delete_topic: 1,
            self.alter: 2, self.delete_offsets: 1, self.delete_group: 1, self.power_cycle: 1,
        }  # fmt: skip
        (action,) = self.random.choices([*weights], [*weights.values()])
        action()

    def _pick(self) -> tuple[str, str]:
        return self.random.choice(GROUPS), self.random.choice(MEMBERS)

    def _some_topics(self) -> list[str]:
        return self.random.sample(TOPICS, self.random.randint(1, len(TOPICS)))

    def join(self) -> None:
        group, member = self._pick()
        answer = self.world.heartbeat(member, 0, self._some_topics(), group=group)
        assert answer.error_code == ErrorCode.NONE
        self.epochs[group, member] = answer.member_epoch

    def beat(self) -> None:
        group, member = self._pick()
        epoch = self.epochs.get((group, member), 1)
        topics = self._some_topics() if self.random.random() < 0.2 else None
        answer = self.world.heartbeat(member, epoch, topics, group=group)
        if answer.error_code == ErrorCode.NONE:
            self.epochs[group, member] = answer.member_epoch

    def leave(self) -> None:
        group, member = self._pick()
        self.world.heartbeat(member, -1, group=group)
        self.epochs.pop((group, member), None)

    def wait(self) -> None:
        self.world.pass_time(self.random.choice((100, 1_000, 30_000)))

    def make_or_grow(self) -> None:
        topics, name = self.world.core.topics, self.random.choice(TOPICS)
        topic = topics.get(name)
        if topic is None:
            topics.create(name, partitions=self.random.randint(1, 3), configs={})
        else:
            topics.add_partitions(name, len(topic.partitions) + 1)

    def delete_topic(self) -> None:
        name = self.random.choice(TOPICS)
        if self.world.core.topics.get(name) is not None:
            self.world.core.topics.delete(name)

    def alter(self) -> None:
        offset = AlterShareGroupOffsetsRequestPartition(
            partition_index=self.random.randint(0, 2), start_offset=self.random.randint(-1, 9)
        )
        topic = AlterShareGroupOffsetsRequestTopic(topic_name=self.random.choice(TOPICS), partitions=[offset])
        self.world.ask(AlterShareGroupOffsetsRequest(group_id=self.random.choice(GROUPS), topics=[topic]))

    def delete_offsets(self) -> None:
        topic = DeleteShareGroupOffsetsRequestTopic(topic_name=self.random.choice(TOPICS))
        self.world.ask(DeleteShareGroupOffsetsRequest(group_id=self.random.choice(GROUPS), topics=[topic]))

    def delete_group(self) -> None:
        self.world.ask(DeleteGroupsRequest(groups_names=[self.random.choice(GROUPS)]))

    def power_cycle(self) -> None:
        self.world.power_cycle()

    def check(self) -> None:
        """The journal says what we know; and whoever is assigned a partition finds state for it."""
        self.world.check_replay()
        for group in self.world.core.groups.state.registry:
            rules = self.world.group(group.group_id).rules
            for topic_id, topic in rules.initialized.items():
                for index in topic.partitions:
                    key = ShareKey(group.group_id, topic_id, index)
                    assert self.world.core.share_state.get(key) is not None
            for current in rules.currents.values():
                for topic_id, indexes in current.assigned.items():
                    if self.world.core.topics.by_id(topic_id) is not None:
                        assert set(indexes) <= set(rules.initialized[topic_id].partitions)
        kept = self.world.core.share_state.keys()
        for key in kept:
            assert key.topic_id in self.world.group(key.group_id).rules.initialized


@pytest.mark.parametrize("seed", range(8))
def test_the_journal_tells_the_same_story_at_every_step(tmp_path: Path, seed: int) -> None:
    walk = Walk(ShareWorld(tmp_path), seed)
    for _ in range(STEPS):
        walk.step()
        walk.check()
    walk.world.close()
