"""What Spark and the source refuse, and that the user reads why."""

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from tests.spark.conftest import WAIT_S, Effects, Queue

pytestmark = pytest.mark.timeout(180)


def test_a_batch_read_is_refused_with_the_cure(spark: SparkSession, queue: Queue) -> None:
    with pytest.raises(Exception, match=r"cannot be read as a batch.*Use spark\.readStream"):
        spark.read.format("kafka-share").options(
            **{"kafka.bootstrap.servers": "h:1", "subscribe": "t", "kafka.group.id": "g"}
        ).load().count()


def test_a_table_is_refused_with_the_cure(spark: SparkSession, queue: Queue) -> None:
    options = f"`kafka.bootstrap.servers` '{queue.bootstrap_servers}', subscribe '{queue.topic}', `kafka.group.id` 'g'"
    with pytest.raises(Exception, match=r"cannot be used by CREATE TABLE.*createOrReplaceTempView"):
        spark.sql(f"CREATE TABLE refused USING `kafka-share` OPTIONS ({options})")


def test_a_wrong_option_is_refused_when_the_stream_is_made(spark: SparkSession, queue: Queue) -> None:
    with pytest.raises(Exception, match="Did you mean minPartitions"):
        queue.stream(spark, minPartition=3)


def test_a_schema_of_the_users_is_refused(spark: SparkSession, queue: Queue, effects: Effects) -> None:
    stream = (
        spark.readStream.format("kafka-share")
        .schema("value string")
        .options(**{"kafka.bootstrap.servers": "h:1", "subscribe": "t", "kafka.group.id": "g"})
        .load()
    )
    query = stream.writeStream.foreachBatch(effects).option("checkpointLocation", queue.checkpoint).start()
    with pytest.raises(StreamingQueryException, match="has a fixed schema"):
        query.awaitTermination(WAIT_S)


def test_asynchronous_progress_tracking_fails_the_query_with_the_cure(
    spark: SparkSession, queue: Queue
) -> None:
    queue.send(500)
    query = (
        queue.stream(spark, maxRecordsPerTrigger=50)
        .writeStream.format("noop")
        .option("asyncProgressTrackingEnabled", "true")
        .option("asyncProgressTrackingCheckpointIntervalMs", "60000")
        .option("checkpointLocation", queue.checkpoint)
        .start()
    )
    try:
        with pytest.raises(StreamingQueryException, match="leave asyncProgressTrackingEnabled out"):
            query.awaitTermination(WAIT_S)
    finally:
        query.stop()
    assert queue.lag() is None or queue.lag() >= 450, "nothing was accepted that the logs do not hold"


def test_an_error_of_the_consumer_ends_the_query_and_says_why(
    spark: SparkSession, queue: Queue, effects: Effects
) -> None:
    stream = queue.stream(spark, subscribe="no-such-topic")
    query = stream.writeStream.foreachBatch(effects).option("checkpointLocation", queue.checkpoint).start()
    with pytest.raises(StreamingQueryException, match="no-such-topic"):
        query.awaitTermination(WAIT_S)
