"""A query as a program of its own, to be killed: drains a queue into SQLite, one transaction for each micro-batch.

The sink is repeatable for one batch id: it replaces what that micro-batch wrote before. Every effect is a row (batch
id, number, delivery count, outcome), so a record that was processed twice shows as two rows, and a lost one as none.
"""

import json
import os
import sqlite3
import sys

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from headrace.spark import process
from tests.spark.killing import KillingSource, die_at

KEYS = ("topic", "partition", "offset", "deliveryCount")


def main() -> None:
    settings = json.loads(sys.argv[1])
    os.environ["KILL_GROUP"] = str(os.getpgrp())
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.python.unix.domain.socket.enabled", "true")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.ui.enabled", "false")
        .getOrCreate()
    )
    spark.dataSource.register(KillingSource)
    stream = spark.readStream.format("kafka-share-killing").options(**settings["options"]).load()

    def handle(batch: DataFrame, batch_id: int) -> DataFrame | None:
        rows = batch.select(*KEYS, F.col("value").cast("string").cast("int").alias("number")).collect()
        outcomes = {row: outcome_of(row.number, row.deliveryCount, settings["outcomes"]) for row in rows}
        with sqlite3.connect(settings["database"]) as database:
            database.execute("DELETE FROM effects WHERE batch = ?", (batch_id,))
            database.executemany(
                "INSERT INTO effects VALUES (?, ?, ?, ?)",
                [
                    (batch_id, row.number, row.deliveryCount, outcomes[row])
                    for row in rows
                    if outcomes[row] != "release"
                ],
            )
        database.close()
        die_at("sink", batch_id + 1)
        found = [(*(row[key] for key in KEYS), outcomes[row]) for row in rows if outcomes[row] != "accept"]
        if not found:
            return None
        return batch.sparkSession.createDataFrame(found, [*KEYS, "outcome"])

    query = process(stream, handle).trigger(availableNow=True).start()
    query.awaitTermination()
    spark.stop()


def outcome_of(number: int, delivery_count: int, has_outcomes: bool) -> str:
    """A record that ends in 3 is rejected; one that ends in 7 is released until it has come three times."""
    if has_outcomes and number % 10 == 3:
        return "reject"
    if has_outcomes and number % 10 == 7 and delivery_count < 3:
        return "release"
    return "accept"


if __name__ == "__main__":
    main()
