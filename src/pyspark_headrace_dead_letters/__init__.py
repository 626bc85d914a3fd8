"""Spark takes one DefaultSource from each pyspark_* module: this one is format("kafka-share-dead-letters")."""

from headrace.spark.tables import KafkaShareDeadLetters as DefaultSource

__all__ = ["DefaultSource"]
