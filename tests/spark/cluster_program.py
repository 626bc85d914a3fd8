"""A driver program for clusters: drains a queue into Parquet and says on which executors its tasks ran.

Told by one JSON argument: master (or remote), conf, options, checkpoint, results, py_files, trigger. What it prints last
is JSON: the executors' directories that ran tasks, and where they found the package.
"""

import json
import sys
from collections.abc import Iterator

from pyspark.sql import SparkSession


def main() -> None:
    told = json.loads(sys.argv[1])
    builder = SparkSession.builder
    builder = builder.remote(told["remote"]) if "remote" in told else builder.master(told["master"])
    for name, value in told.get("conf", {}).items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    for path in told.get("py_files", []):
        spark.sparkContext.addPyFile(path)
    if told.get("register", True):
        from headrace.spark import register

        register(spark)
    stream = spark.readStream.format("kafka-share").options(**told["options"]).load()
    rows = stream.selectExpr(
        "CAST(value AS STRING) AS value", "partition", "offset", "deliveryCount"
    ).mapInArrow(_with_place, "value string, partition int, offset bigint, deliveryCount int, place string")
    query = (
        rows.writeStream.format("parquet")
        .option("path", told["results"])
        .option("checkpointLocation", told["checkpoint"])
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    spark.stop()


def _with_place(batches: Iterator[object]) -> Iterator[object]:
    """Adds where this task runs, and from where it has the package."""
    import os

    import pyarrow as pa

    import headrace

    place = f"{os.getcwd()}|{os.path.dirname(headrace.__file__)}"
    for batch in batches:
        column = pa.array([place] * batch.num_rows, pa.string())  # type: ignore[attr-defined]
        yield batch.append_column("place", column)  # type: ignore[attr-defined]


if __name__ == "__main__":
    main()
