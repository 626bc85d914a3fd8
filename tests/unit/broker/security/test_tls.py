"""Listeners with TLS: key stores of every form, clients' certificates, reloading, and who gets no further."""

import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from headrace import Admin, Broker, Producer
from headrace.broker.call import Call
from headrace.broker.security.listeners import BrokerListener
from headrace.broker.security.tls import make_context, openssl_name
from headrace.broker.security.tls_door import TlsDoor
from headrace.broker.settings import InvalidSettings, Settings
from headrace.wire.message import Message
from headrace.wire.security import SecurityProtocol
from tests.unit.broker.security.certificates import TestAuthority

Serve = Callable[..., Broker]
TLS = {"listeners": "SSL://localhost:0"}


@pytest.fixture
def authority(tmp_path: Path) -> TestAuthority:
    return TestAuthority(tmp_path)


@pytest.fixture
def serve(authority: TestAuthority) -> Iterator[Serve]:
    with ExitStack() as stack:

        def start(users: dict[str, str] | None = None, **settings: object) -> Broker:
            given = {"ssl_keystore_type": "PEM", "ssl_keystore_location": authority.keystore(), **settings}
            named = {key.replace("_", "."): value for key, value in given.items()}
            return stack.enter_context(Broker(settings={**TLS, **named}, users=users or {}))

        yield start


def send_and_count(broker: Broker, authority: TestAuthority, topic: str, **keywords: Any) -> int:
    """A large value goes there; the number of topics comes back."""
    settings = {
        "bootstrap_servers": broker.bootstrap_servers,
        "security_protocol": "SSL",
        "ssl_truststore_location": str(authority.ca),
        **keywords,
    }
    with Producer(**settings) as producer:
        producer.send(topic, b"x" * 300_000).result(30)
    with Admin(**settings) as admin:
        return len(admin.list_topics())


def principals(broker: Broker) -> list[str]:
    """Filled with the principals of the requests from now on."""
    found: list[str] = []
    handle = broker.core.handle

    def noted(request: Message, call: Call) -> Any:
        found.append(call.principal)
        return handle(request, call)

    broker.core.handle = noted  # type: ignore[method-assign]
    return found


def test_records_go_through_tls(serve: Serve, authority: TestAuthority) -> None:
    broker = serve()
    found = principals(broker)
    assert send_and_count(broker, authority, "a") == 1
    assert set(found) == {"User:ANONYMOUS"}


def test_the_key_store_may_be_pkcs12_text_or_have_a_password(serve: Serve, authority: TestAuthority) -> None:
    locked = authority.keystore(password=b"open", file="locked.pem")
    pem = authority.keystore().read_text()
    key, _, chain = pem.partition("-----END PRIVATE KEY-----\n")
    for number, settings in enumerate(
        [
            {
                "ssl_keystore_type": "PKCS12",
                "ssl_keystore_location": authority.pkcs12(b"shut"),
                "ssl_keystore_password": "shut",
            },
            {"ssl_keystore_location": locked, "ssl_key_password": "open"},
            {
                "ssl_keystore_location": "",
                "ssl_keystore_key": key + "-----END PRIVATE KEY-----\n",
                "ssl_keystore_certificate_chain": chain,
            },
        ]
    ):
        assert send_and_count(serve(**settings), authority, f"t{number}") == 1


def test_the_name_of_a_clients_certificate_is_its_user(serve: Serve, authority: TestAuthority) -> None:
    broker = serve(
        ssl_client_auth="required",
        ssl_truststore_type="PEM",
        ssl_truststore_location=authority.ca,
        ssl_principal_mapping_rules="RULE:^.*O=trustme.*$/friend/U,DEFAULT",
    )
    found = principals(broker)
    client = authority.keystore("duke.example", file="client.pem")
    send_and_count(broker, authority, "a", ssl_keystore_location=str(client))
    assert set(found) == {"User:FRIEND"}


