"""Spark takes one DefaultSource from each pyspark_* module: this one is format("kafka-share-state")."""

from headrace.spark.tables import KafkaShareState as DefaultSource

__all__ = ["DefaultSource"]
