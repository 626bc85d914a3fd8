"""Logins of a broker's listeners: what is checked at start, and how a login ends."""

import stat
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace import Broker
from headrace.broker.security.sasl import connection
from headrace.broker.settings import InvalidSettings
from tests.conformance.security.test_logins import is_closed, log_in
from tests.conformance.steps import wait_for
from tests.conformance.wire_client import WireClient

JAAS = "org.apache.kafka.common.security"
PLAIN = f'{JAAS}.plain.PlainLoginModule required user_alice="a secret";'
LISTENER = {"listeners": "SASL_PLAINTEXT://127.0.0.1:0"}
PREFIX = "listener.name.sasl_plaintext"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {},
            r"=GSSAPI: GSSAPI \(Kerberos\), which is Kafka's default, is not supported; remove it for listener "
            f"SASL_PLAINTEXT: set {PREFIX}.sasl.enabled.mechanisms=SCRAM-SHA-512",
        ),
        (
            {"sasl.enabled.mechanisms": "GSSAPI,PLAIN"},
            r"=GSSAPI,PLAIN: GSSAPI \(Kerberos\) is not supported; remove it for listener SASL_PLAINTEXT: set "
            f"{PREFIX}.sasl.enabled.mechanisms=PLAIN$",
        ),
        (
            {f"{PREFIX}.sasl.enabled.mechanisms": ""},
            f"listener SASL_PLAINTEXT has no mechanism, so nobody could log in; set {PREFIX}",
        ),
        ({"sasl.enabled.mechanisms": "PLAIN"}, f"{PREFIX}.plain.sasl.jaas.config is missing"),
        (
            {"sasl.enabled.mechanisms": "PLAIN", f"{PREFIX}.plain.sasl.jaas.config": "geheim"},
            f"{PREFIX}.plain.sasl.jaas.config: not a JAAS line",
        ),
        (
            {
                "sasl.enabled.mechanisms": "SCRAM-SHA-256",
                f"{PREFIX}.scram-sha-256.sasl.jaas.config": PLAIN,
            },
            "names PlainLoginModule; SCRAM-SHA-256 needs ScramLoginModule",
        ),
    ],
)
def test_a_listener_on_which_nobody_could_log_in_is_refused(settings: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidSettings, match=message) as refused:
        Broker(settings={**LISTENER, **settings})
    assert "geheim" not in str(refused.value)


@pytest.fixture
def broker() -> Iterator[Broker]:
    settings = {
        **LISTENER,
        "sasl.enabled.mechanisms": "PLAIN",
        f"{PREFIX}.plain.sasl.jaas.config": PLAIN,
        "connections.max.reauth.ms": 60_000,
        "connection.failed.authentication.delay.ms": 3_600_000,
    }
    with Broker(settings=settings) as running:
        yield running


def test_a_login_that_was_not_renewed_ends_the_connection(broker: Broker) -> None:
    with WireClient(broker.bootstrap_servers) as wire:
        assert log_in(wire).session_lifetime_ms == 60_000
        broker.advance(59)
        assert log_in(wire).session_lifetime_ms == 60_000
        broker.advance(59)
        assert wire.ask("list_groups", 4).error_code == 0
        broker.advance(2)
        wire.post_ask("list_groups", 4)
        assert is_closed(wire)


def test_a_failed_login_is_answered_late(broker: Broker) -> None:
    with WireClient(broker.bootstrap_servers) as wire:
        wire.ask("sasl_handshake", 1, mechanism="PLAIN")
        wire.post_ask("sasl_authenticate", 2, auth_bytes=b"\0alice\0wrong")
        wire.post_ask(
            "sasl_authenticate", 2, auth_bytes=b"\0alice\0a secret"
        )  # too late: nothing more is read
        with WireClient(broker.bootstrap_servers) as other:
            assert log_in(other).error_code == 0  # the failure is known by now, and has not been answered
        broker.advance(3601)
        assert wire.receive().error_code == 58
        assert is_closed(wire)


def test_a_large_request_in_place_of_a_token_is_not_answered(broker: Broker) -> None:
    with WireClient(broker.bootstrap_servers) as wire:
        wire.ask("sasl_handshake", 1, mechanism="PLAIN")
        wire.post_ask("describe_groups", 5, groups=[""] * 10_000)
        with WireClient(broker.bootstrap_servers) as other:
            assert log_in(other).error_code == 0  # the failure is known by now
        broker.advance(3601)
        assert is_closed(wire)


def test_a_long_name_does_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    settings = {**LISTENER, "sasl.enabled.mechanisms": "SCRAM-SHA-256"}
    with (
        caplog.at_level("INFO", "headrace.broker"),
        Broker(settings=settings) as scram,
        WireClient(scram.bootstrap_servers) as wire,
    ):
        wire.ask("sasl_handshake", 1, mechanism="SCRAM-SHA-256")
        first = f"n,,n={'x' * 100_000},r=nonce".encode()
        nonce = wire.ask("sasl_authenticate", 2, auth_bytes=first).auth_bytes.split(b",")[0]
        refused = wire.ask("sasl_authenticate", 2, auth_bytes=b"c=biws," + nonce + b",p=AAAA")
        assert refused.error_code == 58
    (line,) = (text for text in caplog.messages if text.startswith("login failed"))
    assert len(line) < 1000


