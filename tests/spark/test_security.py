"""A query over TLS and SASL: reader and tasks get their settings from the same kafka.* options."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headrace.client.admin.sync import Admin
from tests.integration.test_client_security import PASSWORD, Secured, secured
from tests.spark.conftest import Effects, Queue, drain

pytestmark = [pytest.mark.needs_kafka, pytest.mark.timeout(180)]
__all__ = ["secured"]


def test_a_queue_is_drained_over_tls_with_a_password(
    spark: SparkSession, secured: Secured, effects: Effects, unique: str, tmp_path: Path
) -> None:
    settings = {
        "bootstrap.servers": secured.kafka.address_of("SASLTLS"),
        "security.protocol": "SASL_SSL",
        "ssl.truststore.location": secured.ca,
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": "alice",
        "sasl.password": PASSWORD.replace(",", ""),
    }
    queue = Queue(secured.kafka.bootstrap_servers, unique, unique, tmp_path)
    with Admin(settings) as admin:
        admin.create_topic(queue.topic, partitions=queue.partitions)
    queue.send(200)
    drain(queue.stream(spark, **{f"kafka.{name}": value for name, value in settings.items()}), effects, queue)
    assert effects.numbers == list(range(200))
    assert queue.lag() == 0
