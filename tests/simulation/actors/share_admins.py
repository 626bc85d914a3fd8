"""Administrators of share groups: offsets set anew, forgotten and shown, groups deleted, settings changed."""

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
from headrace.wire.messages.describe_share_group_offsets_request import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from headrace.wire.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from headrace.wire.messages.share_group_describe_request import ShareGroupDescribeRequest
from headrace.wire.share_state import ShareKey
from tests.simulation.actor import Actor, Ask, Life
from tests.simulation.network import Pending
from tests.simulation.scenario import PARTITIONS_MAX, TOPICS

GROUP = 32
SET, DELETE = 0, 1
CONFIGS: dict[str, tuple[str, ...]] = {
    "share.record.lock.duration.ms": ("1000", "1000", "5000", "30000"),
    "share.delivery.count.limit": ("2", "3", "5", "10"),
    "share.partition.max.record.locks": ("100", "100", "2000"),
    "share.isolation.level": ("read_committed", "read_uncommitted"),
    "share.auto.offset.reset": ("earliest", "earliest", "latest", "by_duration:PT10S", "by_duration:PT1H"),
    "share.renew.acknowledge.enable": ("true", "true", "false"),
    "share.session.timeout.ms": ("1000", "5000", "45000"),
    "errors.deadletterqueue.topic.name": ("dlq.one", "dlq.one", ""),
    "errors.deadletterqueue.copy.record.enable": ("true", "false"),
}

FIRST_CONFIGS = {
    "share.auto.offset.reset": 0.5,
    "share.isolation.level": 0.3,
    "errors.deadletterqueue.topic.name": 0.5,
    "errors.deadletterqueue.copy.record.enable": 0.3,
}
"""How often a group begins with the first value of these."""


class ShareAdmin(Actor):
    def live(self) -> Life:
        for group_id in self.world.scenario.share_groups:
            for name, chance in FIRST_CONFIGS.items():
                if self.rng.random() < chance:
                    yield from self.configure(group_id, name, CONFIGS[name][0])
        while True:
            group_id = self.rng.choice(self.world.scenario.share_groups)
            match self.rng.choices(
                ("nothing", "configure", "reset", "forget", "delete", "describe"),
                (8, 3, 4, 1, 1, 3),
            )[0]:
                case "nothing":
                    yield None
                case "configure":
                    name = self.rng.choice(list(CONFIGS))
                    yield from self.configure(group_id, name, self.rng.choice(CONFIGS[name]))
                case "reset":
                    for _ in range(self.rng.choice((1, 2, 3, 4))):
                        yield from self.reset(group_id, *self.choose_target(group_id))
                        for _ in range(self.rng.choice((0, 1, 3))):
                            yield None
                case "forget":
                    yield from self.forget(group_id)
                case "delete":
                    yield from self.delete(group_id)
                case "describe":
                    yield from self.describe(group_id)

    def configure(self, group_id: str, name: str, value: str) -> Ask:
        operation = DELETE if self.rng.random() < 0.1 else SET
        config = AlterableConfig(
            name=name, config_operation=operation, value=value if operation == SET else None
        )
        resource = AlterConfigsResource(resource_type=GROUP, resource_name=group_id, configs=[config])
        yield from self.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1)

    def choose_target(self, group_id: str) -> tuple[str, list[int]]:
        """A topic and some of its partitions; preferably such that somebody holds records there."""
        held = self.share.held_places(group_id)
        if held and self.rng.random() < 0.7:
            name, index = self.rng.choice(held)
            return name, [index]
        return self.rng.choice(TOPICS), [index for index in range(PARTITIONS_MAX) if self.rng.random() < 0.6]

    def reset(self, group_id: str, name: str, indexes: list[int]) -> Ask:
        rng = self.rng
        topic_id = self.logs.topics.get(name)
        wanted = {}
        for index in indexes:
            known = self.logs.logs.get((topic_id, index)) if topic_id is not None else None
            end = known.end if known is not None else 0
            wanted[index] = rng.choice((0, end, rng.randint(0, end)))
        request = AlterShareGroupOffsetsRequest(
            group_id=group_id,
            topics=[
                AlterShareGroupOffsetsRequestTopic(
                    topic_name=name,
                    partitions=[
                        AlterShareGroupOffsetsRequestPartition(partition_index=index, start_offset=offset)
                        for index, offset in wanted.items()
                    ],
                )
            ],
        )

        def answered(pending: Pending) -> None:
            if pending.response.error_code != ErrorCode.NONE:
                return
            for topic in pending.response.responses:
                for one in topic.partitions:
                    if one.error_code == ErrorCode.NONE:
                        key = ShareKey(group_id, topic.topic_id, one.partition_index)
                        self.share.told_fresh(key, wanted[one.partition_index])

        yield from self.ask(request, 0, answered=answered)

    def forget(self, group_id: str) -> Ask:
        names = self.rng.sample(TOPICS, self.rng.choice((1, 1, 2)))
        yield from self.ask(
            DeleteShareGroupOffsetsRequest(
                group_id=group_id,
                topics=[DeleteShareGroupOffsetsRequestTopic(topic_name=name) for name in names],
            ),
            0,
        )

    def delete(self, group_id: str) -> Ask:
        yield from self.ask(DeleteGroupsRequest(groups_names=[group_id]), 2)

    def describe(self, group_id: str) -> Ask:
        yield from self.ask(ShareGroupDescribeRequest(group_ids=[group_id]), 1)
        request = DescribeShareGroupOffsetsRequest(
            groups=[DescribeShareGroupOffsetsRequestGroup(group_id=group_id, topics=None)]
        )

        def answered(pending: Pending) -> None:
            for group in pending.response.groups:
                for topic in group.topics:
                    for one in topic.partitions:
                        self.share.told_offsets(group_id, topic.topic_id, one)

        yield from self.ask(request, 1, answered=answered)
