"""A client whose TLS handshake is refused is told why, by an alert, as Apache Kafka does."""

import logging
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from headrace import Admin, Broker
from headrace.broker.security.tls_door import TlsDoor
from headrace.client.errors import TlsError
from tests.unit.broker.security.certificates import TestAuthority

Serve = Callable[..., Broker]
FATAL = 2
ALERT_RECORD, HANDSHAKE_FAILURE = 21, 40
BROKERS_SUITE, ANOTHER_SUITE = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", "ECDHE-ECDSA-AES256-GCM-SHA384"


@pytest.fixture
def authority(tmp_path: Path) -> TestAuthority:
    return TestAuthority(tmp_path)


@pytest.fixture(params=["uvloop", "asyncio"])
def serve(
    request: pytest.FixtureRequest, authority: TestAuthority, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Serve]:
    """Brokers on either kind of event loop."""
    if request.param == "asyncio":
        monkeypatch.setattr("headrace.base.loops.uvloop", None)
    with ExitStack() as stack:

        def start(**settings: object) -> Broker:
            given = {
                "listeners": "SSL://localhost:0",
                "ssl_keystore_location": authority.keystore(),
                "ssl_truststore_location": authority.ca,
                **settings,
            }
            named = {key.replace("_", "."): value for key, value in given.items()}
            return stack.enter_context(Broker(settings=named))

        yield start


def client(authority: TestAuthority, version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(authority.ca))
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.maximum_version = version
    return context


def refusal(broker: Broker, context: ssl.SSLContext) -> str:
    """What the broker says to a client that also begins to talk, as one may in TLS 1.3 before it is accepted."""
    host, port = broker.bootstrap_servers.split(":")
    with socket.create_connection((host, int(port)), 30) as plain:
        try:
            with context.wrap_socket(plain, server_hostname="localhost") as secured:
                secured.sendall(b"\x00\x00\x00\x10" + b"x" * 16)
                secured.recv(1)
        except ssl.SSLError as refused:
            return str(refused.reason)
    return "nothing"


def test_a_client_without_a_cipher_suite_in_common_is_told(serve: Serve, authority: TestAuthority) -> None:
    context = client(authority, ssl.TLSVersion.TLSv1_2)
    context.set_ciphers(ANOTHER_SUITE)
    assert refusal(serve(ssl_cipher_suites=BROKERS_SUITE), context).endswith("ALERT_HANDSHAKE_FAILURE")


def test_a_client_without_a_version_in_common_is_told(serve: Serve, authority: TestAuthority) -> None:
    context = client(authority, ssl.TLSVersion.TLSv1_2)
    assert refusal(serve(ssl_enabled_protocols="TLSv1.3"), context).endswith("ALERT_PROTOCOL_VERSION")


@pytest.mark.parametrize(
    ("version", "alert"),
    [
        (ssl.TLSVersion.TLSv1_2, "ALERT_HANDSHAKE_FAILURE"),
        (ssl.TLSVersion.TLSv1_3, "ALERT_CERTIFICATE_REQUIRED"),
    ],
)
def test_a_client_without_the_certificate_it_needs_is_told(
    serve: Serve, authority: TestAuthority, version: ssl.TLSVersion, alert: str
) -> None:
    broker = serve(ssl_client_auth="required")
    assert refusal(broker, client(authority, version)).endswith(alert)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_client_with_the_certificate_of_a_stranger_is_told(
    serve: Serve, authority: TestAuthority, tmp_path: Path, version: ssl.TLSVersion
) -> None:
    (tmp_path / "strange").mkdir()
    stranger = TestAuthority(tmp_path / "strange")
    context = client(authority, version)
    context.load_cert_chain(stranger.keystore("client.example"))
    assert refusal(serve(ssl_client_auth="required"), context).endswith("ALERT_UNKNOWN_CA")


def test_who_stays_after_the_alert_is_cut_off_and_forgotten(
    serve: Serve, authority: TestAuthority, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "headrace.broker")
    broker = serve(ssl_cipher_suites=BROKERS_SUITE, max_connections=1)
    context = client(authority, ssl.TLSVersion.TLSv1_2)
    context.set_ciphers(ANOTHER_SUITE)
    host, port = broker.bootstrap_servers.split(":")
    with socket.create_connection((host, int(port)), 30) as plain:
        outgoing = ssl.MemoryBIO()
        hello = context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost")
        with pytest.raises(ssl.SSLWantReadError):
            hello.do_handshake()
        plain.sendall(outgoing.read())
        record = plain.recv(7, socket.MSG_WAITALL)
        plain.sendall(b"still there")
        assert plain.recv(1) == b""
    assert (record[0], *record[5:]) == (ALERT_RECORD, FATAL, HANDSHAKE_FAILURE)
    [door] = broker._running()._sockets
    assert isinstance(door, TlsDoor)
    broker.call(lambda: None)
    assert not door.handshakes
    assert any("TLS handshake failed: NO_SHARED_CIPHER" in line for line in caplog.messages)
    assert refusal(broker, context).endswith("ALERT_HANDSHAKE_FAILURE"), "the first connection still counts"


def test_our_client_says_that_it_does_not_trust_the_broker(
    serve: Serve, authority: TestAuthority, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "headrace.broker")
    broker = serve()
    (tmp_path / "other").mkdir()
    other = TestAuthority(tmp_path / "other")
    with (
        pytest.raises(TlsError, match="its certificate is not accepted"),
        Admin(
            bootstrap_servers=broker.bootstrap_servers,
            security_protocol="SSL",
            ssl_truststore_location=str(other.ca),
        ) as admin,
    ):
        admin.list_topics()
    broker.call(lambda: None)
    assert any("TLS handshake failed: TLSV1_ALERT_UNKNOWN_CA" in line for line in caplog.messages)


def test_our_client_says_what_the_broker_refuses(serve: Serve, authority: TestAuthority) -> None:
    broker = serve(ssl_enabled_protocols="TLSv1.2", ssl_client_auth="required")
    with (
        pytest.raises(TlsError, match=r"HANDSHAKE_FAILURE.*ssl\.keystore\.location.*ssl\.cipher\.suites"),
        Admin(
            bootstrap_servers=broker.bootstrap_servers,
            security_protocol="SSL",
            ssl_truststore_location=str(authority.ca),
        ) as admin,
    ):
        admin.list_topics()
