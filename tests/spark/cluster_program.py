"""A driver program for clusters: works a queue off into Parquet, by Spark's own file sink, and reads the result back.

Told by one JSON argument:

    remote      address of a Spark Connect server; else spark-submit says where to run
    register    whether to register the source; else Spark must find it by itself
    options     of the source
    checkpoint  of the query
    results     where Spark's file sink writes
    read_back   one Parquet file of what Spark says the results are: files of tasks it did not commit are not among them
    marks       a folder in which every attempt of a task writes down where it runs and, line by line, what it saw
    judges      whether to decide about single records by `process`; there are no marks and faults then
    faults      record -> what happens to the first task that sees it: raise, kill_python, kill_executor, straggle

It imports nothing of this repository's tests: executors do not have them.
"""

import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import parquet
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

COLUMNS = (
    "value string, partition int, offset bigint, deliveryCount int, place string, home string, attempt int"
)
STRAGGLE_S_MAX = 60


def main() -> None:
    told = json.loads(sys.argv[1])
    builder = SparkSession.builder
    spark = (builder.remote(told["remote"]) if "remote" in told else builder).getOrCreate()
    if told["register"]:
        from headrace.spark import register

        register(spark)
    stream = spark.readStream.format("kafka-share").options(**told["options"]).load()
    writer = judging(stream, told) if told["judges"] else counting(stream, told)
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    parquet.write_table(spark.read.parquet(told["results"]).toArrow(), told["read_back"])
    spark.stop()


def counting(stream: DataFrame, told: dict[str, Any]) -> DataStreamWriter:
    """Every record is a row of Spark's file sink."""
    return (
        stream.selectExpr("CAST(value AS STRING) AS value", "partition", "offset", "deliveryCount")
        .mapInArrow(task(told["marks"], told["faults"]), COLUMNS)
        .writeStream.format("parquet")
        .option("path", told["results"])
        .option("checkpointLocation", told["checkpoint"])
    )


def judging(stream: DataFrame, told: dict[str, Any]) -> DataStreamWriter:
    """Numbers that end in 3 are rejected; those that end in 7 are released when they come for the first time."""
    from headrace.spark import process

    results = told["results"]

    def judge(batch: DataFrame, batch_id: int) -> DataFrame:
        rows = batch.selectExpr("*", "CAST(CAST(value AS STRING) AS INT) % 10 AS digit")
        kept = rows.selectExpr("CAST(value AS STRING) AS value", "deliveryCount")
        kept.write.mode("overwrite").parquet(f"{results}/batch={batch_id}")
        outcome = "CASE WHEN digit = 3 THEN 'reject' WHEN digit = 7 AND deliveryCount = 1 THEN 'release' END AS outcome"
        return rows.selectExpr("topic", "partition", "offset", "deliveryCount", outcome)

    return process(stream, judge)


def task(marks: str, faults: dict[str, str]) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """What runs on the executors: adds where it runs, from where it has the package, and which attempt this is."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        import headrace

        context = TaskContext.get()
        attempt = context.attemptNumber()
        with Path(marks, f"{context.taskAttemptId()}-{attempt}").open("w", buffering=1) as mark:
            print(os.getcwd(), file=mark)
            for batch in batches:
                values = batch.column("value").to_pylist()
                print(*values, file=mark)
                for value in values:
                    if value in faults and claim(Path(marks, f"fault-{faults[value]}-{value}")):
                        suffer(faults[value])
                home = os.path.dirname(os.path.abspath(headrace.__file__))
                added = {"place": os.getcwd(), "home": home, "attempt": attempt}
                for name, constant in added.items():
                    kind = pa.int32() if name == "attempt" else pa.string()
                    batch = batch.append_column(name, pa.array([constant] * batch.num_rows, kind))
                yield batch

    return run


def claim(path: Path) -> bool:
    """True for the first who asks."""
    with contextlib.suppress(FileExistsError):
        path.touch(exist_ok=False)
        return True
    return False


def suffer(fault: str) -> None:
    daemon = os.getppid()
    if fault == "raise":
        raise RuntimeError("this task fails once")
    if fault == "kill_python":
        # The daemon's children: this worker, and the one that reads the source for this task.
        children = Path(f"/proc/{daemon}/task/{daemon}/children").read_text().split()
        for child in sorted(map(int, children), key=lambda pid: pid == os.getpid()):
            os.kill(child, signal.SIGKILL)
    if fault == "kill_executor":
        executor = Path(f"/proc/{daemon}/stat").read_text().rsplit(")", 1)[1].split()[1]
        os.kill(int(executor), signal.SIGKILL)
    time.sleep(
        STRAGGLE_S_MAX
    )  # until Spark ends this attempt, because its copy is done or its executor is gone
    raise RuntimeError(f"nobody ended this task, {fault}")


if __name__ == "__main__":
    main()
