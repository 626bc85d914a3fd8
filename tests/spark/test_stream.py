"""A query on a share group: which rows come out, and what the group knows afterward."""

from functools import reduce
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from headrace.client.errors import GroupIdNotFoundError
from tests.spark.conftest import Effects, Queue, drain, finish, make_queue, wait_for

pytestmark = pytest.mark.timeout(180)


@pytest.mark.parametrize("acknowledge", ["commit", "handoff"])
def test_a_queue_is_drained_once_and_settled(
    spark: SparkSession, queue: Queue, effects: Effects, acknowledge: str
) -> None:
    queue.send(1_000)
    drain(queue.stream(spark, acknowledge=acknowledge, maxRecordsPerTrigger=300), effects, queue)
    assert effects.numbers == list(range(1_000))
    assert max(map(len, effects.batches.values())) <= 300
    assert queue.lag() == 0


def test_rows_have_sparks_kafka_columns(spark: SparkSession, queue: Queue, effects: Effects) -> None:
    queue.send(2)
    drain(queue.stream(spark, includeHeaders="true"), effects, queue)
    row = effects.rows[0]
    assert (row["topic"], row["partition"], row["offset"], row["deliveryCount"]) == (queue.topic, 0, 0, 1)
    assert row["headers"] is None
    assert row["timestampType"] == 0


def test_a_clean_restart_goes_on_where_it_was(spark: SparkSession, queue: Queue, effects: Effects) -> None:
    for _ in range(2):
        queue.send(100)
        drain(queue.stream(spark), effects, queue)
    assert effects.numbers == list(range(200))
    assert {row["deliveryCount"] for row in effects.rows} == {1}


def test_a_running_query_gets_records_as_they_come_and_accepts_them(
    spark: SparkSession, queue: Queue, effects: Effects
) -> None:
    query = (
        queue.stream(spark)
        .writeStream.foreachBatch(effects)
        .option("checkpointLocation", queue.checkpoint)
        .start()
    )
    try:
        for _ in range(3):
            queue.send(50)
            wait_for(lambda: len(effects.rows) == queue.sent)
        wait_for(lambda: queue.lag() == 0)  # also the last micro-batch is settled, with nothing behind it
    finally:
        query.stop()
    assert effects.numbers == list(range(150))


def test_a_stopped_query_leaves_the_group(spark: SparkSession, queue: Queue, effects: Effects) -> None:
    query = (
        queue.stream(spark)
        .writeStream.foreachBatch(effects)
        .option("checkpointLocation", queue.checkpoint)
        .start()
    )
    queue.send(10)
    wait_for(lambda: len(effects.rows) == 10)
    query.stop()

    def is_empty() -> bool:
        with queue.admin() as admin:
            return not admin.describe_share_group(queue.group).members

    wait_for(is_empty)


def test_trigger_once_settles_its_one_micro_batch(
    spark: SparkSession, queue: Queue, effects: Effects
) -> None:
    queue.send(100)
    writer = (
        queue.stream(spark).writeStream.foreachBatch(effects).option("checkpointLocation", queue.checkpoint)
    )
    finish(writer.trigger(once=True).start())
    assert len(effects.batches) == 1
    assert effects.numbers == list(range(len(effects.rows)))
    wait_for(lambda: queue.lag() == 100 - len(effects.rows))


def test_two_queries_share_the_work(spark: SparkSession, queue: Queue, effects: Effects) -> None:
    others = Effects()
    queries = []
    for number, each in enumerate((effects, others)):
        checkpoint = str(queue.folder / f"checkpoint-{number}")
        stream = queue.stream(spark, checkpointLocation=checkpoint, maxRecordsPerTrigger=50)
        queries.append(stream.writeStream.foreachBatch(each).option("checkpointLocation", checkpoint).start())
    try:
        wait_for(lambda: _members(queue) == 2)
        queue.send(1_000)
        wait_for(lambda: len(effects.rows) + len(others.rows) >= 1_000)
        wait_for(lambda: queue.lag() == 0)
    finally:
        for query in queries:
            query.stop()
    assert sorted(effects.numbers + others.numbers) == list(range(1_000))


