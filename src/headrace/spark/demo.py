"""The demo's pipeline, as a program: `python -m headrace.spark.demo --topic orders ...`; `headrace demo` starts it.

It is what a user would write: JSON into columns, a score by a pandas UDF, Parquet by micro-batch, what cannot be read
into a dead-letter topic. It can be killed at any time; results are replaced when their micro-batch is repeated.
"""

import argparse
import json
import sys
from pathlib import Path

import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from headrace.spark import parse_json, process, register

SCHEMA = "number bigint, amount double, slow boolean"
QUIET = "ERROR"


def main() -> None:
    told = _arguments()
    spark = (
        SparkSession.builder.master("local[2]")
        .appName("headrace demo")
        .config("spark.python.unix.domain.socket.enabled", "true")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.ui.enabled", "false")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel(QUIET)
    register(spark)
    if told.wait and not sys.stdin.readline():
        return  # whoever started it has gone
    reader = spark.readStream.format("kafka-share")
    for name, value in json.loads(Path(told.settings).read_text()).items():
        reader = reader.option(f"kafka.{name}", value)
    orders = (
        reader.option("subscribe", told.topic)
        .option("kafka.group.id", told.group)
        .option("checkpointLocation", told.checkpoint)
        .option("maxRecordsPerTrigger", told.micro_batch)
        .option("deadLetterTopic", told.dead)
        .load()
    )
    score = F.pandas_udf(_score, "double")

    def write(batch: DataFrame, batch_id: int) -> None:
        (
            batch.select(
                "parsed.number",
                "parsed.amount",
                F.col("key").eqNullSafe(F.lit("skip").cast("binary")).alias("is_skipped"),
                score("parsed.amount").alias("score"),
                "deliveryCount",
            )
            .write.mode("overwrite")
            .parquet(f"{told.results}/batch={batch_id}")
        )

    writer = process(parse_json(orders, SCHEMA), write)
    query = (writer.trigger(availableNow=True) if told.drain else writer).start()
    query.awaitTermination()
    spark.stop()


def _score(amounts: pd.Series) -> pd.Series:
    """How much an order looks like fraud: large ones do."""
    return (amounts / 500).clip(0, 1) ** 2


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("settings", "topic", "group", "dead", "results", "checkpoint"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--micro-batch", type=int, required=True)
    parser.add_argument("--drain", action="store_true", help="end when everything that was there is done")
    parser.add_argument("--wait", action="store_true", help="get ready, and begin when a line comes in")
    return parser.parse_args()


if __name__ == "__main__":
    main()
