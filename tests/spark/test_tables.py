"""`kafka-share-state` and `kafka-share-dead-letters`: what consumers and queries did is what the tables say."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from headrace import Delivery, Producer, ShareConsumer
from headrace.spark import process
from headrace.spark.tables import KafkaShareDeadLetters
from headrace.wire.dead_letter import kafka_headers
from tests.spark.conftest import WAIT_S, Queue, make_queue, wait_for
from tests.spark.test_outcomes_on_spark import judge, make_letters, run
from tests.spark.test_sink import BOTH

pytestmark = pytest.mark.timeout(240)


@pytest.fixture(params=BOTH)
def target(request: pytest.FixtureRequest, unique: str, tmp_path: Path) -> Queue:
    """A topic of one partition on either broker."""
    servers = request.getfixturevalue(request.param).bootstrap_servers
    return make_queue(servers, unique, tmp_path, partitions=1)


def table(spark: SparkSession, queue: Queue, name: str, **options: str) -> DataFrame:
    reader = spark.read.format(name).option("kafka.bootstrap.servers", queue.bootstrap_servers)
    return reader.options(**options).load()


def deliver(queue: Queue, decide: Callable[[Delivery], None], is_done: Callable[[], bool]) -> None:
    """Hands deliveries to a consumer that decides about each."""
    with queue.admin() as admin:
        admin.set_group_config(queue.group, {"share.auto.offset.reset": "earliest"})
    settings = {"bootstrap.servers": queue.bootstrap_servers, "group.id": queue.group}
    with ShareConsumer(settings, share_acknowledgement_mode="explicit") as consumer:
        consumer.subscribe([queue.topic])
        while not is_done():
            deliveries = consumer.poll(timeout=WAIT_S)
            assert deliveries, "nothing was delivered"
            for delivery in deliveries:
                decide(delivery)
            consumer.commit_sync()


def test_a_row_is_a_range_of_records_with_state_and_delivery_count(
    spark: SparkSession, target: Queue
) -> None:
    target.send(10)
    counts: dict[int, int] = {}

    def decide(delivery: Delivery) -> None:
        counts[delivery.offset] = delivery.delivery_count
        if delivery.offset == 0:
            delivery.release()
        elif delivery.offset < 8:
            delivery.accept()
        else:
            delivery.reject("bad")

    deliver(target, decide, lambda: len(counts) == 10 and counts[0] >= 3)
    target.send(5)
    found = table(spark, target, "kafka-share-state", groups=target.group)
    rows = sorted(found.collect(), key=lambda row: row.firstOffset)
    shown = [(row.firstOffset, row.lastOffset, row.records, row.state, row.deliveryCount) for row in rows]
    assert shown == [
        (0, 0, 1, "available", counts[0]),
        (1, 7, 7, "acknowledged", 1),
        (8, 9, 2, "archived", 1),
        (10, 14, 5, "open", None),
    ]
    assert {(row.group, row.topic, row.partition) for row in rows} == {(target.group, target.topic, 0)}
    assert {(row.startOffset, row.endOffset, row.lag) for row in rows} == {(0, 15, 6)}
    assert {(row.groupState, tuple(row.members)) for row in rows} == {("Empty", ())}

    records = table(spark, target, "kafka-share-state", groups=target.group, includeRecords="true")
    retried = records.where("deliveryCount > 2").collect()
    assert [(row.offset, bytes(row.value), row.state, row.deliveryCount) for row in retried] == [
        (0, b"0", "available", counts[0])
    ]
    assert sorted(row.offset for row in records.collect()) == list(range(10))


def test_dead_letters_have_their_cause_and_the_record(spark: SparkSession, target: Queue) -> None:
    target.send(20)
    letters = make_letters(target)

    def reject(batch: DataFrame, _: int) -> DataFrame:
        return judge(batch).where("outcome = 'reject'")

    run(process(target.stream(spark, deadLetterTopic=letters), reject))
    found = table(spark, target, "kafka-share-dead-letters", topics=letters).orderBy("offset").collect()
    assert [(row.sourceTopic, row.sourceOffset, bytes(row.value)) for row in found] == [
        (target.topic, 3, b"3"),
        (target.topic, 13, b"13"),
    ]
    assert {(row.status, row.message, row.group, row.deliveryCount) for row in found} == {
        ("waiting", "ends in 3", target.group, 1)
    }
    assert len({row.cause for row in found}) == 1

    with target.admin() as admin:
        admin.redrive(letters, limit=1, dry_run=False)
    everything = table(spark, target, "kafka-share-dead-letters")  # finds the topic by itself
    ours = everything.where(everything.deadLetterTopic == letters)
    assert sorted(row.status for row in ours.collect()) == ["redriven", "waiting"]


def test_sql_reads_the_tables(spark: SparkSession, queue: Queue) -> None:
    """As views and, where the catalog allows it, as tables; a letter without a copy is read in its own topic."""
    queue.send(2)
    accepted: list[None] = []
    deliver(queue, lambda delivery: accepted.append(delivery.accept()), lambda: len(accepted) == 2)
    with Producer(bootstrap_servers=queue.bootstrap_servers) as producer:
        facts = {
            "topic": queue.topic,
            "partition": "1",
            "offset": "0",
            "group": queue.group,
            "message": "bad",
        }
        headers = [(f"__dlq.errors.{name}", value.encode()) for name, value in facts.items()]
        producer.send(make_letters(queue), None, headers=headers).result()
    options = f"`kafka.bootstrap.servers` '{queue.bootstrap_servers}'"
    for name, source in (("share_state", "kafka-share-state"), ("dead_letters", "kafka-share-dead-letters")):
        spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW {name} USING `{source}` OPTIONS ({options})")
    lags = spark.sql(f"SELECT max(lag) AS lag FROM share_state WHERE `group` = '{queue.group}'").collect()
    assert [row.lag for row in lags] == [0]
    found = spark.sql(
        f"SELECT CAST(value AS STRING) AS value, message FROM dead_letters WHERE `group` = '{queue.group}'"
    )
    assert [tuple(row) for row in found.collect()] == [("1", "bad")]


def test_a_member_that_has_a_partition_is_named(spark: SparkSession, queue: Queue) -> None:
    queue.send(10)
    with queue.admin() as admin:
        admin.set_group_config(queue.group, {"share.auto.offset.reset": "earliest"})
    settings: dict[str, Any] = {"bootstrap.servers": queue.bootstrap_servers, "group.id": queue.group}
    with ShareConsumer(settings, share_acknowledgement_mode="explicit") as consumer:
        consumer.subscribe([queue.topic])
        assert consumer.poll(timeout=WAIT_S)

        def members() -> set[tuple[str, ...]]:
            rows = table(spark, queue, "kafka-share-state", groups=queue.group).collect()
            return {tuple(row.members) for row in rows}

        wait_for(lambda: any(members()))
        with queue.admin() as admin:
            (member,) = admin.describe_share_group(queue.group).members
        assert members() == {(member.member_id,)}


def test_a_group_that_is_not_there_is_named(spark: SparkSession, queue: Queue) -> None:
    with pytest.raises(Exception, match="there is no share group of that name"):
        table(spark, queue, "kafka-share-state", groups="nobody").collect()


def test_large_dead_letters_come_in_batches_of_some_megabytes(queue: Queue) -> None:
    """Together they may be more than a task has memory for; each Arrow column is limited to 2 GB, too."""
    letters = make_letters(queue)
    with Producer(bootstrap_servers=queue.bootstrap_servers) as producer:
        for number in range(100):
            headers = kafka_headers(queue.topic, 0, number, queue.group, 1, "bad")
            producer.send(letters, bytes(800_000), headers=headers, partition=0)
        producer.flush()
    options = {"kafka.bootstrap.servers": queue.bootstrap_servers, "topics": letters}
    reader = KafkaShareDeadLetters(options).reader(StructType())
    batches = [batch for each in reader.partitions() for batch in reader.read(each)]
    assert sum(batch.num_rows for batch in batches) == 100
    assert {size for batch in batches for size in pc.binary_length(batch["value"]).to_pylist()} == {800_000}
    assert max(batch.nbytes for batch in batches) < 40_000_000