def test_passwords_are_not_described(broker: Broker) -> None:
    with WireClient(broker.bootstrap_servers) as wire:
        log_in(wire)
        [result] = wire.ask(
            "describe_configs",
            4,
            resources=[{"resource_type": 4, "resource_name": "1"}],
            include_synonyms=True,
        ).results
    [line] = [each for each in result.configs if each.name.endswith("plain.sasl.jaas.config")]
    assert (line.value, line.is_sensitive) == (None, True)
    assert [each.value for each in line.synonyms] == [None]


def test_the_data_directory_is_private(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    with Broker(data_dir=folder):
        found = {
            path: stat.S_IMODE(path.stat().st_mode) for path in [folder, *folder.rglob("*")] if path.exists()
        }
    assert found[folder] == 0o700
    assert {path.name: oct(mode) for path, mode in found.items() if path.is_file() and mode & 0o077} == {}


def alter(wire: WireClient, name: str, value: str, *, validate_only: bool = False) -> tuple[int, str | None]:
    change = {"name": name, "config_operation": 0, "value": value}
    [result] = wire.ask(
        "incremental_alter_configs",
        1,
        resources=[{"resource_type": 4, "resource_name": "1", "configs": [change]}],
        validate_only=validate_only,
    ).responses
    return result.error_code, result.error_message


@pytest.mark.parametrize("validate_only", [False, True])
@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        (f"{PREFIX}.plain.sasl.jaas.config", "geheim", "not a JAAS line"),
        (f"{PREFIX}.sasl.enabled.mechanisms", "PLAIN,OAUTHBEARER", "jwks.endpoint.url is missing"),
        (
            f"{PREFIX}.sasl.enabled.mechanisms",
            "GSSAPI",
            "GSSAPI (Kerberos), which is Kafka's default, is not",
        ),
        ("listener.security.protocol.map", "SASL_PLAINTEXT:PLAINTEXT", "existing listener SASL_PLAINTEXT"),
    ],
)
def test_a_change_that_would_lock_everybody_out_or_let_everybody_in_is_refused(
    broker: Broker, name: str, value: str, message: str, validate_only: bool
) -> None:
    with WireClient(broker.bootstrap_servers) as wire:
        log_in(wire)
        code, text = alter(wire, name, value, validate_only=validate_only)
        assert code == 42
        assert message in (text or "")
        assert "geheim" not in (text or "")
    with WireClient(broker.bootstrap_servers) as wire:
        assert log_in(wire).error_code == 0


def test_a_users_password_is_altered_on_the_running_broker(broker: Broker) -> None:
    with WireClient(broker.bootstrap_servers) as wire:
        log_in(wire)
        line = f'{JAAS}.plain.PlainLoginModule required user_bob="his";'
        assert alter(wire, f"{PREFIX}.plain.sasl.jaas.config", line) == (0, None)
    with WireClient(broker.bootstrap_servers) as wire:
        wire.ask("sasl_handshake", 1, mechanism="PLAIN")
        assert wire.ask("sasl_authenticate", 2, auth_bytes=b"\0bob\0his").error_code == 0


def test_who_takes_too_long_to_log_in_is_cut_off(broker: Broker) -> None:
    server = broker._running()
    with WireClient(broker.bootstrap_servers) as slow, WireClient(broker.bootstrap_servers) as known:
        log_in(known)
        slow.ask("api_versions", 0)

        def time_passes() -> None:
            for connection in server._connections.values():
                if connection.known_by_s is not None:
                    connection.known_by_s = server.loop.time() - 1
            server._watch_idle()

        broker.call(time_passes)
        assert is_closed(slow)
        assert known.ask("list_groups", 4).error_code == 0


def test_what_strangers_send_is_bounded_for_all_of_them_and_logins_go_on(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def held() -> int:
        server = broker._running()
        return broker.call(lambda: server.held_for_unknown)

    monkeypatch.setattr(connection, "HELD_BYTES_MAX", 500_000)
    part = struct.pack(">i", 400_000) + bytes(300_000)
    with WireClient(broker.bootstrap_servers) as first, WireClient(broker.bootstrap_servers) as second:
        first.send_bytes(part)
        assert wait_for(lambda: held() == len(part))
        second.send_bytes(part)
        assert is_cut_off(second)
        with WireClient(broker.bootstrap_servers) as known:
            assert log_in(known).error_code == 0
            assert held() == len(part)
    assert wait_for(lambda: held() == 0)


def is_cut_off(wire: WireClient) -> bool:
    try:
        return is_closed(wire)
    except ConnectionResetError:  # closed before all of it was read
        return True
