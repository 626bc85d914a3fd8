"""Administrators: topics made, deleted and made again under the same name, grown, altered, emptied."""

from headrace.wire.errors import ErrorCode
from headrace.wire.messages.create_partitions_request import CreatePartitionsRequest, CreatePartitionsTopic
from headrace.wire.messages.create_topics_request import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from headrace.wire.messages.delete_records_request import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from headrace.wire.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from headrace.wire.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.simulation.actor import Actor, Ask, Life
from tests.simulation.network import Pending
from tests.simulation.scenario import topic_configs

TOPIC, BROKER, GROUP = 2, 4, 32
SET, DELETE = 0, 1


class Admin(Actor):
    def live(self) -> Life:
        while True:
            name = self.rng.choice(self.world.scenario.topics)
            if name not in self.logs.topics:
                yield from self.create(name)
                continue
            if (self.world.scenario.is_tight or self.world.scenario.is_patient) and self.rng.random() < 0.9:
                yield None
                continue
            match self.rng.choices(
                ("nothing", "delete", "make again", "grow", "delete records", "alter"), (4, 1, 4, 1, 5, 1)
            )[0]:
                case "nothing":
                    yield None
                case "delete":
                    yield from self.delete(name)
                case "make again":
                    yield from self.delete(name)
                    yield from self.create(name)
                case "grow":
                    yield from self.grow(name)
                case "delete records":
                    yield from self.delete_records(name)
                case "alter":
                    yield from self.alter(name)

    def partitions(self) -> int:
        """Of a new topic."""
        return self.rng.randint(1, self.world.scenario.partitions_max)

    def configs(self) -> dict[str, str]:
        """Of a new topic."""
        return topic_configs(self.rng, is_tight=self.world.scenario.is_tight)

    def create(self, name: str) -> Ask:
        configs = self.configs()
        request = CreateTopicsRequest(
            topics=[
                CreatableTopic(
                    name=name,
                    num_partitions=self.partitions(),
                    replication_factor=1,
                    configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
                )
            ]
        )

        def answered(pending: Pending) -> None:
            result = pending.response.topics[0]
            if result.error_code == ErrorCode.NONE:
                self.logs.told_created(name, result.topic_id)

        yield from self.ask(request, 7, answered=answered)

    def delete(self, name: str) -> Ask:
        topic_id = self.logs.will_delete(name)
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)])

        def answered(pending: Pending) -> None:
            result = pending.response.responses[0]
            if result.error_code == ErrorCode.NONE:
                self.logs.told_deleted(result.topic_id)

        response = yield from self.ask(request, 6, answered=answered)
        if response is not None and response.responses[0].error_code == ErrorCode.NONE:
            assert topic_id is not None

    def grow(self, name: str) -> Ask:
        count = self.rng.randint(1, self.world.scenario.partitions_max)
        yield from self.ask(
            CreatePartitionsRequest(topics=[CreatePartitionsTopic(name=name, count=count, assignments=None)]),
            3,
        )

    def delete_records(self, name: str) -> Ask:
        topic_id = self.logs.topics[name]
        partition = self.rng.randrange(self.logs.partitions[topic_id])
        known = self.logs.logs.get((topic_id, partition))
        end = known.end if known is not None else 0
        before = self.rng.choice((-1, end, self.rng.randint(0, end + 1)))
        model = self.logs.will_delete_records(name, partition, before)
        request = DeleteRecordsRequest(
            topics=[
                DeleteRecordsTopic(
                    name=name, partitions=[DeleteRecordsPartition(partition_index=partition, offset=before)]
                )
            ]
        )

        def answered(pending: Pending) -> None:
            result = pending.response.topics[0].partitions[0]
            is_same = model is not None and self.logs.topics.get(name) == topic_id
            if result.error_code == ErrorCode.NONE and is_same:
                self.logs.told_records_deleted(model, result.low_watermark)

        yield from self.ask(request, 2, answered=answered)
        if model is not None:
            self.logs.deletion_ended(model)

    def alter(self, name: str) -> Ask:
        configs = topic_configs(self.rng, is_tight=self.world.scenario.is_tight)
        request = IncrementalAlterConfigsRequest(
            resources=[
                AlterConfigsResource(
                    resource_type=TOPIC,
                    resource_name=name,
                    configs=[
                        AlterableConfig(name=key, config_operation=SET, value=value)
                        for key, value in configs.items()
                    ],
                )
            ]
        )
        yield from self.ask(request, 1)
