"""TLS and SASL against one Apache Kafka with a listener of every kind: the right settings get in, wrong ones get an
error that names the cause and the cure.
"""

import asyncio
import base64
import importlib
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trustme
import uvloop
from cryptography.hazmat.primitives import serialization

from headrace.client.cluster import Cluster
from headrace.client.errors import (
    BrokerNotAvailableError,
    ConfigError,
    ConnectionLost,
    SaslAuthenticationError,
    TlsError,
    UnsupportedSaslMechanismError,
)
from headrace.client.plain_fetch import read_range
from headrace.client.settings import ClientSettings
from headrace.testing import ApacheKafka
from headrace.wire.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from headrace.wire.messages.metadata_request import MetadataRequest
from headrace.wire.records import read_records
from tests.unit.client.talk import create_topic, produce
from tests.unit.client.talk import run as run_on

pytestmark = pytest.mark.needs_kafka
PASSWORD = "a,secret=with signs"
REAUTHENTICATE_MS = 3_000
LISTENERS = {
    "TLS": "SSL",
    "ODDNAME": "SSL",
    "MUTUAL": "SSL",
    "SASLTLS": "SASL_SSL",
    "SASL": "SASL_PLAINTEXT",
    "SHORT": "SASL_PLAINTEXT",
    "BEARER": "SASL_SSL",
}
Run = Callable[..., None]
JAAS = "org.apache.kafka.common.security"


@dataclass(frozen=True, slots=True)
class Secured:
    kafka: ApacheKafka
    folder: Path

    def settings(self, listener: str, **keywords: Any) -> ClientSettings:
        return ClientSettings.parse(
            **{
                "bootstrap_servers": self.kafka.address_of(listener),
                "security_protocol": LISTENERS.get(listener, "PLAINTEXT"),
                "default_api_timeout_ms": 20_000,
                **keywords,
            }
        )

    @property
    def ca(self) -> str:
        return str(self.folder / "ca.pem")


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    """Every test runs on both loops: each has a TLS of its own, with failures of its own."""
    return partial(run_on, new_loop=request.param)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("security")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(folder / "ca.pem")
    trustme.CA().cert_pem.write_to_path(folder / "stranger.pem")
    write_keystore(authority.issue_cert("localhost", "127.0.0.1"), folder / "broker.pem")
    write_keystore(authority.issue_cert("elsewhere.example"), folder / "odd.pem")
    write_keystore(authority.issue_cert("client@headrace.example"), folder / "client.pem")
    write_keystore(
        authority.issue_cert("locked@headrace.example"), folder / "locked.pem", password=b"open sesame"
    )
    with ApacheKafka(
        listeners=LISTENERS,
        settings=server_settings(folder),
        scram_users={"alice": PASSWORD.replace(",", "")},
    ) as kafka:
        yield Secured(kafka, folder)


def write_keystore(certificate: trustme.LeafCert, path: Path, *, password: bytes | None = None) -> None:
    """Key and chain in one PEM file. Kafka reads only PKCS#8 keys, which trustme does not write."""
    key = serialization.load_pem_private_key(certificate.private_key_pem.bytes(), None)
    hidden = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
    data = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, hidden)
    path.write_bytes(data + b"".join(blob.bytes() for blob in certificate.cert_chain_pems))


def server_settings(folder: Path) -> dict[str, object]:
    plain = f'{JAAS}.plain.PlainLoginModule required user_alice="{PASSWORD}";'
    scram = f"{JAAS}.scram.ScramLoginModule required;"
    settings: dict[str, object] = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": folder / "broker.pem",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": folder / "ca.pem",
        "listener.name.oddname.ssl.keystore.location": folder / "odd.pem",
        "listener.name.mutual.ssl.client.auth": "required",
        "listener.name.short.connections.max.reauth.ms": REAUTHENTICATE_MS,
    }
    for name in ("sasl", "sasltls", "short"):
        settings[f"listener.name.{name}.sasl.enabled.mechanisms"] = "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512"
        settings[f"listener.name.{name}.plain.sasl.jaas.config"] = plain
        settings[f"listener.name.{name}.scram-sha-256.sasl.jaas.config"] = scram
        settings[f"listener.name.{name}.scram-sha-512.sasl.jaas.config"] = scram
    settings["listener.name.sasl.sasl.enabled.mechanisms"] = "PLAIN,SCRAM-SHA-256"
    bearer = f'{JAAS}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="broker";'
    settings["listener.name.bearer.sasl.enabled.mechanisms"] = "OAUTHBEARER"
    settings["listener.name.bearer.oauthbearer.sasl.jaas.config"] = bearer
    settings["listener.name.bearer.connections.max.reauth.ms"] = REAUTHENTICATE_MS
    return settings


