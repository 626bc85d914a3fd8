"""SASL as both brokers speak it: the order of the requests, what is refused and how."""

from collections.abc import Callable
from typing import Any

import pytest

from headrace.client.security import Scram
from headrace.wire.errors import ErrorCode
from tests.conformance.security.conftest import PASSWORD, REAUTHENTICATE_MS, SecuredBroker
from tests.conformance.wire_client import WireClient

Talk = Callable[[str], WireClient]
MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]


def shake_hands(wire: WireClient, mechanism: str = "PLAIN", version: int = 1) -> Any:
    return wire.ask("sasl_handshake", version, mechanism=mechanism)


def plain(wire: WireClient, name: str = "alice", password: str = PASSWORD, version: int = 2) -> Any:
    return wire.ask("sasl_authenticate", version, auth_bytes=f"\0{name}\0{password}".encode())


def log_in(wire: WireClient, mechanism: str = "PLAIN") -> Any:
    assert shake_hands(wire, mechanism).error_code == 0
    if mechanism == "PLAIN":
        return plain(wire)
    return scram(wire, mechanism)


def scram(wire: WireClient, mechanism: str, name: str = "alice", password: str = PASSWORD) -> Any:
    client = Scram("sha256" if mechanism.endswith("256") else "sha512", name, password)
    first = wire.ask("sasl_authenticate", 2, auth_bytes=client.first())
    if first.error_code:
        return first
    last = wire.ask("sasl_authenticate", 2, auth_bytes=client.final(first.auth_bytes))
    if not last.error_code:
        client.verify(last.auth_bytes)
    return last


def is_closed(wire: WireClient) -> bool:
    return wire.receive_frame() is None


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_who_has_logged_in_is_served_and_told_the_address_of_the_listener(
    secured: SecuredBroker, talk: Talk, mechanism: str
) -> None:
    wire = talk("SASL")
    assert wire.ask("api_versions", 3, client_software_name="a", client_software_version="1").error_code == 0
    logged_in = log_in(wire, mechanism)
    assert (logged_in.error_code, logged_in.error_message, logged_in.session_lifetime_ms) == (0, "", 0)
    [node] = wire.ask("metadata", 12, topics=[]).brokers
    assert f"{node.host}:{node.port}" == secured.address_of("SASL")


@pytest.mark.parametrize("api", ["metadata", "list_groups", "sasl_authenticate"])
def test_another_request_before_the_handshake_ends_the_connection(talk: Talk, api: str) -> None:
    wire = talk("SASL")
    wire.post_ask(api, 1)
    assert is_closed(wire)


def test_another_request_during_the_login_is_refused(talk: Talk) -> None:
    wire = talk("SASL")
    shake_hands(wire)
    assert wire.ask("list_groups", 4).error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert is_closed(wire)


def test_a_second_list_of_versions_before_the_handshake_ends_the_connection(talk: Talk) -> None:
    wire = talk("SASL")
    wire.ask("api_versions", 0)
    wire.post_ask("api_versions", 0)
    assert is_closed(wire)


def test_a_list_of_versions_in_a_version_from_the_future_may_be_asked_for_again(talk: Talk) -> None:
    wire = talk("SASL")
    wire.send_frame(b"\x00\x12\x00\x63\x00\x00\x00\x07\xff\xff\x00")
    assert wire.receive_frame() is not None
    wire.ask("api_versions", 0)
    assert log_in(wire).error_code == 0


def test_an_unknown_mechanism_is_refused_with_those_that_are_offered(talk: Talk) -> None:
    wire = talk("SASL")
    refused = shake_hands(wire, "OAUTHBEARER")
    assert refused.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert sorted(refused.mechanisms) == MECHANISMS
    assert is_closed(wire)


@pytest.mark.parametrize(
    ("name", "password", "message"),
    [
        ("alice", "wrong", "Authentication failed: Invalid username or password"),
        ("nobody", PASSWORD, "Authentication failed: Invalid username or password"),
        ("", PASSWORD, "Authentication failed: username not specified"),
        ("alice", "", "Authentication failed: password not specified"),
        ("alice", "a\0b", "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
    ],
)
def test_a_wrong_password_is_refused(talk: Talk, name: str, password: str, message: str) -> None:
    wire = talk("SASL")
    shake_hands(wire)
    refused = plain(wire, name, password)
    assert (refused.error_code, refused.error_message) == (ErrorCode.SASL_AUTHENTICATION_FAILED, message)
    assert is_closed(wire)


@pytest.mark.parametrize("mechanism", MECHANISMS[1:])
@pytest.mark.parametrize(("name", "password"), [("alice", "wrong"), ("nobody", PASSWORD)])
def test_a_wrong_proof_is_refused_without_a_word_about_users(
    talk: Talk, mechanism: str, name: str, password: str
) -> None:
    wire = talk("SASL")
    shake_hands(wire, mechanism)
    refused = scram(wire, mechanism, name, password)
    assert refused.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert refused.error_message == (
        f"Authentication failed during authentication due to invalid credentials with SASL mechanism {mechanism}"
    )
    assert is_closed(wire)


def test_after_a_handshake_of_version_0_tokens_come_bare(talk: Talk) -> None:
    wire = talk("SASL")
    shake_hands(wire, version=0)
    wire.send_frame(f"\0alice\0{PASSWORD}".encode())
    assert wire.receive_frame() == b""
    assert wire.ask("list_groups", 4).error_code == 0


def test_a_bare_token_that_is_wrong_ends_the_connection(talk: Talk) -> None:
    wire = talk("SASL")
    shake_hands(wire, version=0)
    wire.send_frame(b"\0alice\0wrong")
    assert is_closed(wire)


def test_a_large_request_before_the_login_ends_the_connection(talk: Talk) -> None:
    wire = talk("SASL")
    wire.send_bytes((600 * 1024).to_bytes(4, "big"))
    assert is_closed(wire)


@pytest.mark.parametrize("listener", ["SASL", "PLAINTEXT"])
def test_a_login_where_none_is_expected_is_refused(talk: Talk, listener: str) -> None:
    wire = talk(listener)
    if listener == "SASL":
        log_in(wire)
    refused = shake_hands(wire)
    assert (refused.error_code, list(refused.mechanisms)) == (ErrorCode.ILLEGAL_SASL_STATE, [])
    refused = plain(wire)
    assert refused.error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert refused.error_message == "SaslAuthenticate request received after successful authentication"
    assert wire.ask("list_groups", 4).error_code == 0


def test_a_login_with_an_end_says_so_and_can_be_renewed(talk: Talk) -> None:
    wire = talk("SHORT")
    assert log_in(wire).session_lifetime_ms == REAUTHENTICATE_MS
    assert wire.ask("list_groups", 4).error_code == 0
    assert log_in(wire).session_lifetime_ms == REAUTHENTICATE_MS
    assert wire.ask("list_groups", 4).error_code == 0


def test_a_renewed_login_cannot_change_who_it_is(talk: Talk) -> None:
    wire = talk("SHORT")
    log_in(wire)
    shake_hands(wire)
    refused = plain(wire, "bob", "b")
    assert refused.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert (
        refused.error_message == "Cannot change principals during re-authentication from User.alice: User.bob"
    )
    assert is_closed(wire)


def test_a_renewed_login_cannot_change_its_mechanism(talk: Talk) -> None:
    wire = talk("SHORT")
    log_in(wire)
    assert shake_hands(wire, "SCRAM-SHA-256").error_code == 0
    wire.post_ask("sasl_authenticate", 2, auth_bytes=b"n,,n=alice,r=abc")
    frame = wire.receive_frame()
    assert frame is None or b"re-authentication" in frame
