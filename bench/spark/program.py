"""The Spark program: `python -m bench.spark.program PLAN`, one session for all steps, so that its JVM is warm.

PLAN is JSON: bootstrap_servers, jars, folder (for checkpoints), steps, results (a file that gets a line of JSON for
each step that is done). Spark prints to standard output and error, so the figures go elsewhere.
"""

import json
import sys
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from bench.spark.steps import AHEAD, HANDOFF, SOURCE_OF_SPARK, SPARK_SHORT_WAIT, Step
from headrace import Producer
from headrace.spark import register

STEP_S = 240
WARM_UP_RECORDS = 400
"""Of a step that sends records, the first ones, which are not counted."""
CORES = 16
"""More than the machine has: slow work waits, it does not compute. Fast work gets two tasks anyway."""


def main() -> None:
    plan = json.loads(sys.argv[1])
    spark = (
        SparkSession.builder.master(f"local[{CORES}]")
        .config("spark.jars", ",".join(plan["jars"]))
        .config("spark.python.unix.domain.socket.enabled", "true")
        .config("spark.sql.streaming.numRecentProgressUpdates", "2000")
        .config("spark.ui.enabled", "false")
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )
    register(spark)
    with Path(plan["results"]).open("w") as results:
        for found in plan["steps"]:
            step = Step(**found)
            ran = _kind(step)(spark, step, plan["bootstrap_servers"], Path(plan["folder"]))
            results.write(json.dumps(ran) + "\n")
            results.flush()
    spark.stop()


def _kind(step: Step) -> Callable[[SparkSession, Step, str, Path], dict[str, Any]]:
    if step.per_second:
        return run_sending
    if step.queries:
        return run_several
    return run_to_first_row if step.is_first_row else run_step


