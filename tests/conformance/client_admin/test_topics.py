"""Goal: topics, their configs and their records are looked after alike on both brokers, and refusals name the cure."""

from datetime import UTC, datetime

import pytest

from headrace.client.admin import EARLIEST, LATEST, Admin, OffsetSpec, SomeFailedError
from headrace.client.admin.results import ConfigType, ListedOffset, TopicDescription
from headrace.client.errors import (
    InvalidConfigError,
    InvalidPartitionsError,
    InvalidReplicationFactorError,
    InvalidTopicError,
    OffsetOutOfRangeError,
    TopicExistsError,
    UnknownTopicOrPartitionError,
)
from headrace.wire.enums import ConfigSource
from headrace.wire.ids import uuid_text
from tests.conformance.steps import (
    add_partitions,
    batch,
    init_producer,
    produced,
    topic_id_of,
    transactional_batch,
    wait_for,
)
from tests.conformance.wire_client import WireClient


def names(topics: list[TopicDescription]) -> set[str]:
    return {topic.name for topic in topics}


def test_a_new_topic_can_be_used_at_once(admin: Admin, wire: WireClient, unique: str) -> None:
    topic = admin.create_topic(unique, partitions=3, configs={"retention.ms": 60_000, "preallocate": True})
    assert topic.name == unique
    assert [one.partition for one in topic.partitions] == [0, 1, 2]
    assert all(one.leader == 1 and one.replicas == one.isr == (1,) for one in topic.partitions)
    assert (topic.replication_factor, topic.is_internal, len(topic.topic_id)) == (1, False, 22)
    assert produced(wire, unique, batch("a"), partition=2) == 0
    described = admin.describe_topics([unique], offsets=True)[unique]
    assert [(one.start_offset, one.end_offset) for one in described.partitions] == [(0, 0), (0, 0), (0, 1)]
    config = admin.topic_config(unique)
    assert (config["retention.ms"].value, config["preallocate"].value) == ("60000", "true")


def test_topics_are_listed_and_internal_ones_only_on_request(admin: Admin, unique: str) -> None:
    admin.create_topic(unique)
    admin.alter_share_group_offsets(unique, to=EARLIEST, topics=[unique])
    listed = admin.list_topics()
    assert unique in names(listed)
    assert [topic.name for topic in listed] == sorted(names(listed))
    assert "__share_group_state" not in names(listed)
    assert "__share_group_state" in names(admin.list_topics(internal=True))


def test_a_topic_of_that_name_is_refused(admin: Admin, unique: str) -> None:
    admin.create_topic(unique)
    with pytest.raises(TopicExistsError, match=f"topic '{unique}'.*Use the topic as it is, or another name"):
        admin.create_topic(unique)


def test_what_cannot_be_a_topic_is_refused(admin: Admin, unique: str) -> None:
    with pytest.raises(InvalidTopicError, match="letters, digits, dots"):
        admin.create_topic("not/a/name")
    with pytest.raises(InvalidPartitionsError, match="at least 1 partition"):
        admin.create_topic(unique, partitions=0)
    with pytest.raises(InvalidReplicationFactorError, match="at most as many replicas as the cluster has"):
        admin.create_topic(unique, replication_factor=5)
    with pytest.raises(InvalidConfigError, match=r"retention\.ms"):
        admin.create_topic(unique, configs={"retention.ms": "soon"})
    with pytest.raises(UnknownTopicOrPartitionError):
        admin.describe_topics([unique])


def test_a_topic_grows_and_never_shrinks(admin: Admin, unique: str) -> None:
    admin.create_topic(unique)
    admin.create_partitions(unique, 3)
    wait_for(lambda: len(admin.describe_topics([unique])[unique].partitions) == 3)
    with pytest.raises(InvalidPartitionsError, match="can only gain partitions"):
        admin.create_partitions(unique, 2)
    with pytest.raises(UnknownTopicOrPartitionError, match=f"topic '{unique}-not-there'"):
        admin.create_partitions(f"{unique}-not-there", 2)


def test_topics_are_deleted_and_one_that_is_not_there_does_not_keep_the_others(
    admin: Admin, unique: str
) -> None:
    for name in (f"{unique}-a", f"{unique}-b"):
        admin.create_topic(name)
    with pytest.raises(SomeFailedError) as failed:
        admin.delete_topics([f"{unique}-a", f"{unique}-not-there", f"{unique}-b"])
    assert list(failed.value.errors) == [f"{unique}-not-there"]
    assert isinstance(failed.value.errors[f"{unique}-not-there"], UnknownTopicOrPartitionError)
    wait_for(lambda: not {name for name in names(admin.list_topics()) if name.startswith(unique)})
    with pytest.raises(UnknownTopicOrPartitionError):
        admin.delete_topics(f"{unique}-a")


