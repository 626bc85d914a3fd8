"""Spark looks for modules named pyspark_* and registers their DefaultSource: format("kafka-share") just works."""

from headrace.spark.source import KafkaShareSource as DefaultSource

__all__ = ["DefaultSource"]
