"""Spark takes one DefaultSource from each pyspark_* module: this one is the sink format("kafka-share-ack")."""

from headrace.spark.processing import KafkaShareAckSink as DefaultSource

__all__ = ["DefaultSource"]
