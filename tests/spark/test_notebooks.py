"""What people do in notebooks: a cell is run again while its query runs, and an error is read from its beginning."""

from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from tests.spark.conftest import WAIT_S, Effects, Queue, wait_for

pytestmark = pytest.mark.timeout(240)
LOCK_MS = 3_600_000


@pytest.mark.parametrize("stops_first", [False, True], ids=["while it runs", "stopped"])
def test_a_cell_that_is_run_again_takes_over_without_waiting_for_locks(
    spark: SparkSession, queue: Queue, effects: Effects, stops_first: bool
) -> None:
    """Locks last an hour: a query that waited for the end of them would not be done in time."""
    with queue.admin() as admin:
        admin.set_group_config(queue.group, {"share.record.lock.duration.ms": LOCK_MS})
    queue.send(200)
    seen: list[int] = []

    def handle(batch: DataFrame, batch_id: int) -> None:
        effects(batch, batch_id)
        seen.append(batch_id)

    def cell() -> Any:
        stream = queue.stream(spark, maxRecordsPerTrigger=20)
        return stream.writeStream.foreachBatch(handle).option("checkpointLocation", queue.checkpoint).start()

    first = cell()
    try:
        wait_for(lambda: len(seen) >= 2)
        if stops_first:
            first.stop()
        second = cell()
        try:
            wait_for(lambda: len(effects.numbers) >= 200 and queue.lag() == 0)
        finally:
            second.stop()
    finally:
        first.stop()
    assert effects.numbers == list(range(200))


def test_an_error_of_the_source_is_told_without_a_traceback(spark: SparkSession, queue: Queue) -> None:
    stream = queue.stream(spark, subscribe="no-such-topic")
    query = stream.writeStream.format("noop").option("checkpointLocation", queue.checkpoint).start()
    with pytest.raises(StreamingQueryException) as told:
        query.awaitTermination(WAIT_S)
    first_line = str(told.value).splitlines()[0]
    assert "no-such-topic" in first_line
    assert "Traceback" not in str(told.value)
    assert "headrace/spark" not in str(told.value)


def test_a_wrong_option_is_told_without_a_traceback(spark: SparkSession, queue: Queue) -> None:
    with pytest.raises(Exception, match="Did you mean minPartitions") as told:
        queue.stream(spark, minPartition=3)
    assert "Traceback" not in str(told.value)
    frame = spark.range(1).selectExpr("id AS value")
    with pytest.raises(Exception, match="value attribute type must be a string or binary") as told:
        frame.write.format("kafka-headrace").mode("append").options(
            **{"kafka.bootstrap.servers": queue.bootstrap_servers, "topic": queue.topic}
        ).save()
    assert "Traceback" not in str(told.value)
