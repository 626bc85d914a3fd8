"""Members of consumer groups (KIP-848) for tests: they speak by the handler and do what they are told, as a client."""

from dataclasses import dataclass, field
from typing import Any

from headrace.broker.groups.consumer import ConsumerGroup
from headrace.broker.groups.records import by_topic
from headrace.broker.handlers import consumer_group_heartbeat, offset_commit
from headrace.wire.errors import ErrorCode
from headrace.wire.ids import TopicIdPartition
from headrace.wire.messages.consumer_group_heartbeat_request import (
    ConsumerGroupHeartbeatRequest,
    TopicPartitions,
)
from headrace.wire.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.unit.broker.groups.fake_core import FakeCore


@dataclass
class ConsumerClient:
    core: FakeCore
    member_id: str
    group_id: str = "g"
    topics: list[str] | None = field(default_factory=lambda: ["t"])
    pattern: str | None = None
    instance_id: str | None = None
    assignor: str | None = None
    rebalance_ms: int = 30_000
    epoch: int = 0
    owned: set[TopicIdPartition] = field(default_factory=set)
    version: int = 1

    def send(self, **changed: Any) -> Any:
        """A heartbeat with these fields; its response as it is."""
        fields = {"group_id": self.group_id, "member_id": self.member_id, "member_epoch": self.epoch}
        request = ConsumerGroupHeartbeatRequest(**{**fields, "instance_id": self.instance_id, **changed})
        return self.core.handle(consumer_group_heartbeat, request, version=self.version)

    def join(self) -> Any:
        self.epoch, self.owned = 0, set()
        return self._follow(
            self.send(
                member_epoch=0,
                rebalance_timeout_ms=self.rebalance_ms,
                subscribed_topic_names=self.topics,
                subscribed_topic_regex=self.pattern,
                server_assignor=self.assignor,
                topic_partitions=[],
            )
        )

    def beat(self, **changed: Any) -> Any:
        """Says what it owns, then takes over what it is told to own."""
        owned = [
            TopicPartitions(topic_id=one, partitions=indexes) for one, indexes in by_topic(self.owned).items()
        ]
        return self._follow(self.send(topic_partitions=owned, **changed))

    def leave(self, epoch: int = -1) -> ErrorCode:
        return ErrorCode(self.send(member_epoch=epoch).error_code)

    def _follow(self, response: Any) -> Any:
        if response.error_code == ErrorCode.NONE:
            self.member_id, self.epoch = response.member_id, response.member_epoch
            if response.assignment is not None:
                self.owned = {
                    (topic.topic_id, index)
                    for topic in response.assignment.topic_partitions
                    for index in topic.partitions
                }
        return response

    @property
    def indexes(self) -> list[int]:
        return sorted(index for _, index in self.owned)

    def commit(
        self, offset: int, *, partition: int = 0, epoch: int | None = None, version: int = 9
    ) -> ErrorCode:
        request = OffsetCommitRequest(
            group_id=self.group_id,
            generation_id_or_member_epoch=self.epoch if epoch is None else epoch,
            member_id=self.member_id,
            topics=[
                OffsetCommitRequestTopic(
                    name="t",
                    partitions=[
                        OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset)
                    ],
                )
            ],
        )
        response = self.core.handle(offset_commit, request, version=version)
        return ErrorCode(response.topics[0].partitions[0].error_code)


def group_of(core: FakeCore, group_id: str = "g") -> ConsumerGroup:
    group = core.groups.state.registry.get(group_id)
    assert isinstance(group, ConsumerGroup)
    return group


def converge(*clients: ConsumerClient) -> None:
    """Heartbeats, a second apart, until everybody is where the group wants it."""
    core = clients[0].core
    for _ in range(10):
        core.pass_time(1_000)
        for client in clients:
            assert client.beat().error_code == ErrorCode.NONE
        if group_of(core, clients[0].group_id).state_name == "Stable":
            return
    raise AssertionError("the group does not come to rest")
