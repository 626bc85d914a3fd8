"""`format("kafka-headrace")`: what is in the rows is in the topic, on both brokers, whatever fails on the way.

The sink is at-least-once, so a failure may leave records twice in the topic; none may be missing.
"""

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from headrace import Broker
from tests.spark.conftest import WAIT_S, Queue, finish, make_queue
from tests.spark.test_crash import RECORDS, Program

pytestmark = pytest.mark.timeout(240)
THOROUGH = pytest.mark.thorough
BOTH = ["broker", pytest.param("apache", marks=pytest.mark.needs_kafka)]
KILLS = ["task@1", "sending@1", "sink@1", "unsettled@1", "settled@2", "sending@3"]


@pytest.fixture(params=BOTH)
def target(request: pytest.FixtureRequest, unique: str, tmp_path: Path) -> Queue:
    """A topic of three partitions on either broker."""
    return make_queue(
        request.getfixturevalue(request.param).bootstrap_servers, unique, tmp_path, partitions=3
    )


def records(queue: Queue, topic: str | None = None) -> list[Any]:
    """Every message of a topic, partition after partition."""
    topic = topic or queue.topic
    consumer = Consumer(
        {
            "bootstrap.servers": queue.bootstrap_servers,
            "group.id": "reader",
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
        }
    )
    found = []
    try:
        count = len(consumer.list_topics(topic, timeout=WAIT_S).topics[topic].partitions)
        for partition in range(count):
            consumer.assign([TopicPartition(topic, partition, 0)])
            while (message := consumer.poll(WAIT_S)) is not None and not message.error():
                found.append(message)
            assert message is not None, "the topic did not end"
    finally:
        consumer.close()
    return found


def write(frame: Any, queue: Queue, **options: str) -> None:
    writer = frame.write.format("kafka-headrace").mode("append")
    writer.option("kafka.bootstrap.servers", queue.bootstrap_servers).options(**options).save()


def test_a_row_becomes_a_record_with_its_key_headers_topic_and_partition(
    spark: SparkSession, target: Queue
) -> None:
    rows = [
        (b"a", b"one", [("h", b"1"), ("h", None)], target.topic, 2),
        (None, b"two", None, target.topic, 0),
        (b"c", None, [], target.topic, 1),
    ]
    schema = "key binary, value binary, headers array<struct<key:string,value:binary>>, topic string, partition int"
    write(spark.createDataFrame(rows, schema), target)
    found = [(each.partition(), each.key(), each.value(), each.headers() or []) for each in records(target)]
    assert found == [
        (0, None, b"two", []),
        (1, b"c", None, []),
        (2, b"a", b"one", [("h", b"1"), ("h", None)]),
    ]


def test_text_is_written_and_keys_decide_the_partition_as_in_javas_producer(
    spark: SparkSession, target: Queue
) -> None:
    """librdkafka's murmur2_random is Java's. The topic option wins over the column; other columns are passed over."""
    frame = spark.range(300).selectExpr(
        "CAST(id % 10 AS STRING) AS key", "CAST(id AS STRING) AS value", "'other' AS topic", "id AS order"
    )
    write(frame, target, topic=target.topic)
    found = records(target)
    assert sorted(int(each.value()) for each in found) == list(range(300))
    by_the_sink = {each.key(): each.partition() for each in found}
    assert len({(each.key(), each.partition()) for each in found}) == 10

    others = make_out(target, partitions=target.partitions)
    producer = Producer({"bootstrap.servers": target.bootstrap_servers, "partitioner": "murmur2_random"})
    for key in by_the_sink:
        producer.produce(others, b"", key)
    assert producer.flush(WAIT_S) == 0
    assert {each.key(): each.partition() for each in records(target, others)} == by_the_sink


def test_a_queue_is_drained_into_another_topic(spark: SparkSession, target: Queue) -> None:
    target.send(3_000)
    out = make_out(target)
    finish(start(target.stream(spark, maxRecordsPerTrigger=1_000).select("key", "value"), target, out))
    assert sorted(int(each.value()) for each in records(target, out)) == list(range(3_000))
    assert target.lag() == 0


@pytest.mark.timeout(600)
@pytest.mark.parametrize("kills", [["sink@1"], pytest.param(KILLS, marks=THOROUGH)], ids=["one", "all"])
def test_a_query_killed_with_9_at_any_step_loses_nothing(target: Queue, kills: list[str]) -> None:
    target.send(RECORDS)
    out = make_out(target)
    with Program(target, "commit", sink="kafka") as program:
        program.run_to_the_end(kills)
    found = [int(each.value()) for each in records(target, out)]
    assert set(found) == set(range(RECORDS))
    assert len(found) > RECORDS, "what was sent before the kill is sent again, or the test has tested nothing"
    assert target.lag() == 0