def test_describing_several_topics_names_each_that_is_not_there(admin: Admin, unique: str) -> None:
    admin.create_topic(unique)
    with pytest.raises(SomeFailedError, match="2 of 3 failed") as failed:
        admin.describe_topics([f"{unique}-x", unique, f"{unique}-y"])
    assert set(failed.value.errors) == {f"{unique}-x", f"{unique}-y"}
    assert admin.describe_topics([]) == {}


def test_the_id_of_a_topic_is_the_one_that_clients_are_told(
    admin: Admin, wire: WireClient, unique: str
) -> None:
    assert admin.create_topic(unique).topic_id == uuid_text(topic_id_of(wire, unique))


def test_topic_configs_are_set_and_put_back(admin: Admin, unique: str) -> None:
    admin.create_topic(unique)
    untouched = admin.topic_config(unique)
    assert untouched["retention.ms"].is_default
    admin.set_topic_config(unique, {"retention.ms": 5000, "cleanup.policy": "compact"})
    changed = admin.topic_config(unique)
    entry = changed["retention.ms"]
    assert (entry.value, entry.source, entry.type) == (
        "5000",
        ConfigSource.DYNAMIC_TOPIC,
        ConfigType.LONG,
    )
    assert entry.documentation
    admin.set_topic_config(unique, {"retention.ms": None})
    after = admin.topic_config(unique)
    assert after["retention.ms"].value == untouched["retention.ms"].value
    assert after["cleanup.policy"].value == "compact"
    admin.set_topic_config(unique, {})


def test_a_config_that_cannot_be_leaves_all_as_it_was(admin: Admin, unique: str) -> None:
    admin.create_topic(unique)
    with pytest.raises(InvalidConfigError, match=f"topic '{unique}'.*retention.ms"):
        admin.set_topic_config(unique, {"max.message.bytes": 1000, "retention.ms": -2})
    assert admin.topic_config(unique)["max.message.bytes"].is_default
    with pytest.raises(UnknownTopicOrPartitionError):
        admin.topic_config(f"{unique}-not-there")
    with pytest.raises(UnknownTopicOrPartitionError):
        admin.set_topic_config(f"{unique}-not-there", {"retention.ms": 1})


def test_offsets_are_found_by_name_and_by_time(admin: Admin, wire: WireClient, unique: str) -> None:
    admin.create_topic(unique, partitions=2)
    for timestamp in (1_000_000, 2_000_000, 3_000_000):
        produced(wire, unique, batch("a", timestamp=timestamp))
    place = unique, 0
    assert admin.list_offsets({place: EARLIEST, (unique, 1): LATEST}) == {
        place: ListedOffset(0, None, 0),
        (unique, 1): ListedOffset(0, None, 0),
    }
    assert admin.list_offsets({place: LATEST})[place].offset == 3
    assert admin.list_offsets({place: 1_500_000})[place] == ListedOffset(1, 2_000_000, 0)
    assert admin.list_offsets({place: datetime.fromtimestamp(2500, UTC)})[place].offset == 2
    assert admin.list_offsets({place: OffsetSpec.MAX_TIMESTAMP})[place].offset == 2
    assert admin.list_offsets({place: 4_000_000})[place] == ListedOffset(None, None, None)


def test_what_is_in_an_open_transaction_is_not_committed(admin: Admin, wire: WireClient, unique: str) -> None:
    admin.create_topic(unique)
    produced(wire, unique, batch("before"))
    producer = init_producer(wire, unique)
    assert add_partitions(wire, unique, producer, unique) == 0
    produced(wire, unique, transactional_batch(producer, 0, "open"), transactional_id=unique)
    place = unique, 0
    assert admin.list_offsets({place: LATEST})[place].offset == 2
    assert admin.list_offsets({place: LATEST}, committed=True)[place].offset == 1


def test_offsets_of_what_is_not_there_are_refused_one_by_one(admin: Admin, unique: str) -> None:
    admin.create_topic(unique)
    wanted = {(unique, 0): LATEST, (unique, 7): LATEST, (f"{unique}-not-there", 0): LATEST}
    with pytest.raises(SomeFailedError, match="2 of 3 failed") as failed:
        admin.list_offsets(wanted)
    assert set(failed.value.errors) == {(unique, 7), (f"{unique}-not-there", 0)}
    with pytest.raises(UnknownTopicOrPartitionError, match="partition 7 of topic"):
        admin.list_offsets({(unique, 7): LATEST})


def test_records_are_deleted_up_to_an_offset(admin: Admin, wire: WireClient, unique: str) -> None:
    admin.create_topic(unique, partitions=2)
    produced(wire, unique, batch(*"abcdef"))
    produced(wire, unique, batch(*"xyz"), partition=1)
    assert admin.delete_records({(unique, 0): 4, (unique, 1): LATEST}) == {(unique, 0): 4, (unique, 1): 3}
    described = admin.describe_topics([unique], offsets=True)[unique]
    assert [(one.start_offset, one.end_offset) for one in described.partitions] == [(4, 6), (3, 3)]
    with pytest.raises(OffsetOutOfRangeError, match=f"partition 0 of topic '{unique}'"):
        admin.delete_records({(unique, 0): 7})
