"""Orders from a share group into a table; and those that cannot be read, by another group, into a dead-letter topic.

The environment says where Kafka is (KAFKA=localhost:9092) and what `storage` is in spark-pipeline.yml (STORAGE). The
topics `orders` and `orders-dead` must be there.
"""

import os

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

from headrace.spark import parse_json

spark = SparkSession.active()
KAFKA, STORAGE = os.environ["KAFKA"], os.environ["STORAGE"]
CHECKPOINTS = f"{STORAGE}/_checkpoints"


def orders(group: str, checkpoint: str, **options: str) -> DataFrame:
    return (
        spark.readStream.format("kafka-share")
        .option("kafka.bootstrap.servers", KAFKA)
        .option("subscribe", "orders")
        .option("kafka.group.id", group)
        .option("startingOffsets", "earliest")
        .option("checkpointLocation", checkpoint)
        .options(**options)
        .load()
    )


@dp.table
def raw_orders() -> DataFrame:
    """Every record of the topic, once."""
    records = orders("orders-pipeline", f"{CHECKPOINTS}/spark_catalog/default/raw_orders/raw_orders/0")
    return records.select("value", "topic", "partition", "offset", "deliveryCount")


dp.create_sink("ack", "kafka-share-ack")


@dp.append_flow(target="ack", name="judge")
def judge() -> DataFrame:
    """What becomes of each record: those that are no orders are rejected, with the reason, and copied."""
    records = orders("orders-check", f"{CHECKPOINTS}/ack/judge/0", deadLetterTopic="orders-dead")
    judged = parse_json(records, "id bigint")
    return judged.select("topic", "partition", "offset", "deliveryCount", "outcome", "reason")