def test_a_new_certificate_is_used_without_a_restart(serve: Serve, authority: TestAuthority) -> None:
    broker = serve()
    host, port = broker.bootstrap_servers.split(":")
    before = ssl.get_server_certificate((host, int(port)))
    store = authority.keystore()
    broker.call(broker._running()._refresh_tls)
    after = ssl.get_server_certificate((host, int(port)))
    assert after != before
    store.write_text("half of a file")
    broker.call(broker._running()._refresh_tls)
    assert ssl.get_server_certificate((host, int(port))) == after
    other = authority.keystore(file="other.pem")
    broker.call(
        lambda: broker.core.settings.set_dynamic("listener.name.ssl.ssl.keystore.location", str(other))
    )
    assert ssl.get_server_certificate((host, int(port))) not in (before, after)


def test_what_is_no_tls_is_cut_off_and_forgotten(serve: Serve, authority: TestAuthority) -> None:
    broker = serve(max_connections=2)
    host, port = broker.bootstrap_servers.split(":")
    for _ in range(5):
        with socket.create_connection((host, int(port)), 30) as wire:
            wire.sendall(b"\x00\x00\x00\x10this is no hello")
            assert_ended(wire)
    assert send_and_count(broker, authority, "a") == 1
    broker.call(lambda: None)
    [door] = broker._running()._sockets
    assert isinstance(door, TlsDoor)
    assert not door.handshakes


def assert_ended(wire: socket.socket) -> None:
    with suppress(OSError):
        while wire.recv(100):
            pass


def test_a_connection_counts_from_before_its_handshake(serve: Serve) -> None:
    broker = serve(max_connections_per_ip=1)
    host, port = broker.bootstrap_servers.split(":")
    with socket.create_connection((host, int(port)), 30) as first:
        first.sendall(b"\x16")
        with socket.create_connection((host, int(port)), 30) as second:
            assert_ended(second)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "ssl.keystore.location is missing: listener SSL needs"),
        ({"ssl.keystore.location": "/nowhere"}, "ssl.keystore.location=/nowhere cannot be read"),
        ({"ssl.principal.mapping.rules": "CN"}, "ssl.principal.mapping.rules: 'CN' is not a rule"),
        ({"ssl.client.auth": "required"}, "ssl.truststore.location is missing"),
        ({"ssl.cipher.suites": "TLS_NO_WITH_SUCH"}, "ssl.cipher.suites: OpenSSL has none of"),
    ],
)
def test_what_cannot_be_is_refused_at_once(
    authority: TestAuthority, settings: dict[str, str], message: str
) -> None:
    given = {"ssl.keystore.location": str(authority.keystore()), **settings} if settings else {}
    with pytest.raises(InvalidSettings, match=message):
        Broker(settings={**TLS, **given})


def test_clients_cannot_ask_for_one_handshake_after_another(authority: TestAuthority) -> None:
    settings = Settings({"ssl.keystore.location": str(authority.keystore())})
    context, _ = make_context(settings, BrokerListener("SSL", SecurityProtocol.SSL, "localhost", 0))
    assert ssl.OP_NO_RENEGOTIATION in context.options


@pytest.mark.parametrize(
    ("java", "openssl"),
    [
        ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "ECDHE-RSA-AES128-GCM-SHA256"),
        ("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-ECDSA-CHACHA20-POLY1305"),
        ("TLS_DHE_RSA_WITH_AES_256_CBC_SHA", "DHE-RSA-AES256-SHA"),
        ("TLS_RSA_WITH_AES_128_GCM_SHA256", "AES128-GCM-SHA256"),
        ("ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-RSA-AES128-GCM-SHA256"),
    ],
)
def test_cipher_suites_are_known_by_javas_names(java: str, openssl: str) -> None:
    assert openssl_name(java) == openssl


def test_a_password_goes_through_tls(serve: Serve, authority: TestAuthority) -> None:
    broker = serve(
        users={"alice": "secret"},
        listeners="SASL_SSL://localhost:0",
        sasl_enabled_mechanisms="SCRAM-SHA-512",
        ssl_client_auth="required",
    )
    found = principals(broker)
    login = {"sasl_mechanism": "SCRAM-SHA-512", "sasl_username": "alice", "sasl_password": "secret"}
    assert send_and_count(broker, authority, "a", security_protocol="SASL_SSL", **login) == 1
    assert set(found) == {"User:alice", "User:ANONYMOUS"}  # ApiVersions comes before the login
