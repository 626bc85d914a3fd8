"""Three nodes of Apache Kafka with replication, whose brokers tests kill, stop and bring back. One cluster for all."""

from collections.abc import Iterator

import pytest

from headrace.client.admin.sync import Admin
from headrace.testing import ApacheKafka
from tests.cluster.brokers import Brokers

SETTINGS = {
    # A node that is killed is missed soon, and gets its leaderships back soon after its return.
    "broker.session.timeout.ms": 3_000,
    "broker.heartbeat.interval.ms": 500,
    "leader.imbalance.check.interval.seconds": 3,
    "offsets.topic.num.partitions": 3,
    "transaction.state.log.num.partitions": 3,
    "share.coordinator.state.topic.num.partitions": 3,
    "min.insync.replicas": 2,
    "default.replication.factor": 3,
    "group.share.min.record.lock.duration.ms": 1_000,
    "group.share.min.session.timeout.ms": 100,
    "group.share.min.heartbeat.interval.ms": 50,
    "group.share.heartbeat.interval.ms": 500,
    "group.share.assignment.interval.ms": 0,
}


@pytest.fixture(scope="session")
def cluster() -> Iterator[ApacheKafka]:
    with ApacheKafka(nodes=3, heap="256m", settings=SETTINGS) as cluster:
        yield cluster


@pytest.fixture
def brokers(cluster: ApacheKafka) -> Iterator[Brokers]:
    """The cluster, whole: every node is up and every replica in sync, before a test and after it."""
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        brokers = Brokers(cluster, admin)
        brokers.mend()
        yield brokers
        brokers.mend()
