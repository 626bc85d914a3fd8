"""`python -m headrace.testing`: fetches Apache Kafka's jars unless they are here, and prints their folder."""

import sys

from headrace.testing.kafka_jars import JarsUnavailable, kafka_jars

try:
    print(kafka_jars())
except JarsUnavailable as error:
    sys.exit(f"Apache Kafka's jars are unavailable: {error}")
