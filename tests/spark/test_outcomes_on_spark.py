"""What becomes of single records: release, reject with a reason, dead letters, values that cannot be read."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from headrace.spark import parse_avro, parse_json, process
from headrace.spark.errors import OptionError
from tests.spark.conftest import Effects, Queue, finish

pytestmark = pytest.mark.timeout(180)
KEYS = ("topic", "partition", "offset", "deliveryCount")


def number() -> Column:
    return F.col("value").cast("string").cast("int")


def judge(batch: DataFrame) -> DataFrame:
    """Numbers that end in 3 are rejected; those that end in 7 are released when they come for the first time."""
    outcome = (
        F.when(number() % 10 == 3, "reject")
        .when((number() % 10 == 7) & (F.col("deliveryCount") == 1), "release")
        .otherwise("accept")
    )
    return batch.select(*KEYS, outcome.alias("outcome"), F.lit("ends in 3").alias("reason"))


def run(writer: object) -> None:
    finish(writer.trigger(availableNow=True).start())  # type: ignore[attr-defined]


def test_released_records_come_again_and_rejected_ones_do_not(
    spark: SparkSession, queue: Queue, effects: Effects
) -> None:
    queue.send(100)

    def handle(batch: DataFrame, batch_id: int) -> DataFrame:
        effects(batch, batch_id)
        return judge(batch)

    run(process(queue.stream(spark), handle))
    deliveries = {}
    for row in effects.rows:
        deliveries.setdefault(int(row["value"]), []).append(row["deliveryCount"])
    assert deliveries == {each: [1, 2] if each % 10 == 7 else [1] for each in range(100)}
    assert queue.lag() == 0


def test_the_sink_says_the_same_without_foreach_batch(spark: SparkSession, queue: Queue) -> None:
    queue.send(100)
    letters = make_letters(queue)
    sink = judge(queue.stream(spark, deadLetterTopic=letters)).writeStream.format("kafka-share-ack")
    run(sink.option("checkpointLocation", queue.checkpoint))
    assert queue.lag() == 0
    found = read_letters(queue, letters)
    assert sorted(int(value) for value, _ in found) == [each for each in range(100) if each % 10 == 3]


@pytest.mark.parametrize("acknowledge", ["commit", "handoff"])
def test_rejected_records_are_copied_with_the_reason(
    spark: SparkSession, queue: Queue, acknowledge: str
) -> None:
    queue.send(100)
    letters = make_letters(queue)

    def handle(batch: DataFrame, batch_id: int) -> DataFrame:
        return judge(batch).where("outcome = 'reject'")

    run(process(queue.stream(spark, acknowledge=acknowledge, deadLetterTopic=letters), handle))
    found = read_letters(queue, letters)
    assert sorted(int(value) for value, _ in found) == [each for each in range(100) if each % 10 == 3]
    headers = found[0][1]
    assert headers["__dlq.errors.topic"] == queue.topic.encode()
    assert headers["__dlq.errors.group"] == queue.group.encode()
    assert headers["__dlq.errors.message"] == b"ends in 3"


def test_a_micro_batch_that_is_rejected_whole_is_copied_whole(spark: SparkSession, queue: Queue) -> None:
    """More than a topic takes in one batch."""
    queue.send(2_400, lambda each: b"%d " % each + b"x" * 1_000)
    letters = make_letters(queue)
    orders = parse_json(queue.stream(spark, deadLetterTopic=letters), "id bigint")
    run(process(orders, lambda batch, batch_id: None))
    found = read_letters(queue, letters)
    assert sorted(int(value.split()[0]) for value, _ in found) == list(range(2_400))
    assert queue.lag() == 0


def make_letters(queue: Queue) -> str:
    letters = f"dlq-{queue.topic}"
    with queue.admin() as admin:
        admin.create_topic(letters, partitions=1)
    return letters


def read_letters(queue: Queue, topic: str) -> list[tuple[bytes, dict[str, bytes]]]:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {"bootstrap.servers": queue.bootstrap_servers, "group.id": "reader", "enable.partition.eof": True}
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = []
    try:
        while True:
            message = consumer.poll(10)
            if message is None or message.error():
                return found
            found.append((message.value(), dict(message.headers() or [])))
    finally:
        consumer.close()


def test_a_release_with_handoff_fails_the_query_with_the_reason(spark: SparkSession, queue: Queue) -> None:
    queue.send(10)
    writer = process(queue.stream(spark, acknowledge="handoff"), lambda batch, _: judge(batch))
    with pytest.raises(StreamingQueryException, match="it cannot be given back"):
        run(writer)


def test_an_outcome_in_a_micro_batch_without_data_fails_the_query(spark: SparkSession, queue: Queue) -> None:
    """A window's rows come out when the watermark has passed: the micro-batch that brought them is settled by then."""
    queue.partitions = 1
    for at in (0, 1, 60_000):
        queue.send(1, lambda _, at=at: b"%d" % at)  # type: ignore[misc]
    letters = make_letters(queue)
    times = queue.stream(spark, deadLetterTopic=letters).withColumn(
        "at", F.timestamp_seconds(F.col("value").cast("string").cast("int"))
    )
    windows = times.withWatermark("at", "1 second").groupBy(F.window("at", "1 minute"))
    held = windows.agg(F.collect_list(F.struct(*KEYS)).alias("held"))
    rows = held.select(F.explode("held").alias("row")).select("row.*")

    def reject(batch: DataFrame, _: int) -> DataFrame:
        return batch.withColumn("outcome", F.lit("reject")).withColumn("reason", F.lit("bad window"))

    writer = process(rows, reject, checkpoint_location=queue.checkpoint)
    with pytest.raises(StreamingQueryException, match="decide in the micro-batch that brings the record"):
        run(writer.outputMode("append"))
    assert read_letters(queue, letters) == []