async def write_and_read(settings: ClientSettings, topic: str) -> None:
    """A record goes there and comes back: not only the connection works, but what it is for."""
    async with Cluster(settings) as cluster:
        await produce(cluster, await create_topic(cluster, topic), [b"through"])
        batches = [batch async for _, batch in read_range(cluster, topic, 0, 0, 0)]
        assert [record.value for record in read_records(batches[0])] == [b"through"]


async def start(settings: ClientSettings) -> None:
    async with Cluster(settings):
        pass


tokens = 0


def unsecured_token() -> str:
    """A JWT without a signature, which Kafka takes where no validator is configured."""
    global tokens
    tokens += 1
    now = int(time.time())
    parts = [{"alg": "none"}, {"sub": "alice", "iat": now, "exp": now + 600}]
    return ".".join(
        [*(base64.urlsafe_b64encode(json.dumps(each).encode()).decode().rstrip("=") for each in parts), ""]
    )


def no_jwt() -> str:
    return "opaque"


def test_a_token_gets_in_and_is_asked_for_again_when_the_login_ends(
    run: Run, secured: Secured, unique: str
) -> None:
    async def stay(settings: ClientSettings) -> None:
        module = importlib.import_module(__name__)  # as the client imports it
        async with Cluster(settings) as cluster:
            connection = await cluster.connection(1)
            before = module.tokens
            while module.tokens == before:
                await connection.send(MetadataRequest(topics=[]))
            assert connection.is_open

    settings = secured.settings("BEARER", **bearer(secured, "unsecured_token"))
    run(write_and_read(settings, unique))
    run(stay(settings))


def test_a_token_that_the_broker_does_not_take_is_refused_at_once(run: Run, secured: Secured) -> None:
    settings = secured.settings("BEARER", **bearer(secured, "no_jwt"))
    with pytest.raises(SaslAuthenticationError, match="refused the token"):
        run(start(settings))


def bearer(secured: Secured, function: str) -> dict[str, str]:
    return {
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauthbearer_token_provider": f"{__name__}:{function}",
        "ssl_truststore_location": secured.ca,
    }


def password_of(mechanism: str) -> str:
    """kafka-storage takes no comma in a SCRAM password, because it separates its own fields by commas."""
    return PASSWORD if mechanism == "PLAIN" else PASSWORD.replace(",", "")


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_sasl_over_tls_gets_in_with_every_mechanism(
    run: Run, secured: Secured, unique: str, mechanism: str
) -> None:
    settings = secured.settings(
        "SASLTLS",
        ssl_truststore_location=secured.ca,
        sasl_mechanism=mechanism,
        sasl_username="alice",
        sasl_password=password_of(mechanism),
    )
    run(write_and_read(settings, unique))


def test_sasl_without_tls_gets_in_by_javas_jaas_config(run: Run, secured: Secured, unique: str) -> None:
    password = PASSWORD.replace(",", "")
    login = f'{JAAS}.scram.ScramLoginModule required username="alice" password="{password}";'
    settings = secured.settings("SASL", sasl_mechanism="SCRAM-SHA-256", sasl_jaas_config=login)
    run(write_and_read(settings, unique))


def test_tls_trusts_a_pem_file(run: Run, secured: Secured, unique: str) -> None:
    run(write_and_read(secured.settings("TLS", ssl_ca_location=secured.ca), unique))


def test_tls_trusts_pem_text(run: Run, secured: Secured, unique: str) -> None:
    text = Path(secured.ca).read_text()
    run(write_and_read(secured.settings("TLS", ssl_truststore_certificates=text), unique))


def test_mutual_tls_gets_in_with_a_certificate(run: Run, secured: Secured, unique: str) -> None:
    settings = secured.settings(
        "MUTUAL",
        ssl_truststore_location=secured.ca,
        ssl_keystore_location=str(secured.folder / "client.pem"),
    )
    run(write_and_read(settings, unique))


def test_mutual_tls_gets_in_with_a_key_under_a_password(run: Run, secured: Secured, unique: str) -> None:
    settings = secured.settings(
        "MUTUAL",
        ssl_truststore_location=secured.ca,
        ssl_keystore_location=str(secured.folder / "locked.pem"),
        ssl_key_password="open sesame",
    )
    run(write_and_read(settings, unique))


def test_a_wrong_password_of_a_key_is_named(secured: Secured) -> None:
    settings = secured.settings(
        "MUTUAL",
        ssl_truststore_location=secured.ca,
        ssl_keystore_location=str(secured.folder / "locked.pem"),
        ssl_key_password="open barley",
    )
    with pytest.raises(ConfigError, match=r"locked\.pem.*ssl\.key\.password"):
        Cluster(settings)


