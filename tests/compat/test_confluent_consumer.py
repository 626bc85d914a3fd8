"""confluent-kafka's consumer under both group protocols: classic (JoinGroup) and consumer (KIP-848)."""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from tests.compat.confluent import WAIT_S, consumer, nothing_more, partitions, produce, take, wait_for


@pytest.fixture(params=["classic", "consumer"])
def protocol(request: pytest.FixtureRequest) -> dict[str, Any]:
    fast = {"session.timeout.ms": 6_000, "heartbeat.interval.ms": 200} if request.param == "classic" else {}
    return {"group.protocol": request.param, "topic.metadata.refresh.interval.ms": 500, **fast}


@pytest.fixture
def topic(bootstrap_servers: str, unique: str) -> Iterator[str]:
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    admin.create_topics([NewTopic(unique, num_partitions=4)])[unique].result(WAIT_S)
    yield unique
    admin.delete_topics([unique])[unique].result(WAIT_S)


def owned(source: Consumer) -> set[int]:
    return {partition.partition for partition in source.assignment()}


def test_a_group_reads_everything_once_and_goes_on_where_it_committed(
    bootstrap_servers: str, topic: str, protocol: dict[str, Any]
) -> None:
    values = {str(number) for number in range(200)}
    produce(bootstrap_servers, topic, values)
    with consumer(bootstrap_servers, topic, **protocol) as source:
        source.subscribe([topic])
        assert {message.value().decode() for message in take(source, 200)} == values
        source.commit(asynchronous=False)
        committed = source.committed(partitions(topic, 0, 0, 0, 0), timeout=WAIT_S)
        assert sum(partition.offset for partition in committed) == 200
    produce(bootstrap_servers, topic, ["later"])
    with consumer(bootstrap_servers, topic, **protocol) as source:
        source.subscribe([topic])
        assert [message.value() for message in take(source, 1)] == [b"later"]
        assert nothing_more(source)


def test_members_share_the_partitions_and_one_that_leaves_gives_its_own_back(
    bootstrap_servers: str, topic: str, protocol: dict[str, Any]
) -> None:
    with ExitStack() as stack:
        first, second = (
            stack.enter_context(consumer(bootstrap_servers, topic, **protocol)) for _ in range(2)
        )
        first.subscribe([topic])
        wait_for(lambda: len(owned(first)) == 4, "the first member has all", [first])
        second.subscribe([topic])
        wait_for(lambda: len(owned(first)) == len(owned(second)) == 2, "two each", [first, second])
        assert owned(first) | owned(second) == {0, 1, 2, 3}
        second.close()
        wait_for(lambda: len(owned(first)) == 4, "all back at the first member", [first])


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
def test_every_classic_strategy_of_librdkafka_shares_the_partitions(
    bootstrap_servers: str, topic: str, strategy: str
) -> None:
    settings = {
        "partition.assignment.strategy": strategy,
        "heartbeat.interval.ms": 200,
        "session.timeout.ms": 6_000,
    }
    with ExitStack() as stack:
        members = [stack.enter_context(consumer(bootstrap_servers, topic, **settings)) for _ in range(2)]
        for member in members:
            member.subscribe([topic])
        wait_for(lambda: [len(owned(member)) for member in members] == [2, 2], "two each", members)
        assert owned(members[0]) | owned(members[1]) == {0, 1, 2, 3}


@pytest.mark.parametrize("assignor", ["range", "uniform"])
def test_both_assignors_of_the_broker_can_be_asked_for(
    bootstrap_servers: str, topic: str, assignor: str
) -> None:
    settings = {"group.protocol": "consumer", "group.remote.assignor": assignor}
    with consumer(bootstrap_servers, topic, **settings) as source:
        source.subscribe([topic])
        wait_for(lambda: len(owned(source)) == 4, "all partitions", [source])


def test_a_partition_added_later_is_found(
    bootstrap_servers: str, topic: str, protocol: dict[str, Any]
) -> None:
    with consumer(bootstrap_servers, topic, **protocol) as source:
        source.subscribe([topic])
        wait_for(lambda: len(owned(source)) == 4, "all partitions", [source])
        admin = AdminClient({"bootstrap.servers": bootstrap_servers})
        admin.create_partitions([NewPartitions(topic, 5)])[topic].result(WAIT_S)
        wait_for(lambda: len(owned(source)) == 5, "the new partition", [source])


def test_a_pattern_subscribes_to_what_it_matches(
    bootstrap_servers: str, topic: str, protocol: dict[str, Any]
) -> None:
    with consumer(bootstrap_servers, topic, **protocol) as source:
        source.subscribe([f"^{topic[:-2]}.*"])
        wait_for(lambda: len(owned(source)) == 4, "all partitions of the matching topic", [source])


def test_static_members_come_back_to_their_partitions(bootstrap_servers: str, topic: str) -> None:
    settings = {"group.instance.id": "one", "session.timeout.ms": 6_000, "heartbeat.interval.ms": 200}
    produce(bootstrap_servers, topic, ["a", "b"])
    for _ in range(2):
        with consumer(bootstrap_servers, topic, **settings) as source:
            source.subscribe([topic])
            assert {message.value() for message in take(source, 2)} == {b"a", b"b"}


def test_positions_by_offset_and_by_time(bootstrap_servers: str, topic: str) -> None:
    first, *_, last = produce(bootstrap_servers, topic, [f"same key {number}" for number in range(50)])
    one = TopicPartition(topic, last.partition())
    with consumer(bootstrap_servers, topic) as source:
        low, high = source.get_watermark_offsets(one, timeout=WAIT_S)
        assert (low, high) == (0, last.offset() + 1)
        timestamp = first.timestamp()[1]
        (found,) = source.offsets_for_times([TopicPartition(topic, one.partition, timestamp)], timeout=WAIT_S)
        assert found.offset == 0
        (beyond,) = source.offsets_for_times([TopicPartition(topic, one.partition, 2**60)], timeout=WAIT_S)
        assert beyond.offset == -1
        source.assign([TopicPartition(topic, one.partition, high - 1)])
        assert take(source, 1)[0].offset() == high - 1
        source.seek(TopicPartition(topic, one.partition, OFFSET_BEGINNING))
        assert take(source, 1)[0].offset() == 0


def test_committed_offsets_keep_their_metadata(bootstrap_servers: str, topic: str) -> None:
    with consumer(bootstrap_servers, topic) as source:
        source.commit(offsets=[TopicPartition(topic, 2, 7, "note")], asynchronous=False)
        committed = source.committed(partitions(topic, 0, 0, 0), timeout=WAIT_S)
        assert [(partition.offset, partition.metadata) for partition in committed] == [
            (-1001, None),
            (-1001, None),
            (7, "note"),
        ]


def test_a_commit_to_a_topic_that_is_not_there_is_refused(bootstrap_servers: str, unique: str) -> None:
    with (
        consumer(bootstrap_servers, unique) as source,
        pytest.raises(KafkaException, match="UNKNOWN_TOPIC_OR_PART"),
    ):
        source.commit(offsets=[TopicPartition(f"{unique}-missing", 0, 1)], asynchronous=False)
