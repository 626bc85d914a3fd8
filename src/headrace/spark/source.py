"""The data source as Spark finds it: `kafka-share`; and `register`, for the other formats, too.

from headrace.spark import register
register(spark)
orders = (spark.readStream.format("kafka-share")
    .option("kafka.bootstrap.servers", "localhost:9092")
    .option("subscribe", "orders")
    .option("kafka.group.id", "fraud")
    .load())
"""

from typing import NoReturn

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from headrace.spark.errors import OptionError
from headrace.spark.options import MODE, OUTCOMES, SourceOptions
from headrace.spark.reader import ShareStreamReader
from headrace.spark.telling import plainly


class KafkaShareSource(DataSource):  # type: ignore[misc]
    """Reads a share group as a stream. Registered by `register`, or found by Spark itself in 'pyspark_headrace'."""

    @classmethod
    def name(cls) -> str:
        return "kafka-share"

    @plainly
    def schema(self) -> StructType:
        """The columns of Spark's Kafka source, in its order, and ours after them."""
        options = SourceOptions.parse(self.options)
        place = "" if options.outcomes_path is None else str(options.outcomes_path)
        metadata = {OUTCOMES: place, MODE: str(options.acknowledge)}
        columns = [
            StructField("key", BinaryType()),
            StructField("value", BinaryType()),
            StructField("topic", StringType()),
            StructField("partition", IntegerType()),
            StructField("offset", LongType()),
            StructField("timestamp", TimestampType()),
            StructField("timestampType", IntegerType()),
        ]
        if options.include_headers:
            header = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
            columns.append(StructField("headers", ArrayType(header)))
        columns.append(StructField("deliveryCount", IntegerType(), metadata=metadata))
        return StructType(columns)

    def streamReader(self, schema: StructType) -> ShareStreamReader:  # noqa: N802
        """An error keeps its traceback: Spark raises another one over it, and ours is in there."""
        options = SourceOptions.parse(self.options)
        own = self.schema()
        if [(field.name, field.dataType) for field in schema] != [
            (field.name, field.dataType) for field in own
        ]:
            raise OptionError(
                f"kafka-share has a fixed schema, {own.simpleString()}; your schema, {schema.simpleString()}, "
                "cannot replace them. Leave .schema(...) out and parse the column `value`."
            )
        return ShareStreamReader(options)

    @plainly
    def reader(self, schema: StructType) -> NoReturn:
        raise OptionError(
            "kafka-share cannot be read as a batch: reading a queue takes records out of it. Use spark.readStream, "
            "with Trigger.AvailableNow to stop when it is drained; to look at it without taking records, use format "
            "kafka-share-state."
        )

    @plainly
    def writer(self, schema: StructType, overwrite: bool) -> NoReturn:
        raise OptionError("kafka-share is a source. To produce to Kafka use format kafka-headrace.")

    @plainly
    def streamWriter(self, schema: StructType, overwrite: bool) -> NoReturn:  # noqa: N802
        raise OptionError(
            "kafka-share is a source. To produce to Kafka use format kafka-headrace; to say what became of records use "
            "format kafka-share-ack."
        )


def register(spark: SparkSession) -> None:
    """Makes kafka-share, kafka-share-ack, kafka-headrace and the tables known to a session."""
    # Not above: Spark's workers import this module to find kafka-share, and need nothing of these.
    from headrace.spark.processing import KafkaShareAckSink
    from headrace.spark.sink import KafkaSink
    from headrace.spark.tables import KafkaShareDeadLetters, KafkaShareState

    for source in (KafkaShareSource, KafkaShareAckSink, KafkaSink, KafkaShareState, KafkaShareDeadLetters):
        spark.dataSource.register(source)
