"""Changes of metadata: nothing waits for a sync on the loop, and nothing is answered before it."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from headrace.broker.call import Call
from headrace.broker.clock import ManualClock
from headrace.broker.core import BrokerCore
from headrace.broker.handlers.create_topics import TOPICS_PER_STEP
from headrace.broker.later import Later
from headrace.broker.settings import Settings
from headrace.broker.topics import Topic
from headrace.log.memory_disk import MemoryDisk
from headrace.log.partition_log import PartitionLog
from headrace.wire.acls import Acl, AclFilter, AclOperation, AclPatternType, AclPermission, AclResourceType
from headrace.wire.errors import ErrorCode
from headrace.wire.message import Message
from headrace.wire.messages.create_acls_request import AclCreation, CreateAclsRequest
from headrace.wire.messages.create_acls_response import CreateAclsResponse
from headrace.wire.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from headrace.wire.messages.create_topics_response import CreateTopicsResponse
from headrace.wire.messages.delete_acls_request import DeleteAclsFilter, DeleteAclsRequest
from headrace.wire.messages.delete_acls_response import DeleteAclsResponse
from headrace.wire.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from headrace.wire.messages.delete_topics_response import DeleteTopicsResponse
from headrace.wire.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from headrace.wire.messages.incremental_alter_configs_response import IncrementalAlterConfigsResponse
from headrace.wire.messages.init_producer_id_request import InitProducerIdRequest
from headrace.wire.messages.init_producer_id_response import InitProducerIdResponse
from headrace.wire.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from headrace.wire.messages.metadata_response import MetadataResponse
from headrace.wire.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from headrace.wire.messages.produce_response import ProduceResponse
from headrace.wire.records import NewRecord, build_batch
from headrace.wire.share_state import ShareKey
from tests.unit.broker.share.bench import WhenTold

Response = TypeVar("Response", bound=Message)


class Machine:
    """A core on a disk and a metadata store that both lose what was not synced when the power is cut."""

    def __init__(self, folder: Path, **settings: object) -> None:
        self._folder = folder
        self._lives = 0
        self._settings = settings
        self.disk = MemoryDisk(is_simulated=True)
        self.clock = ManualClock()
        self.path = folder / "metadata.sqlite"
        self._open()

    def _open(self) -> None:
        self.runner = WhenTold()
        self.core = BrokerCore(
            Settings(self._settings),
            disk=self.disk,
            metadata_path=self.path,
            clock=self.clock,
            runner=self.runner,
            on_failure=lambda error: pytest.fail(str(error)),
        )
        self._keep_what_is_safe()
        sync = self.core.metadata.sync

        def synced() -> None:
            sync()
            self._keep_what_is_safe()

        self.core.metadata.sync = synced  # type: ignore[method-assign]

    def _keep_what_is_safe(self) -> None:
        self._safe = [
            (name, Path(f"{self.path}{name}").read_bytes())
            for name in ("", "-wal")
            if Path(f"{self.path}{name}").exists()
        ]

    def cut_power(self) -> None:
        self.core.metadata.close()
        self._lives += 1
        self.path = self._folder / f"life-{self._lives}.sqlite"
        for name, content in self._safe:
            Path(f"{self.path}{name}").write_bytes(content)
        self.disk.power_cycle()
        self._open()

    def kill(self) -> None:
        """The process ends; what it has written stays."""
        self._lives += 1
        before, self.path = self.path, self._folder / f"life-{self._lives}.sqlite"
        for name in ("", "-wal"):
            shutil.copy(f"{before}{name}", f"{self.path}{name}")
        self.core.metadata.close()
        self.disk.restart()
        self._open()

    def close(self) -> None:
        self.core.metadata.close()

    def ask(self, request: Message, version: int, expected: type[Response]) -> Later[Response]:
        answer = self.core.handle(request, Call(api_version=version, connection_id=1))
        later: Later[Response] = Later()
        if isinstance(answer, Later):
            answer.then(lambda response: later.resolve(_checked(response, expected)))
        else:
            later.resolve(_checked(answer, expected))
        return later

    def finish(self) -> None:
        """Everything that was begun, in as many turns as it takes."""
        while self.runner.waiting or self.core.slices.is_pending:
            if self.runner.waiting:
                self.runner.step()
            self.core.settle()

    def create(self, *names: str) -> Later[CreateTopicsResponse]:
        topics = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in names]
        return self.ask(CreateTopicsRequest(topics=topics), 7, CreateTopicsResponse)

    def delete(self, *names: str) -> Later[DeleteTopicsResponse]:
        topics = [DeleteTopicState(name=name) for name in names]
        return self.ask(DeleteTopicsRequest(topics=topics), 6, DeleteTopicsResponse)

    def produce(self, topic: str, value: bytes, *, acks: int = -1) -> Later[ProduceResponse]:
        batch = build_batch([NewRecord(None, value, (), self.clock.wall_ms())])
        data = PartitionProduceData(index=0, records=batch)
        request = ProduceRequest(acks=acks, topic_data=[TopicProduceData(name=topic, partition_data=[data])])
        return self.ask(request, 12, ProduceResponse)

    def end_offset(self, topic: str) -> int:
        found = self.core.topics.get(topic)
        assert found is not None
        return found.partitions[0].log.end_offset


def _checked(response: object, expected: type[Response]) -> Response:
    assert isinstance(response, expected)
    return response


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    machine = Machine(tmp_path)
    yield machine
    machine.close()


def test_a_topic_is_answered_when_it_is_durable_and_then_survives_a_power_cut(machine: Machine) -> None:
    answer = machine.create("t")
    assert machine.core.topics.get("t") is not None
    assert not answer.is_done
    machine.finish()
    assert answer.value.topics[0].error_code == 0
    machine.cut_power()
    assert machine.core.topics.get("t") is not None


def test_a_topic_that_was_not_answered_may_be_lost_with_the_power_but_not_with_the_process(
    machine: Machine,
) -> None:
    machine.create("t")
    machine.kill()
    assert machine.core.topics.get("t") is not None
    machine.create("u")
    machine.cut_power()
    assert machine.core.topics.get("t") is not None
    assert machine.core.topics.get("u") is None


def test_whoever_hears_that_a_topic_exists_can_rely_on_it(machine: Machine) -> None:
    machine.create("t")
    again = machine.create("t")
    assert not again.is_done
    machine.finish()
    assert again.value.topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS


@pytest.mark.parametrize("first", [0, 1], ids=["metadata first", "log first"])
def test_a_record_of_a_fresh_topic_is_acknowledged_when_both_are_durable(
    machine: Machine, first: int
) -> None:
    machine.core.topics.create("t", partitions=1, configs={})
    answer = machine.produce("t", b"kept")
    assert len(machine.runner.waiting) == 2
    machine.runner.waiting.insert(0, machine.runner.waiting.pop(first))
    machine.runner.step()
    assert not answer.is_done
    machine.finish()
    assert answer.is_done
    machine.cut_power()
    assert machine.end_offset("t") == 1


def test_a_record_with_acks_1_in_a_fresh_topic_survives_the_end_of_the_process(machine: Machine) -> None:
    machine.core.topics.create("t", partitions=1, configs={})
    assert machine.produce("t", b"kept", acks=1).is_done
    machine.kill()
    assert machine.end_offset("t") == 1


def test_a_power_cut_before_a_deletion_is_durable_leaves_the_topic_as_it_was(machine: Machine) -> None:
    machine.create("t")
    machine.produce("t", b"kept")
    topic = machine.core.topics.get("t")
    assert topic is not None
    key = ShareKey("g", topic.id, 0)
    machine.core.share_state.initialize(key, state_epoch=1, start_offset=0)
    machine.finish()
    answer = machine.delete("t")
    assert machine.core.topics.get("t") is None
    assert not answer.is_done
    assert machine.disk.exists("t-0")
    machine.cut_power()
    assert machine.end_offset("t") == 1
    assert machine.core.share_state.get(key) is not None


def test_a_deleted_topic_is_answered_when_it_is_gone_for_good(machine: Machine) -> None:
    machine.create("t")
    machine.produce("t", b"old")
    machine.finish()
    answer = machine.delete("t", "unknown")
    assert not answer.is_done
    machine.finish()
    codes = [one.error_code for one in answer.value.responses]
    assert codes == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert not machine.disk.exists("t-0")
    machine.cut_power()
    assert machine.core.topics.get("t") is None
    machine.create("t")
    machine.finish()
    assert machine.end_offset("t") == 0


@pytest.mark.parametrize("steps", range(8))
def test_a_power_cut_at_any_point_of_deleting_and_making_again_mixes_nothing_up(
    machine: Machine, steps: int
) -> None:
    machine.create("t")
    machine.produce("t", b"old")
    machine.finish()
    old = machine.core.topics.get("t")
    assert old is not None
    deleted = machine.delete("t")
    made: Later[CreateTopicsResponse] | None = None
    produced: Later[ProduceResponse] | None = None
    for _ in range(steps):
        if machine.runner.waiting:
            machine.runner.step()
        machine.core.settle()
        if deleted.is_done and made is None:
            made = machine.create("t")
        if made is not None and made.is_done and produced is None:
            machine.produce("t", b"new")
            produced = machine.produce("t", b"new")
    was_made = made is not None and made.is_done
    was_produced = produced is not None and produced.is_done
    machine.cut_power()
    found = machine.core.topics.get("t")
    if was_made:
        assert found is not None
        assert found.id != old.id
    if found is not None and found.id == old.id:
        assert not deleted.is_done
        assert machine.end_offset("t") == 1
    elif was_produced:
        assert machine.end_offset("t") == 2


def test_a_name_is_taken_until_the_deletion_is_durable(machine: Machine) -> None:
    machine.create("t")
    machine.finish()
    machine.delete("t")
    answer = machine.create("t")
    unknown = machine.ask(
        MetadataRequest(topics=[MetadataRequestTopic(name="t")], allow_auto_topic_creation=True),
        12,
        MetadataResponse,
    )
    machine.finish()
    assert answer.value.topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS
    assert "marked for deletion" in (answer.value.topics[0].error_message or "")
    assert unknown.value.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    again = machine.create("t")
    machine.finish()
    assert again.value.topics[0].error_code == 0


def test_a_name_is_taken_until_what_followed_from_the_deletion_is_durable(machine: Machine) -> None:
    machine.create("t", "journal")
    machine.finish()
    journal = machine.core.topics.require("journal", 0).log

    def write(_: Topic) -> list[PartitionLog]:
        journal.append(build_batch([NewRecord(None, b"t is gone", (), 0)]), now_ms=machine.clock.wall_ms())
        return [journal]

    machine.core.topics.on_deleted.append(write)
    answer = machine.delete("t")
    while not journal.end_offset:
        machine.runner.step()
    assert machine.core.topics.is_being_deleted("t")
    assert not answer.is_done
    machine.finish()
    assert not machine.core.topics.is_being_deleted("t")
    assert answer.is_done
    machine.cut_power()
    assert machine.end_offset("journal") == 1


def test_a_topic_made_within_the_broker_while_its_name_is_being_deleted_finishes_that_first(
    machine: Machine,
) -> None:
    machine.create("t")
    machine.produce("t", b"old")
    machine.finish()
    machine.core.topics.delete("t")
    machine.core.topics.create("t", partitions=1, configs={})
    machine.finish()
    assert machine.end_offset("t") == 0
    machine.produce("t", b"new")
    machine.finish()
    machine.cut_power()
    assert machine.end_offset("t") == 1


def test_producer_ids_and_configs_are_answered_when_they_are_durable(machine: Machine) -> None:
    machine.create("t")
    machine.finish()
    first = machine.ask(InitProducerIdRequest(transactional_id=None), 4, InitProducerIdResponse)
    second = machine.ask(InitProducerIdRequest(transactional_id=None), 4, InitProducerIdResponse)
    config = AlterableConfig(name="retention.ms", config_operation=0, value="77")
    resource = AlterConfigsResource(resource_type=2, resource_name="t", configs=[config])
    altered = machine.ask(
        IncrementalAlterConfigsRequest(resources=[resource]), 1, IncrementalAlterConfigsResponse
    )
    assert not any(later.is_done for later in (first, second, altered))
    machine.finish()
    used = {first.value.producer_id, second.value.producer_id}
    machine.cut_power()
    topic = machine.core.topics.get("t")
    assert topic is not None
    assert topic.configs == {"retention.ms": "77"}
    later = machine.ask(InitProducerIdRequest(transactional_id=None), 4, InitProducerIdResponse)
    machine.finish()
    assert later.value.producer_id not in used


def test_many_topics_are_made_and_deleted_in_few_transactions_over_several_turns(machine: Machine) -> None:
    names = [f"team.topic_{number}" for number in range(5 * TOPICS_PER_STEP)]
    before = machine.core.metadata.commits
    answer = machine.create(*names)
    assert len(machine.core.topics) == TOPICS_PER_STEP
    machine.finish()
    assert machine.core.metadata.commits - before == 5
    assert [one.name for one in answer.value.topics] == names
    assert all(one.error_code == 0 for one in answer.value.topics)
    before = machine.core.metadata.commits
    gone = machine.delete(*names)
    assert len(machine.core.topics) == 4 * TOPICS_PER_STEP
    machine.finish()
    assert machine.core.metadata.commits - before <= 10
    assert [one.name for one in gone.value.responses] == names
    assert len(machine.core.topics) == 0
    assert machine.core.metadata.deleted_topics() == []


def test_without_fsync_nothing_is_synced_and_nothing_waits(tmp_path: Path) -> None:
    machine = Machine(tmp_path, headrace_flush="os")
    assert machine.create("t").is_done
    assert machine.produce("t", b"x").is_done
    assert machine.delete("t").is_done
    assert not machine.runner.waiting
    machine.close()


def test_a_full_disk_refuses_topics_one_request_at_a_time_and_leaves_none_behind(machine: Machine) -> None:
    database = machine.core.metadata._database
    pages = database.execute("PRAGMA page_count").fetchone()[0]
    database.execute(f"PRAGMA max_page_count={pages}")
    answer = machine.create(*[f"topic-{number}-{'x' * 200}" for number in range(50)])
    machine.finish()
    assert {one.error_code for one in answer.value.topics} == {ErrorCode.KAFKA_STORAGE_ERROR}
    assert len(machine.core.topics) == 0
    database.execute("PRAGMA max_page_count=10000")
    answer = machine.create("t")
    machine.finish()
    assert answer.value.topics[0].error_code == 0


def test_a_large_write_ahead_log_is_moved_to_the_database_by_the_slow_thread(machine: Machine) -> None:
    store = machine.core.metadata
    store.set_configs("group", "g", {"a": "x" * 5_000_000})
    store.set_configs("group", "g", {"a": "y"})
    assert len(machine.runner.waiting) == 1
    assert store.wants_checkpoint
    machine.finish()
    assert not store.wants_checkpoint


def test_a_fault_in_the_middle_is_an_answer_too(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.create("t")
    machine.finish()

    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("a fault of ours")

    monkeypatch.setattr(machine.core.topics, "create_all", broken)
    monkeypatch.setattr(machine.core.topics, "delete_all", broken)
    made = machine.core.handle(
        CreateTopicsRequest(topics=[CreatableTopic(name="u", num_partitions=1, replication_factor=1)]),
        Call(api_version=7),
    )
    assert isinstance(made, CreateTopicsResponse)
    assert made.topics[0].error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    gone = machine.core.handle(DeleteTopicsRequest(topics=[DeleteTopicState(name="t")]), Call(api_version=6))
    assert isinstance(gone, DeleteTopicsResponse)
    assert gone.responses[0].error_code == ErrorCode.UNKNOWN_SERVER_ERROR


def test_a_directory_that_does_not_say_whose_it_is_never_passes_to_a_new_topic(machine: Machine) -> None:
    """A power cut may take a topic and what its directory says, and leave the directory and files in it."""
    machine.disk.make_directory("orders-0")
    machine.disk.open("orders-0/00000000000000000002.snapshot", create=True).write(0, b"of another topic")
    machine.kill()
    assert not machine.disk.exists("orders-0")
    machine.create("orders")
    machine.finish()
    machine.produce("orders", b"first")
    machine.finish()
    assert machine.end_offset("orders") == 1
    assert not machine.disk.exists("orders-0/00000000000000000002.snapshot")


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Machine]:
    machine = Machine(
        tmp_path,
        authorizer_class_name="org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        super_users="User:ANONYMOUS",
    )
    yield machine
    machine.close()


ALICE_READS = Acl(
    AclResourceType.TOPIC,
    "orders",
    AclPatternType.PREFIXED,
    "User:alice",
    "*",
    AclOperation.READ,
    AclPermission.ALLOW,
)


def create_acl(machine: Machine) -> Later[CreateAclsResponse]:
    creation = AclCreation(
        resource_type=2,
        resource_name="orders",
        resource_pattern_type=4,
        principal="User:alice",
        host="*",
        operation=3,
        permission_type=3,
    )
    return machine.ask(CreateAclsRequest(creations=[creation]), 3, CreateAclsResponse)


def acls(machine: Machine) -> list[Acl]:
    assert machine.core.access is not None
    return machine.core.access.matching(AclFilter())


def test_acls_are_in_force_at_once_and_answered_when_they_would_survive_a_power_cut(guarded: Machine) -> None:
    answer = create_acl(guarded)
    assert acls(guarded) == [ALICE_READS]
    assert not answer.is_done
    guarded.cut_power()
    assert acls(guarded) == []
    answer = create_acl(guarded)
    guarded.finish()
    assert answer.value.results[0].error_code == 0
    guarded.cut_power()
    assert acls(guarded) == [ALICE_READS]


def test_deleted_acls_are_answered_when_they_cannot_come_back(guarded: Machine) -> None:
    create_acl(guarded)
    guarded.finish()
    everything = DeleteAclsFilter(
        resource_type_filter=1,
        resource_name_filter=None,
        pattern_type_filter=1,
        principal_filter=None,
        host_filter=None,
        operation=1,
        permission_type=1,
    )
    answer = guarded.ask(DeleteAclsRequest(filters=[everything]), 3, DeleteAclsResponse)
    assert not answer.is_done
    guarded.finish()
    assert len(answer.value.filter_results[0].matching_acls) == 1
    guarded.cut_power()
    assert acls(guarded) == []
