"""Spark takes one DefaultSource from each pyspark_* module: this one is the sink format("kafka-headrace")."""

from headrace.spark.sink import KafkaSink as DefaultSource

__all__ = ["DefaultSource"]