@pytest.mark.parametrize(
    ("without_duplicates", "cure"),
    [
        (lambda stream: stream.dropDuplicates(["value"]), r'dropDuplicates\(\[..., "deliveryCount"\]\)'),
        (lambda stream: stream.select("value", *KEYS[:3]).distinct(), "inside the function"),
        (
            lambda stream: stream.withWatermark("timestamp", "1 second").dropDuplicates(
                ["value", "deliveryCount"]
            ),
            "inside the function",
        ),
        (
            lambda stream: stream.withWatermark("timestamp", "1 second").dropDuplicatesWithinWatermark(
                ["key"]
            ),
            "inside the function",
        ),
    ],
    ids=["columns", "distinct", "watermark", "within watermark"],
)
def test_operators_that_would_drop_a_released_record_are_refused(
    spark: SparkSession, queue: Queue, without_duplicates: Callable[[DataFrame], DataFrame], cure: str
) -> None:
    with pytest.raises(OptionError, match=f"is released and comes again is dropped there.*{cure}"):
        process(
            without_duplicates(queue.stream(spark)), lambda *_: None, checkpoint_location=queue.checkpoint
        )


def test_a_topic_under_two_groups_is_refused(spark: SparkSession, queue: Queue) -> None:
    stream = queue.stream(spark)
    other = queue.stream(spark, **{"kafka.group.id": f"{queue.group}-other"})
    with pytest.raises(OptionError, match=f"topic '{queue.topic}' under groups '{queue.group}' and"):
        process(stream.union(other).where("partition = 0"), lambda *_: None)
    process(stream.union(queue.stream(spark)), lambda *_: None)


def test_a_released_record_passes_drop_duplicates_with_its_delivery_count(
    spark: SparkSession, queue: Queue, effects: Effects
) -> None:
    queue.send(10)
    queue.sent = 0
    queue.send(10)

    def handle(batch: DataFrame, batch_id: int) -> DataFrame:
        effects(batch, batch_id)
        return judge(batch)

    run(process(queue.stream(spark).dropDuplicates(["value", "deliveryCount"]), handle))
    assert effects.numbers == sorted([*range(10), 7])
    assert queue.lag() == 0
    # With handoff nothing is released.
    process(queue.stream(spark, acknowledge="handoff").dropDuplicates(["value"]), lambda *_: None)