def _members(queue: Queue) -> int:
    with queue.admin() as admin:
        try:
            members = admin.describe_share_group(queue.group).members
        except GroupIdNotFoundError:
            return 0
    return sum(1 for member in members if member.assignment)


def test_more_tasks_than_partitions(spark: SparkSession, queue: Queue, effects: Effects) -> None:
    queue.send(1_000)
    counts: list[int] = []

    def count(batch: object, batch_id: int) -> None:
        counts.append(batch.rdd.getNumPartitions())  # type: ignore[attr-defined]
        effects(batch, batch_id)  # type: ignore[arg-type]

    drain(queue.stream(spark, minPartitions=7), count, queue)
    assert 7 in counts
    assert effects.numbers == list(range(1_000))


def test_several_actions_and_a_union_see_the_same_records(
    spark: SparkSession, queue: Queue, effects: Effects
) -> None:
    queue.send(200)
    seen: list[tuple[int, int]] = []

    def look_often(batch: object, batch_id: int) -> None:
        seen.append((batch.count(), batch.select("offset").distinct().count()))  # type: ignore[attr-defined]
        effects(batch, batch_id)  # type: ignore[arg-type]

    stream = queue.stream(spark)
    drain(stream.union(stream), look_often, queue)
    assert effects.numbers == sorted([*range(200)] * 2)
    assert sum(count for count, _ in seen) == 400


def test_micro_batches_without_data_change_nothing(spark: SparkSession, queue: Queue) -> None:
    queue.send(100)
    counted = (
        queue.stream(spark, maxRecordsPerTrigger=50)
        .withWatermark("timestamp", "0 seconds")
        .groupBy("timestamp")
        .count()
    )
    query = (
        counted.writeStream.format("memory")
        .queryName("counted")
        .outputMode("append")
        .option("checkpointLocation", queue.checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    finish(query)
    wait_for(lambda: queue.lag() == 0)


EVOLUTION = {
    "spark.sql.streaming.offsetLog.formatVersion": "2",
    "spark.sql.streaming.queryEvolution.enableSourceEvolution": "true",
}


def test_named_sources_come_and_go_in_sparks_newer_offset_log(
    spark: SparkSession, queue: Queue, effects: Effects, tmp_path: Path
) -> None:
    other = make_queue(queue.bootstrap_servers, f"{queue.topic}-2", tmp_path / "other")
    queues = {"a": queue, "b": other}
    for name, value in EVOLUTION.items():
        spark.conf.set(name, value)
    try:
        for names in ("a", "ab", "ba", "b"):
            for name in names:
                queues[name].send(10)
            streams = [
                queues[name].stream(
                    spark, reader=spark.readStream.name(name), checkpointLocation=queue.checkpoint
                )
                for name in names
            ]
            drain(reduce(DataFrame.union, streams), effects, queue)
            assert [queues[name].lag() for name in names] == [0] * len(names)
    finally:
        for name in EVOLUTION:
            spark.conf.unset(name)
    assert effects.numbers == sorted([*range(30), *range(30)])


def test_sql_reads_a_temporary_view(spark: SparkSession, queue: Queue, effects: Effects) -> None:
    queue.send(10)
    queue.stream(spark).createOrReplaceTempView("orders")
    drain(spark.sql("SELECT value FROM orders WHERE CAST(CAST(value AS STRING) AS INT) >= 5"), effects, queue)
    assert effects.numbers == [5, 6, 7, 8, 9]
    assert queue.lag() == 0


def test_progress_shows_lag_and_what_was_acknowledged(
    spark: SparkSession, queue: Queue, effects: Effects
) -> None:
    queue.send(100)
    query = drain(queue.stream(spark, maxRecordsPerTrigger=50), effects, queue)
    reported = query.recentProgress[-1]["sources"][0]["latestOffset"]
    assert '"delivered": 100' in str(reported)
