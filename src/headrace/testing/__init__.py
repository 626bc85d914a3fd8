"""What we ship for tests: an in-process broker with a clock to turn, and a runner for a real Apache Kafka.

`ApacheKafka` starts the real thing (its jars, and Java where there is none, come by themselves); `KafkaTools`
runs Apache's command-line tools against any broker. The pytest plugin is in `plugin.py`.
"""

from headrace.testing.apache_kafka import ApacheKafka
from headrace.testing.kafka_tools import KafkaTools

__all__ = ["ApacheKafka", "KafkaTools"]
