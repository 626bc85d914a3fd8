"""A query as a program of its own, to be killed: drains a queue into SQLite, or into Parquet by Spark's own sink.

Both sinks are repeatable for one batch id. SQLite: one transaction replaces what that micro-batch wrote before.
Parquet: a manifest names the files of each micro-batch once; at the end of a run that was not killed, what Spark reads
of them is put into SQLite too. Every effect is a row (batch id, number, delivery count, outcome), so a record that was
processed twice shows as two rows, and a lost one as none. With "kafka", the records go to that topic instead.
"""

import json
import os
import sqlite3
import sys
import threading
import time
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from headrace.spark import process
from tests.spark.killing import KillingSink, KillingSource, die_at

KEYS = ("topic", "partition", "offset", "deliveryCount")
NUMBER = "CAST(CAST(value AS STRING) AS INT) AS number"


def main() -> None:
    settings = json.loads(sys.argv[1])
    os.environ["KILL_GROUP"] = str(os.getpgrp())
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.python.unix.domain.socket.enabled", "true")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.ui.enabled", "false")
        .config(map=settings["spark"])
        .getOrCreate()
    )
    spark.dataSource.register(KillingSource)
    stream = spark.readStream.format("kafka-share-killing").options(**settings["options"]).load()
    run = to_kafka if settings["kafka"] else to_parquet if settings["parquet"] else to_sqlite
    run(spark, stream, settings)
    spark.stop()


def to_sqlite(spark: SparkSession, stream: DataFrame, settings: dict[str, Any]) -> None:
    def handle(batch: DataFrame, batch_id: int) -> DataFrame | None:
        rows = batch.selectExpr(*KEYS, NUMBER).collect()
        outcomes = {row: outcome_of(row.number, row.deliveryCount, settings["outcomes"]) for row in rows}
        done = [row for row in rows if outcomes[row] != "release"]
        replace(
            settings["database"],
            batch_id,
            [(batch_id, row.number, row.deliveryCount, outcomes[row]) for row in done],
        )
        die_at("sink", batch_id + 1)
        found = [(*(row[key] for key in KEYS), outcomes[row]) for row in rows if outcomes[row] != "accept"]
        if not found:
            return None
        return batch.sparkSession.createDataFrame(found, [*KEYS, "outcome"])

    process(stream, handle).trigger(availableNow=True).start().awaitTermination()


def to_parquet(spark: SparkSession, stream: DataFrame, settings: dict[str, Any]) -> None:
    threading.Thread(target=die_when_written, args=[settings["parquet"]], daemon=True).start()
    writer = stream.selectExpr("deliveryCount", NUMBER).writeStream.format("parquet")
    writer.options(path=settings["parquet"], checkpointLocation=settings["options"]["checkpointLocation"])
    writer.trigger(availableNow=True).start().awaitTermination()
    rows = spark.read.parquet(settings["parquet"]).collect()
    replace(settings["database"], 0, [(0, row.number, row.deliveryCount, "accept") for row in rows])


def to_kafka(spark: SparkSession, stream: DataFrame, settings: dict[str, Any]) -> None:
    """At least once: a task that dies has sent records, which its next run sends again."""
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "20")
    spark.dataSource.register(KillingSink)
    options = settings["options"]
    writer = stream.select("key", "value").writeStream.format("kafka-headrace-killing")
    writer.option("kafka.bootstrap.servers", options["kafka.bootstrap.servers"]).option(
        "topic", settings["kafka"]
    )
    writer.option("checkpointLocation", options["checkpointLocation"])
    writer.trigger(availableNow=True).start().awaitTermination()


def die_when_written(folder: str) -> None:
    """Spark's sink says nothing when it is done. Its manifest is there milliseconds before the commit log's entry."""
    place, _, _ = os.environ["KILL_AT"].partition(" ")
    point, _, number = place.partition("@")
    while point == "sink":
        if (Path(folder) / "_spark_metadata" / str(int(number) - 1)).exists():
            die_at("sink")
        time.sleep(0.001)  # the pace of looking


def replace(path: str, batch_id: int, rows: list[tuple[int, int, int, str]]) -> None:
    with sqlite3.connect(path) as database:
        database.execute("DELETE FROM effects WHERE batch = ?", (batch_id,))
        database.executemany("INSERT INTO effects VALUES (?, ?, ?, ?)", rows)
    database.close()


def outcome_of(number: int, delivery_count: int, has_outcomes: bool) -> str:
    """A record that ends in 3 is rejected; one that ends in 7 is released until it has come three times."""
    if has_outcomes and number % 10 == 3:
        return "reject"
    if has_outcomes and number % 10 == 7 and delivery_count < 3:
        return "release"
    return "accept"


if __name__ == "__main__":
    main()
