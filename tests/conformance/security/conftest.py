"""Both brokers with listeners of several kinds: `secured` is each of them in turn."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import pytest

from headrace import Broker
from headrace.testing import ApacheKafka
from tests.conformance.wire_client import WireClient

PASSWORD = "a secret"
REAUTHENTICATE_MS = 3_600_000
LISTENERS = {"SASL": "SASL_PLAINTEXT", "SHORT": "SASL_PLAINTEXT"}
JAAS = "org.apache.kafka.common.security"
PLAIN = f'{JAAS}.plain.PlainLoginModule required username="broker" password="b" user_alice="{PASSWORD}" user_bob="b";'
SCRAM = f"{JAAS}.scram.ScramLoginModule required;"


def sasl_settings() -> dict[str, object]:
    settings: dict[str, object] = {
        "connection.failed.authentication.delay.ms": 10,
        "listener.name.short.connections.max.reauth.ms": REAUTHENTICATE_MS,
    }
    for name in ("sasl", "short"):
        settings[f"listener.name.{name}.sasl.enabled.mechanisms"] = "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512"
        settings[f"listener.name.{name}.plain.sasl.jaas.config"] = PLAIN
        settings[f"listener.name.{name}.scram-sha-256.sasl.jaas.config"] = SCRAM
        settings[f"listener.name.{name}.scram-sha-512.sasl.jaas.config"] = SCRAM
    return settings


@dataclass(frozen=True, slots=True)
class SecuredBroker:
    kind: str
    running: Broker | ApacheKafka

    def address_of(self, listener: str) -> str:
        return self.running.address_of(listener)


@pytest.fixture(scope="module", params=["headrace", pytest.param("apache", marks=pytest.mark.needs_kafka)])
def secured(request: pytest.FixtureRequest) -> Iterator[SecuredBroker]:
    users = {"alice": PASSWORD}
    running: Broker | ApacheKafka
    if request.param == "apache":
        running = ApacheKafka(listeners=LISTENERS, settings=sasl_settings(), scram_users=users)
    else:
        names = ["PLAINTEXT", *LISTENERS]
        listeners = {
            "listeners": ",".join(f"{name}://127.0.0.1:0" for name in names),
            "listener.security.protocol.map": ",".join(f"{a}:{b}" for a, b in LISTENERS.items()),
        }
        running = Broker(settings={**listeners, **sasl_settings()}, users=users)
    with running:
        yield SecuredBroker(request.param, running)


@pytest.fixture
def talk(secured: SecuredBroker) -> Iterator[Callable[[str], WireClient]]:
    """Opens a connection to a listener; all are closed at the end of the test."""
    with ExitStack() as stack:
        yield lambda listener: stack.enter_context(WireClient(secured.address_of(listener)))
