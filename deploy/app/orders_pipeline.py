"""Orders from a queue into Parquet: the Spark application of docs/how-to/grow-to-a-cluster.md.

Where things are comes from the environment, so that the same file runs on a laptop and on a cluster:
KAFKA_BOOTSTRAP_SERVERS, CHECKPOINT (a folder that driver and executors share), RESULTS (the same). With ONCE=true it
works off what is there and ends.
"""

import os

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from headrace.spark import parse_json, process, register

RESULTS = os.environ["RESULTS"]


def store(batch: DataFrame, batch_id: int) -> None:
    """Repeatable: a micro-batch that runs again replaces what it wrote. Unreadable orders never come here."""
    orders = batch.select("partition", "offset", "deliveryCount", "parsed.*")
    orders.withColumn("total", F.col("price") * F.col("count")).write.mode("overwrite").parquet(
        f"{RESULTS}/batch={batch_id}"
    )


def main() -> None:
    spark = SparkSession.builder.appName("orders").getOrCreate()
    register(spark)
    stream = (
        spark.readStream.format("kafka-share")
        .option("kafka.bootstrap.servers", os.environ["KAFKA_BOOTSTRAP_SERVERS"])
        .option("kafka.group.id", "orders-pipeline")
        .option("subscribe", "orders")
        .option("deadLetterTopic", "orders.dead")
        .option("checkpointLocation", os.environ["CHECKPOINT"])
        .load()
    )
    writer = process(parse_json(stream, "id bigint, count bigint, price double"), store)
    is_once = os.environ.get("ONCE") == "true"
    trigger = {"availableNow": True} if is_once else {"processingTime": "1 second"}
    writer.trigger(**trigger).start().awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
