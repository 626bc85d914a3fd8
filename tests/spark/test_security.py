"""A query over TLS and SASL: reader and tasks get their settings from the same kafka.* options."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm
from pyspark.sql import SparkSession

from headrace import Broker
from headrace.client.admin.sync import Admin
from headrace.wire.enums import OffsetSpec
from tests.integration.test_client_security import PASSWORD, Secured, secured
from tests.spark.conftest import Effects, Queue, drain
from tests.unit.broker.security.certificates import TestAuthority, pkcs12_truststore

pytestmark = pytest.mark.timeout(180)
__all__ = ["secured"]


@pytest.mark.needs_kafka
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


def test_a_queue_on_our_broker_is_drained_over_tls_with_a_password(
    spark: SparkSession, effects: Effects, unique: str, tmp_path: Path
) -> None:
    authority = TestAuthority(tmp_path)
    broker_settings = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SASL_SSL://localhost:0",
        "sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "ssl.keystore.location": authority.keystore(),
    }
    with Broker(settings=broker_settings, users={"alice": PASSWORD}) as broker:
        settings = {
            "bootstrap.servers": broker.address_of("SASL_SSL"),
            "security.protocol": "SASL_SSL",
            "ssl.truststore.location": str(authority.ca),
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": "alice",
            "sasl.password": PASSWORD,
        }
        queue = Queue(broker.bootstrap_servers, unique, unique, tmp_path)
        with Admin(settings) as admin:
            admin.create_topic(queue.topic, partitions=queue.partitions)
        queue.send(200)
        options = {f"kafka.{name}": value for name, value in settings.items()}
        drain(queue.stream(spark, **options), effects, queue)
        assert effects.numbers == list(range(200))
        assert queue.lag() == 0


PROVIDER = """
import os
from pathlib import Path

def token():
    Path({told!r}, str(os.getpid())).touch()
    return {token!r}
"""


def test_a_queue_is_drained_with_tokens_of_a_function_and_pkcs12_stores(
    spark: SparkSession, modules: Path, effects: Effects, unique: str, tmp_path: Path
) -> None:
    """The function is called by the reader and by the tasks, each in a process of its own."""
    authority, key = TestAuthority(tmp_path), rsa.generate_private_key(65537, 2048)
    public = json.loads(RSAAlgorithm.to_jwk(key.public_key())) | {"kid": "one", "use": "sig"}
    (tmp_path / "keys.json").write_text(json.dumps({"keys": [public]}))
    now = int(time.time())
    claims = {"sub": "alice", "iss": "tests", "aud": "kafka", "iat": now, "exp": now + 3600}
    token = jwt.encode(claims, key, algorithm="RS256", headers={"kid": "one"})
    told = tmp_path / "told"
    told.mkdir()
    module = f"provider_{unique.replace('-', '_')}"
    (modules / f"{module}.py").write_text(PROVIDER.format(told=str(told), token=token))
    broker_settings = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SASL_SSL://localhost:0",
        "listener.name.sasl_ssl.ssl.client.auth": "required",
        "ssl.keystore.location": authority.keystore(),
        "ssl.truststore.location": authority.ca,
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": (tmp_path / "keys.json").as_uri(),
        "sasl.oauthbearer.expected.issuer": "tests",
        "sasl.oauthbearer.expected.audience": "kafka",
    }
    with Broker(settings=broker_settings) as broker:
        queue = Queue(broker.bootstrap_servers, unique, unique, tmp_path)
        with queue.admin() as admin:
            admin.create_topic(queue.topic, partitions=queue.partitions)
        queue.send(200)
        settings = {
            "bootstrap.servers": broker.address_of("SASL_SSL"),
            "security.protocol": "SASL_SSL",
            "ssl.truststore.location": pkcs12_truststore(authority.ca, b"changeit"),
            "ssl.truststore.password": "changeit",
            "ssl.keystore.location": authority.pkcs12(b"open sesame"),
            "ssl.keystore.password": "open sesame",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.token.provider": f"{module}:token",
        }
        options = {f"kafka.{name}": value for name, value in settings.items()}
        drain(queue.stream(spark, **options), effects, queue)
        assert effects.numbers == list(range(200))
        assert queue.lag() == 0
    assert len(list(told.iterdir())) > 1


@pytest.fixture(params=["broker", pytest.param("apache", marks=pytest.mark.needs_kafka)])
def login(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[dict[str, str]]:
    """Client settings for a SASL_SSL listener of either broker."""
    common = {"security.protocol": "SASL_SSL", "sasl.username": "alice"}
    if request.param == "apache":
        secured: Secured = request.getfixturevalue("secured")
        yield {
            **common,
            "bootstrap.servers": secured.kafka.address_of("SASLTLS"),
            "ssl.truststore.location": secured.ca,
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.password": PASSWORD.replace(",", ""),
        }
        return
    authority = TestAuthority(tmp_path)
    settings = {
        "listeners": "SASL_SSL://localhost:0",
        "sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "ssl.keystore.location": authority.keystore(),
    }
    with Broker(settings=settings, users={"alice": PASSWORD}) as broker:
        yield {
            **common,
            "bootstrap.servers": broker.bootstrap_servers,
            "ssl.truststore.location": str(authority.ca),
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.password": PASSWORD,
        }


def end_of(login: dict[str, str], topic: str) -> int:
    with Admin(login) as admin:
        return admin.list_offsets({(topic, 0): OffsetSpec.LATEST})[topic, 0].offset or 0


def test_the_sink_writes_over_tls_with_a_password(
    spark: SparkSession, login: dict[str, str], unique: str, tmp_path: Path
) -> None:
    with Admin(login) as admin:
        admin.create_topic(unique)
    options = {f"kafka.{name}": value for name, value in login.items()} | {"topic": unique}
    rows = spark.range(50).selectExpr("CAST(id AS STRING) AS value")
    rows.write.format("kafka-headrace").mode("append").options(**options).save()
    assert end_of(login, unique) == 50

    source = str(tmp_path / "rows")
    rows.write.parquet(source)
    stream = spark.readStream.schema("value string").parquet(source).writeStream.format("kafka-headrace")
    query = (
        stream.options(**options, checkpointLocation=str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(150)
    assert end_of(login, unique) == 100


def test_the_sink_names_a_wrong_password(spark: SparkSession, login: dict[str, str], unique: str) -> None:
    options = {f"kafka.{name}": value for name, value in {**login, "sasl.password": "wrong"}.items()}
    rows = spark.range(1).selectExpr("CAST(id AS STRING) AS value")
    with pytest.raises(Exception, match=r"sasl\.username"):
        rows.write.format("kafka-headrace").mode("append").options(**options, topic=unique).save()
