"""Orders through a fraud score on Spark: JSON into columns, a pandas UDF, Parquet, and what is no order set aside.

Three things can become of an order. It is scored, and its score is in the Parquet files, with the outcome "accept". It
cannot be read, or the model has no answer: then it is rejected and lies in the dead-letter topic, with the cause in its
headers. Or it came too early: then it is released, and comes again. A micro-batch that Spark repeats after a crash
replaces its files.

    pip install 'headrace[spark]'
    python examples/spark_orders.py [-b HOST:PORT]

Parquet, not Delta: Delta's newest release, 4.4.0, is built for Spark 4.2 and fails on Spark 4.3, where a write ends in
"NoSuchMethodError: LogicalRDD.<init>". Where it runs, the write below becomes .format("delta").mode("append") with the
options txnAppId (a name of yours) and txnVersion (the batch id), by which Delta leaves a repeated micro-batch out.
"""

import json
import os
import sys
import tempfile
import uuid
from collections import Counter
from pathlib import Path

import pandas as pd
from confluent_kafka import Consumer, TopicPartition
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from support import account, broker_address

from headrace import Producer, ProducerRecord
from headrace.client.admin.sync import Admin
from headrace.spark import parse_json, process, register

ORDERS, GARBAGE, UNKNOWN, EARLY = 2_000, 7, 5, 11
SHADY_EVERY = 50
SCHEMA = "id bigint, customer string, amount double"
KEYS = ("topic", "partition", "offset", "deliveryCount")


def fraud_score(customers: pd.Series, amounts: pd.Series) -> pd.Series:
    """Between 0 and 1; nothing at all for a customer whom the model does not know."""
    score = (amounts / 500).clip(0, 1) ** 2 + 0.5 * customers.str.startswith("shady")
    return score.clip(0, 1).where(customers != "unknown")


def send_orders(servers: str, topic: str) -> int:
    """Good orders, and between them some that are no JSON, some of nobody, some that must come twice."""
    orders = [
        {"id": n, "customer": "shady" if n % SHADY_EVERY == 0 else "solid", "amount": float(n % 400)}
        for n in range(ORDERS)
    ]
    orders += [{"id": ORDERS + n, "customer": "unknown", "amount": 1.0} for n in range(UNKNOWN)]
    orders += [{"id": ORDERS + UNKNOWN + n, "customer": "early", "amount": 1.0} for n in range(EARLY)]
    values = [json.dumps(order).encode() for order in orders] + [b"{not an order"] * GARBAGE
    with Producer(bootstrap_servers=servers) as producer:
        producer.send_many(
            topic, (ProducerRecord(value, partition=number % 2) for number, value in enumerate(values))
        )
    return len(values)


def score_orders(spark: SparkSession, servers: str, topic: str, dead: str, folder: Path) -> None:
    """Runs until every order that was there is settled."""
    orders = (
        spark.readStream.format("kafka-share")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", topic)
        .option("kafka.group.id", f"fraud-{topic}")
        .option("startingOffsets", "earliest")
        .option("maxRecordsPerTrigger", 1_000)
        .option("deadLetterTopic", dead)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .load()
    )
    model = F.pandas_udf(fraud_score, "double")

    def handle(batch: DataFrame, batch_id: int) -> DataFrame:
        is_early = (F.col("parsed.customer") == "early") & (F.col("deliveryCount") == 1)
        scored = batch.withColumn("score", model("parsed.customer", "parsed.amount")).withColumn(
            "outcome", F.when(is_early, "release").when(F.col("score").isNull(), "reject").otherwise("accept")
        )
        results = str(folder / "scored" / f"batch={batch_id}")
        (
            scored.select(*KEYS, "parsed.*", "score", "outcome")
            .write.mode("overwrite")  # a micro-batch that is repeated replaces what it wrote
            .parquet(results)
        )
        written = batch.sparkSession.read.parquet(results)  # judged is what was written: the model runs once
        return written.select(*KEYS, "outcome", F.lit("the model does not know the customer").alias("reason"))

    query = process(parse_json(orders, SCHEMA), handle).trigger(availableNow=True).start()
    query.awaitTermination()


def read_causes(servers: str, dead: str) -> Counter[str]:
    """With any Kafka client: the dead-letter topic is a topic like others."""
    consumer = Consumer(
        {"bootstrap.servers": servers, "group.id": f"look-{dead}", "enable.partition.eof": True}
    )
    consumer.assign([TopicPartition(dead, 0, 0)])
    causes: Counter[str] = Counter()
    try:
        while (message := consumer.poll(10)) is not None and not message.error():
            causes[dict(message.headers() or [])["__dlq.errors.message"].decode()] += 1
    finally:
        consumer.close()
    return causes


def open_spark() -> SparkSession:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = (
        SparkSession.builder.master("local[2]")
        .appName("orders")
        .config("spark.python.unix.domain.socket.enabled", "true")
        .config("spark.ui.enabled", "false")
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )
    register(spark)
    return spark


def main() -> None:
    topic = f"orders-{uuid.uuid4().hex[:8]}"
    dead = f"{topic}.dead"
    with broker_address(__doc__) as servers, tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with Admin(bootstrap_servers=servers) as admin:
            admin.create_topic(topic, partitions=2)
            admin.create_topic(dead, partitions=1)
        sent = send_orders(servers, topic)
        print(
            f"sent {sent} records: {GARBAGE} are no orders, {UNKNOWN} are of nobody, {EARLY} come too early"
        )
        spark = open_spark()
        score_orders(spark, servers, topic, dead, folder)
        scored = spark.read.parquet(str(folder / "scored")).where("outcome = 'accept'").toPandas()
        spark.stop()
        causes = read_causes(servers, dead)
        with Admin(bootstrap_servers=servers) as admin:
            lags = [each.lag for each in admin.share_group_offsets(f"fraud-{topic}", [topic]).values()]
    shady = scored[scored.customer == "shady"]
    again = int((scored.deliveryCount > 1).sum())
    print(f"scored {len(scored)} orders in {scored.batch.nunique()} micro-batches, {again} at a later delivery; "
          f"{int((scored.score > 0.4).sum())} look like fraud")  # fmt: skip
    for cause, count in causes.most_common():
        print(f"{count} dead letters: {cause}")
    account(
        every_good_order_was_scored_once=sorted(scored.id)
        == [*range(ORDERS), *range(ORDERS + UNKNOWN, ORDERS + UNKNOWN + EARLY)],
        shady_ones_were_found=len(shady) == ORDERS // SHADY_EVERY and bool((shady.score >= 0.5).all()),
        early_ones_came_again=again >= EARLY
        and bool((scored[scored.customer == "early"].deliveryCount > 1).all()),
        each_poison_record_is_one_dead_letter=sorted(causes.values()) == sorted([GARBAGE, UNKNOWN]),
        nothing_is_left_to_do=bool(lags) and set(lags) == {0},
    )


if __name__ == "__main__":
    main()