def test_values_that_cannot_be_read_are_rejected_and_the_rest_goes_on(
    spark: SparkSession, queue: Queue, effects: Effects
) -> None:
    bad = {3: b"{not json", 5: b'{"id": "five"}', 7: b"", 8: b"[]"}
    queue.send(10, lambda each: bad.get(each, b'{"id": %d, "name": "n"}' % each))
    orders = parse_json(queue.stream(spark), "id bigint, name string")

    def handle(batch: DataFrame, batch_id: int) -> None:
        effects(batch.select("parsed.*"), batch_id)

    run(process(orders, handle))
    assert sorted(row["id"] for row in effects.rows) == [0, 1, 2, 4, 6, 9]
    assert queue.lag() == 0


@pytest.mark.parametrize(
    ("column", "wrong", "said"),
    [
        ("offset", "CAST(offset AS STRING)", "column offset of the outcomes is string"),
        (
            "deliveryCount",
            "IF(CAST(CAST(value AS STRING) AS INT) < 5, deliveryCount, NULL)",
            "column deliveryCount of the outcomes is null where outcome is",
        ),
        ("topic", "'other'", "has no such delivery"),
    ],
    ids=["type", "null", "unknown"],
)
def test_outcomes_that_name_no_delivery_fail_the_micro_batch_and_it_can_be_mended(
    spark: SparkSession, queue: Queue, column: str, wrong: str, said: str
) -> None:
    queue.send(10)
    letters = make_letters(queue)
    stream = queue.stream(spark, deadLetterTopic=letters)
    rejected = F.lit("reject").alias("outcome")

    with pytest.raises(StreamingQueryException, match=said):
        run(process(stream, lambda batch, _: batch.withColumn(column, F.expr(wrong)).select(*KEYS, rejected)))
    assert not list((queue.folder / "checkpoint" / "share-outcomes").glob("[0-9]*.json"))

    run(process(stream, lambda batch, _: batch.select(*KEYS, rejected)))
    assert sorted(int(value) for value, _ in read_letters(queue, letters)) == list(range(10))


def test_blanks_around_an_outcome_do_not_keep_a_record_from_the_function(
    spark: SparkSession, queue: Queue, effects: Effects
) -> None:
    queue.send(10)
    spellings = ["accept", " Accept", "accept\t\n", "\u00a0ACCEPT", None]
    outcome = F.element_at(F.array(*map(F.lit, spellings)), number() % len(spellings) + 1)
    run(process(queue.stream(spark).withColumn("outcome", outcome), effects))
    assert effects.numbers == list(range(10))


def test_outcomes_are_found_from_any_directory_and_default_file_system(
    spark: SparkSession, queue: Queue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A relative checkpoint begins where the driver's JVM was started, not where this program has gone since."""
    queue.send(10)
    letters = make_letters(queue)
    folder = tmp_path / "check point%20x"
    relative = os.path.relpath(folder, spark._jvm.System.getProperty("user.dir"))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    spark.conf.set("fs.defaultFS", "hdfs://localhost:1")
    try:
        stream = queue.stream(spark, checkpointLocation=relative, deadLetterTopic=letters)
        run(process(stream, lambda batch, _: judge(batch).where("outcome = 'reject'")))
    finally:
        spark.conf.unset("fs.defaultFS")
    assert [value for value, _ in read_letters(queue, letters)] == [b"3"]
    assert (folder / "commits" / "0").exists()
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_avro_says_what_it_needs(spark: SparkSession, queue: Queue) -> None:
    with pytest.raises(ValueError, match=r"spark-avro_2\.13"):
        parse_avro(queue.stream(spark), '{"type": "string"}')


def test_outcomes_without_a_place_for_them_are_refused(spark: SparkSession, queue: Queue) -> None:
    queue.options["checkpointLocation"] = ""
    stream = (
        spark.readStream.format("kafka-share")
        .option("kafka.bootstrap.servers", queue.bootstrap_servers)
        .option("subscribe", queue.topic)
        .option("kafka.group.id", queue.group)
        .load()
    )
    with pytest.raises(ValueError, match="give readStream the query's checkpoint"):
        process(stream, lambda batch, _: None)
