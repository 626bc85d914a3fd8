"""Orders from a share group into a table.

The environment says where Kafka is (KAFKA=localhost:9092) and what `storage` is in spark-pipeline.yml (STORAGE).
"""

import os

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

spark = SparkSession.active()
KAFKA, STORAGE = os.environ["KAFKA"], os.environ["STORAGE"]
CHECKPOINT = f"{STORAGE}/_checkpoints/spark_catalog/default/raw_orders/raw_orders/0"


@dp.table
def raw_orders() -> DataFrame:
    """Every record of the topic, once."""
    records = (
        spark.readStream.format("kafka-share")
        .option("kafka.bootstrap.servers", KAFKA)
        .option("subscribe", "orders")
        .option("kafka.group.id", "orders-pipeline")
        .option("startingOffsets", "earliest")
        .option("checkpointLocation", CHECKPOINT)
        .load()
    )
    return records.select("value", "topic", "partition", "offset", "deliveryCount")
