"""Apache Kafka's tools against our broker over TLS with a login: users, topics, records."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace import Broker
from headrace.testing import KafkaTools
from tests.unit.broker.security.certificates import TestAuthority

pytestmark = [pytest.mark.needs_kafka, pytest.mark.timeout(300)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


@pytest.fixture
def tools(folder: Path) -> Iterator[KafkaTools]:
    authority = TestAuthority(folder)
    settings = {
        "listeners": "SASL_SSL://localhost:0",
        "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
        "ssl.keystore.location": authority.keystore(),
        "ssl.enabled.protocols": "TLSv1.3",
    }
    with Broker(settings=settings, users={"admin": "secret"}) as broker:
        yield KafkaTools(broker.bootstrap_servers)


def login(folder: Path, name: str, password: str, mechanism: str = "SCRAM-SHA-512") -> Path:
    path = folder / f"{name}.properties"
    path.write_text(
        "security.protocol=SASL_SSL\nssl.truststore.type=PEM\n"
        f"ssl.truststore.location={folder / 'ca.pem'}\nsasl.mechanism={mechanism}\n"
        "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required "
        f'username="{name}" password="{password}";\n'
    )
    return path


def test_users_are_added_with_kafka_configs_and_use_the_console_tools(
    tools: KafkaTools, folder: Path, unique: str
) -> None:
    admin = login(folder, "admin", "secret")
    users = ("kafka-configs", "--command-config", str(admin), "--entity-type", "users")
    tools.run(*users, "--alter", "--entity-name", "alice", "--add-config", "SCRAM-SHA-256=[password=hers]")
    described = tools.run(*users, "--describe").stdout
    assert (
        "SCRAM credential configs for user-principal 'alice' are SCRAM-SHA-256=iterations=4096" in described
    )
    alice = login(folder, "alice", "hers", "SCRAM-SHA-256")
    tools.run("kafka-topics", "--command-config", str(alice), "--create", "--topic", unique)
    tools.run("kafka-console-producer", "--command-config", str(alice), "--topic", unique, stdin="through\n")
    taken = tools.run(
        *("kafka-console-consumer", "--command-config", str(alice), "--topic", unique),
        *("--from-beginning", "--max-messages", "1", "--timeout-ms", "60000"),
    )
    assert taken.stdout.split() == ["through"]
    tools.run(*users, "--alter", "--entity-name", "alice", "--delete-config", "SCRAM-SHA-256")
    refused = tools.run("kafka-topics", "--command-config", str(alice), "--list", check=False)
    assert refused.status != 0
    assert "invalid credentials with SASL mechanism SCRAM-SHA-256" in refused.stdout + refused.stderr


def test_a_tool_whose_tls_handshake_is_refused_ends_at_once(tools: KafkaTools, folder: Path) -> None:
    """Without an alert it would try again until its time is up."""
    old = login(folder, "admin", "secret")
    old.write_text(old.read_text() + "ssl.protocol=TLSv1.2\nssl.enabled.protocols=TLSv1.2\n")
    refused = tools.run("kafka-topics", "--command-config", str(old), "--list", check=False)
    assert refused.status != 0
    assert "SslAuthenticationException" in refused.stdout + refused.stderr
    assert "protocol_version" in refused.stdout + refused.stderr
