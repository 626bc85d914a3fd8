"""What the pictures of the Workers and Spark page show: a queue for `headrace worker`, and a Spark program.

`tools/dashboard_pictures.py` starts both: `headrace worker dashboard_programs:queue`, and
`python -m dashboard_programs BROKERS HOST:PORT FOLDER`, which runs until it is ended.
"""

import random
import sys
import time

from headrace import Backoff, Queue

queue = Queue("localhost:9092", group_id="receipts")
chance = random.Random(11)


@queue.task("receipts", concurrency=4, retries=Backoff(first=1.0, tries=3), dead_letter="dlq.receipts")
def print_receipt(text: str) -> None:
    time.sleep(chance.uniform(0.2, 3.0))
    if chance.random() < 0.1:
        raise ConnectionError("the printer does not respond")


@queue.task("invoices", concurrency=2)
def mail_invoice(text: str) -> None:
    time.sleep(chance.uniform(1.0, 6.0))


def run_spark(servers: str, address: str, folder: str) -> None:
    from pyspark.sql import SparkSession

    from headrace.spark import register
    from headrace.web.spark_metrics import serve_metrics

    spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    register(spark)
    orders = (
        spark.readStream.format("kafka-share")
        .option("kafka.bootstrap.servers", servers)
        .option("kafka.group.id", "revenue")
        .option("subscribe", "orders")
        .option("startingOffsets", "earliest")
        .option("checkpointLocation", f"{folder}/checkpoint")  # the same as the query's
        .load()
    )
    query = (
        orders.selectExpr("CAST(value AS STRING) AS what", "deliveryCount")
        .writeStream.queryName("revenue")
        .format("parquet")
        .option("path", f"{folder}/revenue")
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(processingTime="2 seconds")
        .start()
    )
    with serve_metrics(spark, address):
        query.awaitTermination()


if __name__ == "__main__":
    run_spark(*sys.argv[1:])