def test_a_task_that_fails_midway_loses_nothing(spark: SparkSession, queue: Queue) -> None:
    queue.send(1_000)
    out = make_out(queue)
    marker = queue.folder / "failed"
    path = str(marker)

    def fail_once(batches: Any) -> Any:
        for number, batch in enumerate(batches):
            if number == 2 and not Path(path).exists():
                Path(path).touch()
                raise RuntimeError("the task fails midway")
            yield batch

    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "100")
    try:
        stream = queue.stream(spark, minPartitions=2).select("key", "value")
        mapped = stream.mapInArrow(fail_once, stream.schema)
        with pytest.raises(StreamingQueryException, match="the task fails midway"):
            finish(start(mapped, queue, out))
        assert marker.exists()
        finish(start(mapped, queue, out))
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    assert {int(each.value()) for each in records(queue, out)} == set(range(1_000))


def test_a_record_that_kafka_refuses_fails_the_micro_batch_and_the_next_start_goes_on(
    spark: SparkSession, queue: Queue
) -> None:
    """The kept producer of the failed task must not count its failure for the next one."""
    queue.send(10, lambda each: b"x" * 2_000 if each == 5 else b"%d" % each)
    out = make_out(queue)
    with queue.admin() as admin:
        admin.set_topic_config(out, {"max.message.bytes": "1000"})
    stream = queue.stream(spark).select("value")
    with pytest.raises(StreamingQueryException, match=r"max\.message\.bytes"):
        finish(start(stream, queue, out))
    with queue.admin() as admin:
        admin.set_topic_config(out, {"max.message.bytes": "1000000"})
    finish(start(stream, queue, out))
    assert {each.value()[:1] for each in records(queue, out)} == {
        *(b"%d" % each for each in range(10) if each != 5),
        b"x",
    }


@pytest.mark.parametrize(
    ("columns", "options", "said"),
    [
        (["id AS value"], {"topic": "t"}, r"value attribute type must be a string or binary, and is bigint"),
        (["'v' AS value"], {}, "topic option required when no 'topic' attribute is present"),
        (["'v' AS value"], {"topic": "t", "kafka.akcs": "1"}, "did you mean kafka.acks"),
    ],
    ids=["type", "topic", "option"],
)
def test_what_is_wrong_is_said_in_sparks_words_before_anything_is_sent(
    spark: SparkSession, columns: list[str], options: dict[str, str], said: str
) -> None:
    frame = spark.range(1).selectExpr(*columns)
    with pytest.raises(Exception, match=said):
        frame.write.format("kafka-headrace").mode("append").options(
            **{"kafka.bootstrap.servers": "h:1", **options}
        ).save()


def test_a_row_without_a_topic_fails_the_task(spark: SparkSession, broker: Broker) -> None:
    frame = spark.range(1).selectExpr("'v' AS value", "CAST(NULL AS STRING) AS topic")
    with pytest.raises(Exception, match="null topic present in the data"):
        frame.write.format("kafka-headrace").mode("append").option(
            "kafka.bootstrap.servers", broker.bootstrap_servers
        ).save()


def test_complete_mode_sends_every_row_with_every_micro_batch(spark: SparkSession, queue: Queue) -> None:
    queue.send(40)
    out = make_out(queue)
    counts = (
        queue.stream(spark, maxRecordsPerTrigger=20)
        .groupBy((F.col("value").cast("string").cast("int") % 2).cast("string").alias("key"))
        .agg(F.count("*").cast("string").alias("value"))
    )
    finish(start(counts, queue, out, mode="complete"))
    newest = {each.key(): each.value() for each in records(queue, out)}
    assert newest == {b"0": b"20", b"1": b"20"}


def make_out(queue: Queue, partitions: int = 2) -> str:
    with queue.admin() as admin:
        admin.create_topic(f"{queue.topic}-out", partitions=partitions)
    return f"{queue.topic}-out"


def start(frame: Any, queue: Queue, topic: str, mode: str = "append") -> Any:
    return (
        frame.writeStream.format("kafka-headrace")
        .option("kafka.bootstrap.servers", queue.bootstrap_servers)
        .option("topic", topic)
        .option("checkpointLocation", queue.checkpoint)
        .outputMode(mode)
        .trigger(availableNow=True)
        .start()
    )