def test_mutual_tls_without_a_certificate_is_told_to_have_one(run: Run, secured: Secured) -> None:
    with pytest.raises(TlsError, match=r"Set ssl\.keystore\.location"):
        run(start(secured.settings("MUTUAL", ssl_truststore_location=secured.ca)))


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_wrong_password_is_refused_at_once(run: Run, secured: Secured, mechanism: str) -> None:
    settings = secured.settings(
        "SASLTLS",
        ssl_truststore_location=secured.ca,
        sasl_mechanism=mechanism,
        sasl_username="alice",
        sasl_password="wrong",
    )
    with pytest.raises(SaslAuthenticationError, match=r"'alice'.*Check sasl\.username") as caught:
        run(start(settings))
    assert "wrong" not in str(caught.value)


def test_an_unknown_user_is_refused_at_once(run: Run, secured: Secured) -> None:
    settings = secured.settings(
        "SASL", sasl_mechanism="SCRAM-SHA-256", sasl_username="bob, the =other", sasl_password="x"
    )
    with pytest.raises(SaslAuthenticationError, match="'bob, the =other'"):
        run(start(settings))


def test_a_mechanism_that_the_listener_lacks_is_answered_by_those_it_has(run: Run, secured: Secured) -> None:
    settings = secured.settings(
        "SASL", sasl_mechanism="SCRAM-SHA-512", sasl_username="alice", sasl_password="x"
    )
    with pytest.raises(UnsupportedSaslMechanismError, match=r"SCRAM-SHA-512; it offers .*SCRAM-SHA-256"):
        run(start(settings))


def test_an_unknown_authority_is_refused_at_once(run: Run, secured: Secured) -> None:
    stranger = str(secured.folder / "stranger.pem")
    with pytest.raises(TlsError, match=r"certificate is not accepted.*Set ssl\.truststore\.location"):
        run(start(secured.settings("TLS", ssl_truststore_location=stranger)))


def test_a_wrong_host_name_is_refused_unless_names_are_not_checked(
    run: Run, secured: Secured, unique: str
) -> None:
    settings = secured.settings("ODDNAME", ssl_truststore_location=secured.ca)
    with pytest.raises(TlsError, match=r"127\.0\.0\.1.*ssl\.endpoint\.identification\.algorithm=none"):
        run(start(settings))
    unchecked = secured.settings(
        "ODDNAME", ssl_truststore_location=secured.ca, ssl_endpoint_identification_algorithm="none"
    )
    run(write_and_read(unchecked, unique))


def test_no_certificate_is_checked_when_told_so(run: Run, secured: Secured, unique: str) -> None:
    run(write_and_read(secured.settings("ODDNAME", enable_ssl_certificate_verification=False), unique))


@pytest.mark.parametrize(
    ("listener", "protocol", "wanted"),
    [
        ("TLS", "PLAINTEXT", "SSL"),
        ("SASL", "PLAINTEXT", "SASL_PLAINTEXT"),
        ("PLAINTEXT", "SSL", "PLAINTEXT"),
    ],
)
def test_another_security_protocol_than_the_listeners_is_named_soon(
    run: Run, secured: Secured, listener: str, protocol: str, wanted: str
) -> None:
    settings = secured.settings(listener, security_protocol=protocol)
    with pytest.raises((BrokerNotAvailableError, ConnectionLost, TlsError)) as caught:
        run(start(settings), timeout_s=10)
    assert "security.protocol" in str(caught.value)
    assert wanted in str(caught.value)


def test_a_login_that_ends_soon_is_renewed_on_the_same_connection(
    run: Run, secured: Secured, unique: str
) -> None:
    """The broker closes connections whose login has ended; this one is in use for longer than that.

    Fetches that the broker holds back are under way all the time, so that the login meets them.
    """

    async def scenario() -> None:
        settings = secured.settings("SHORT", sasl_username="alice", sasl_password=PASSWORD)
        async with Cluster(settings) as cluster:
            topic = await create_topic(cluster, unique)
            connection = await cluster.connection(1)
            partition = FetchPartition(partition=0, partition_max_bytes=1_000)
            parked = FetchRequest(
                max_wait_ms=50,
                min_bytes=1,
                topics=[FetchTopic(topic_id=topic.topic_id, partitions=[partition])],
            )
            loop = asyncio.get_running_loop()
            end = loop.time() + 1.4 * REAUTHENTICATE_MS / 1000
            while loop.time() < end:
                answers = await asyncio.gather(
                    connection.send(parked), connection.send(MetadataRequest(topics=[]))
                )
                assert not answers[0].error_code
            assert connection.is_open

    run(scenario())