def run_step(spark: SparkSession, step: Step, bootstrap_servers: str, folder: Path) -> dict[str, Any]:
    name = f"spark-{uuid4().hex[:8]}"
    checkpoint = str(folder / name)
    stream = _stream(spark, step, bootstrap_servers, group=name, checkpoint=checkpoint)
    if step.record_ms:
        stream = stream.select("value").mapInArrow(_slowly(step.record_ms / 1000), "value binary")
    began = time.perf_counter()
    query = (
        stream.writeStream.format("noop")
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    if not query.awaitTermination(STEP_S):
        query.stop()
        raise TimeoutError(f"{step} did not end within {STEP_S} s")
    wall_s = time.perf_counter() - began
    batches = _batches(query)
    _require_all(step, batches)
    return {"batches": batches, "wall_s": wall_s}


def run_several(spark: SparkSession, step: Step, bootstrap_servers: str, folder: Path) -> dict[str, Any]:
    """Queries that share a topic, all at a time."""
    name = f"spark-{uuid4().hex[:8]}"
    began = time.perf_counter()
    queries = []
    for number in range(step.queries):
        checkpoint = str(folder / f"{name}-{number}")
        stream = _stream(spark, step, bootstrap_servers, group=name, checkpoint=checkpoint, number=number)
        sink = stream.writeStream.format("noop").option("checkpointLocation", checkpoint)
        queries.append(sink.trigger(availableNow=True).start())
    for query in queries:
        if not query.awaitTermination(STEP_S):
            raise TimeoutError(f"{step} did not end within {STEP_S} s")
    wall_s = time.perf_counter() - began
    batches = [batch for query in queries for batch in _batches(query)]
    _require_all(step, batches)
    spans = [
        (datetime.fromisoformat(each["timestamp"]).timestamp(), each["durationMs"]["triggerExecution"] / 1000)
        for query in queries
        for each in query.recentProgress
        if each["numInputRows"]
    ]
    span_s = max(at + took_s for at, took_s in spans) - min(at for at, _ in spans)
    return {"batches": batches, "wall_s": wall_s, "span_s": span_s}


def run_to_first_row(spark: SparkSession, step: Step, bootstrap_servers: str, folder: Path) -> dict[str, Any]:
    name = f"spark-{uuid4().hex[:8]}"
    checkpoint = str(folder / name)
    came: list[float] = []

    def sink(batch: DataFrame, batch_id: int) -> None:
        if batch.take(1):
            came.append(time.perf_counter())

    stream = _stream(spark, step, bootstrap_servers, group=name, checkpoint=checkpoint)
    began = time.perf_counter()
    query = stream.writeStream.foreachBatch(sink).option("checkpointLocation", checkpoint).start()
    try:
        _await(lambda: bool(came), query)
    finally:
        query.stop()
    return {"batches": [], "wall_s": came[0] - began}


def _batches(query: StreamingQuery) -> list[tuple[int, float, float]]:
    """A trigger that finds nothing (the last of kafka-share, which settles and leaves) has no rows; wall_s has its
    time."""
    return [
        (each["numInputRows"], each["durationMs"]["triggerExecution"], each["durationMs"]["addBatch"])
        for each in query.recentProgress
        if each["numInputRows"]
    ]


def _require_all(step: Step, batches: list[tuple[int, float, float]]) -> None:
    rows = sum(count for count, *_ in batches)
    if rows != step.records:
        raise AssertionError(f"{step} read {rows} records")


def run_sending(spark: SparkSession, step: Step, bootstrap_servers: str, folder: Path) -> dict[str, Any]:
    """Sends records at a steady rate, with the time in them, to a query with the default trigger."""
    name = f"spark-{uuid4().hex[:8]}"
    checkpoint = str(folder / name)
    sent, came = step.records + WARM_UP_RECORDS, dict[int, float]()

    def sink(batch: DataFrame, batch_id: int) -> None:
        values = [bytes(row.value) for row in batch.select("value").collect()]
        now = time.time()
        for value in values:
            number, at = value.split()
            came[int(number)] = 1000 * (now - float(at))

    stream = _stream(spark, step, bootstrap_servers, group=name, checkpoint=checkpoint)
    began = time.perf_counter()
    query = stream.writeStream.foreachBatch(sink).option("checkpointLocation", checkpoint).start()
    try:
        with Producer(bootstrap_servers=bootstrap_servers, linger_ms=0) as producer:
            producer.send(step.topic, f"-1 {time.time()}").result(STEP_S)
            _await(lambda: -1 in came, query)
            start = time.perf_counter()
            for number in range(sent):
                time.sleep(max(0.0, start + number / step.per_second - time.perf_counter()))
                producer.send(step.topic, f"{number} {time.time()}")
            producer.flush()
        _await(lambda: len(came) > sent, query)
    finally:
        query.stop()
    latencies = [came[number] for number in range(WARM_UP_RECORDS, sent)]
    return {"batches": [], "wall_s": time.perf_counter() - began, "latencies_ms": latencies}


def _await(condition: Callable[[], bool], query: StreamingQuery) -> None:
    deadline = time.monotonic() + STEP_S
    while not condition():
        if query.exception() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"the query does not get on: {query.exception() or query.status}")
        time.sleep(0.05)


def _stream(
    spark: SparkSession,
    step: Step,
    bootstrap_servers: str,
    *,
    group: str,
    checkpoint: str,
    number: int = 0,
) -> DataFrame:
    """`number` is of the query, where several share the topic."""
    is_own = step.contender in (SOURCE_OF_SPARK, SPARK_SHORT_WAIT)
    reader = (
        spark.readStream.format("kafka" if is_own else "kafka-share")
        .option("kafka.bootstrap.servers", bootstrap_servers)
        .option("startingOffsets", "earliest")
    )
    if is_own and step.queries:
        partitions = list(range(number, step.partitions, step.queries))
        reader = reader.option("assign", json.dumps({step.topic: partitions}))
    else:
        reader = reader.option("subscribe", step.topic)
    if not is_own:
        mode = "handoff" if step.contender in (HANDOFF, AHEAD) else "commit"
        reader = (
            reader.option("kafka.group.id", group)
            .option("acknowledge", mode)
            .option("checkpointLocation", checkpoint)
        )
    if step.contender == SPARK_SHORT_WAIT:
        reader = reader.option("kafka.fetch.max.wait.ms", "10")
    if step.contender == AHEAD:
        reader = reader.option("maxRecordsAhead", "1000000")
    if step.per_trigger is not None:
        reader = reader.option("maxOffsetsPerTrigger", str(step.per_trigger))
    if step.tasks is not None:
        reader = reader.option("minPartitions", str(step.tasks))
    return reader.load()


def _slowly(wait_s: float) -> Any:
    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for _ in range(batch.num_rows):
                time.sleep(wait_s)
            yield batch

    return work


if __name__ == "__main__":
    main()
