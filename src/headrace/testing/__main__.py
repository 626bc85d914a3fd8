"""`python -m headrace.testing`: fetches Apache Kafka's jars if they are missing, and prints their folder.

It also creates the archive of their classes, so that its tools and brokers start faster.
"""

import subprocess
import sys

from headrace.testing.apache_kafka import ApacheKafka, StartFailed
from headrace.testing.class_archive import make_archive
from headrace.testing.kafka_jars import JarsUnavailable, kafka_jars
from headrace.testing.kafka_tools import KafkaTools, ToolFailed


def run_a_broker_and_tools() -> None:
    with ApacheKafka() as kafka:
        tools = KafkaTools(kafka.bootstrap_servers)
        tools.run("kafka-topics", "--create", "--topic", "some")
        tools.run("kafka-console-producer", "--topic", "some", stdin="a record\n")
        tools.run("kafka-configs", "--describe", "--entity-type", "topics", "--entity-name", "some")
        tools.run("kafka-share-groups", "--list")
        taking = ("--topic", "some", "--timeout-ms", "3000")
        tools.run("kafka-console-share-consumer", *taking, check=False)
        tools.run("kafka-console-consumer", *taking, "--from-beginning", "--max-messages", "1")


try:
    print(kafka_jars())
except JarsUnavailable as error:
    sys.exit(f"Apache Kafka's jars are unavailable: {error}")
try:
    make_archive(run_a_broker_and_tools)
except (OSError, StartFailed, ToolFailed, subprocess.SubprocessError) as error:
    print(f"cannot create the archive of Kafka's classes, so Kafka starts slower: {error}", file=sys.stderr)
