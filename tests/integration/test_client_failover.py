"""Goal: the transport follows a partition whose leader dies, on a cluster of three, and loses nothing on the way.

Method: Apache Kafka with three replicas; the leader is killed with -9 in the middle of a read.
"""

import logging
import os
import signal
from collections.abc import Iterator

import pytest

from headrace.client.cluster import Cluster
from headrace.client.plain_fetch import list_offsets, read_range
from headrace.testing import ApacheKafka
from headrace.wire.enums import OffsetSpec
from headrace.wire.records import read_records
from tests.unit.client.talk import create_topic, produce, run, settings_for

pytestmark = pytest.mark.needs_kafka
SETTINGS = {"broker.session.timeout.ms": 3_000, "broker.heartbeat.interval.ms": 500}
BATCHES, RECORDS = 60, 10


@pytest.fixture
def kafka() -> Iterator[ApacheKafka]:
    with ApacheKafka(nodes=3, heap="256m", settings=SETTINGS) as kafka:
        yield kafka


def test_a_read_goes_on_at_the_new_leader_when_the_old_one_is_killed(
    kafka: ApacheKafka, unique: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "headrace.client")

    async def scenario() -> None:
        async with Cluster(settings_for(kafka.bootstrap_servers)) as cluster:
            topic = await create_topic(cluster, unique, replicas=3)
            for number in range(BATCHES):
                await produce(
                    cluster, topic, [b"%d" % (number * RECORDS + index) for index in range(RECORDS)]
                )
            leader = topic.partitions[0].leader_id
            last = BATCHES * RECORDS - 1
            values = []
            async for _, batch in read_range(cluster, unique, 0, 0, last, max_bytes=100):
                values += [int(record.value or b"") for record in read_records(batch)]
                if len(values) == 200:
                    os.kill(kafka.pids[leader - 1], signal.SIGKILL)
            assert values == list(range(BATCHES * RECORDS))

            place = unique, 0
            assert await list_offsets(cluster, {place: OffsetSpec.LATEST}) == {place: BATCHES * RECORDS}
            assert await list_offsets(cluster, {place: OffsetSpec.EARLIEST}) == {place: 0}
            moved = cluster.topic(unique)
            assert moved is not None
            assert moved.partitions[0].leader_id not in (-1, leader)
            assert moved.partitions[0].leader_epoch > topic.partitions[0].leader_epoch

    run(scenario(), timeout_s=60)
    lines = [record.getMessage() for record in caplog.records if record.name == "headrace.client"]
    assert len(lines) <= 1, lines
