"""The runner of Apache Kafka itself: several nodes, a kill, and a start that fails."""

import pytest
from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient, NewTopic

from headrace.testing import ApacheKafka
from headrace.testing.apache_kafka import StartFailed
from tests.compat.confluent import WAIT_S, consumer, partitions, produce, take, wait_for

pytestmark = pytest.mark.needs_kafka


def test_three_nodes_replicate(unique: str) -> None:
    with ApacheKafka(nodes=3, heap="256m") as cluster:
        assert len(cluster.pids) == 3
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        admin.create_topics([NewTopic(unique, num_partitions=1, replication_factor=3)])[unique].result(WAIT_S)

        def replicas() -> set[int]:
            try:
                described = admin.describe_topics(TopicCollection([unique]))[unique].result(WAIT_S)
            except KafkaException:  # the node that is asked has not heard of the topic yet
                return set()
            return {replica.id for replica in described.partitions[0].replicas}

        wait_for(lambda: replicas() == {1, 2, 3}, "three replicas")
        assert len(produce(cluster.bootstrap_servers, unique, ["one", "two"], acks="all")) == 2
    assert cluster.pids == []


def test_a_killed_node_comes_back_with_its_records(unique: str) -> None:
    # The controller takes the node back only when the session of its former life has ended.
    with ApacheKafka(settings={"broker.session.timeout.ms": 2_000}) as cluster:
        address = cluster.bootstrap_servers
        produce(address, unique, ["one", "two"])
        cluster.kill()
        assert not cluster.pids
        cluster.start()
        assert cluster.bootstrap_servers == address
        with consumer(address, unique) as source:
            source.assign(partitions(unique, 0))
            assert [message.value() for message in take(source, 2)] == [b"one", b"two"]


def test_a_start_that_fails_shows_the_log_of_the_node() -> None:
    with pytest.raises(StartFailed, match=r"log\.retention\.check\.interval\.ms"):
        ApacheKafka(settings={"log.retention.check.interval.ms": "soon"}).start()
