"""A query over three nodes of Apache Kafka with three replicas: a leader killed in mid-batch, and a rolling restart.

Goal: 0 missing, 0 doubled. Method: effects are counted by number, a micro-batch that is repeated replaces its own. The
killed node leads a partition that the micro-batch still has to read, and holds the group's locks on it.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from headrace.client.admin.sync import Admin
from headrace.testing import ApacheKafka
from tests.cluster.brokers import NODES, Brokers
from tests.cluster.conftest import SETTINGS
from tests.spark.conftest import Effects, Queue, finish, wait_for

pytestmark = [pytest.mark.timeout(300), pytest.mark.needs_kafka]
RECORDS = 900


@pytest.fixture(scope="module")
def brokers() -> Iterator[Brokers]:
    with (
        ApacheKafka(nodes=3, heap="256m", settings=SETTINGS) as kafka,
        Admin(bootstrap_servers=kafka.bootstrap_servers) as admin,
    ):
        yield Brokers(kafka, admin)


@pytest.fixture
def replicated(brokers: Brokers, unique: str, tmp_path: Path) -> Queue:
    brokers.mend()
    brokers.new_topic(unique, partitions=2)
    return Queue(brokers.addresses, unique, unique, tmp_path)


@pytest.mark.parametrize("acknowledge", ["commit", pytest.param("handoff", marks=pytest.mark.thorough)])
def test_a_leader_killed_in_mid_batch_costs_nothing_and_doubles_nothing(
    spark: SparkSession, brokers: Brokers, replicated: Queue, effects: Effects, acknowledge: str
) -> None:
    replicated.send(RECORDS)
    killed: list[int] = []

    def handle(batch: DataFrame, batch_id: int) -> None:
        if batch_id == 1:
            leader = brokers.leaders(replicated.topic)[0]
            assert leader is not None
            killed.append(leader)
            brokers.kill(leader)  # Spark has planned the micro-batch; its tasks have read nothing yet
        effects(batch, batch_id)

    stream = replicated.stream(spark, acknowledge=acknowledge, maxRecordsPerTrigger=300)
    finish(
        stream.writeStream.foreachBatch(handle)
        .option("checkpointLocation", replicated.checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    assert len(killed) == 1
    assert effects.numbers == list(range(RECORDS))


def test_a_rolling_restart_goes_unnoticed(
    spark: SparkSession, brokers: Brokers, replicated: Queue, effects: Effects
) -> None:
    query = (
        replicated.stream(spark)
        .writeStream.foreachBatch(effects)
        .option("checkpointLocation", replicated.checkpoint)
        .start()
    )
    try:
        for node in NODES:
            replicated.send(100)
            brokers.stop(node)
            replicated.send(100)
            brokers.mend()
        wait_for(lambda: len(effects.rows) >= replicated.sent)
        wait_for(lambda: replicated.lag() == 0)
        assert query.isActive
    finally:
        query.stop()
    assert effects.numbers == list(range(replicated.sent))
