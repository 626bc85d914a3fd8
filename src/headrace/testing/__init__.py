"""Tools for tests: pytest fixtures with an in-process broker, and a runner for a real Apache Kafka.

`ApacheKafka` starts Apache Kafka; its jars, and Java if there is none, are downloaded. `KafkaTools` runs Apache's
command-line tools against any broker. The pytest plugin is in `plugin.py`.
"""

from headrace.testing.apache_kafka import ApacheKafka
from headrace.testing.kafka_tools import KafkaTools

__all__ = ["ApacheKafka", "KafkaTools"]
