"""Spark's own Kafka source: four jars in the per-user cache, fetched by Ivy as Apache Kafka's are.

The set is not an official one. The connector's newest release that can be had is 4.2.0, and the token provider that it
asks for in its own version cannot: 4.1.0-preview1 stands in for it. Reading works with it, on Spark 4.3 too.
"""

from pathlib import Path

from bench.jars import cached_jars

CONNECTOR = "4.2.0"
JARS = (
    ("org.apache.spark", "spark-sql-kafka-0-10_2.13", CONNECTOR),
    ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.1.0-preview1"),
    ("org.apache.kafka", "kafka-clients", "3.9.2"),
    ("org.apache.commons", "commons-pool2", "2.13.1"),
)


def connector_jars() -> list[Path]:
    """The jars; raises JarsUnavailable of headrace.testing.kafka_jars."""
    return cached_jars("spark-kafka", CONNECTOR, JARS)
