"""SCRAM credentials as both brokers describe and alter them."""

import hashlib
from collections.abc import Callable
from typing import Any

import pytest

from headrace.wire.errors import ErrorCode
from tests.conformance.security.test_logins import scram, shake_hands
from tests.conformance.wire_client import WireClient

Talk = Callable[[str], WireClient]
SHA_256, SHA_512 = 1, 2


def upsertion(
    name: str, mechanism: int = SHA_256, iterations: int = 4096, password: str = "p"
) -> dict[str, Any]:
    salt = b"grains"
    hashed = "sha256" if mechanism == SHA_256 else "sha512"
    return {
        "name": name,
        "mechanism": mechanism,
        "iterations": iterations,
        "salt": salt,
        "salted_password": hashlib.pbkdf2_hmac(hashed, password.encode(), salt, iterations),
    }


def alter(wire: WireClient, deletions: Any = (), upsertions: Any = ()) -> list[tuple[str, int, str | None]]:
    response = wire.ask(
        "alter_user_scram_credentials", 0, deletions=list(deletions), upsertions=list(upsertions)
    )
    return [(each.user, each.error_code, each.error_message) for each in response.results]


def describe(wire: WireClient, *names: str) -> list[Any]:
    users = [{"name": name} for name in names] or None
    response = wire.ask("describe_user_scram_credentials", 0, users=users)
    assert (response.error_code, response.error_message) == (0, "")
    return [
        (
            each.user,
            each.error_code,
            each.error_message,
            sorted((info.mechanism, info.iterations) for info in each.credential_infos),
        )
        for each in response.results
    ]


def test_a_user_is_added_logs_in_and_is_deleted(talk: Talk, unique: str) -> None:
    wire = talk("PLAINTEXT")
    assert alter(wire, upsertions=[upsertion(unique, SHA_256, 5000)]) == [(unique, 0, None)]
    assert alter(wire, upsertions=[upsertion(unique, SHA_512)]) == [(unique, 0, None)]
    assert describe(wire, unique) == [(unique, 0, "", [(SHA_256, 5000), (SHA_512, 4096)])]
    assert unique in [name for name, *_ in describe(wire)]
    client = talk("SASL")
    shake_hands(client, "SCRAM-SHA-256")
    assert scram(client, "SCRAM-SHA-256", unique, "p").error_code == 0
    assert alter(wire, [{"name": unique, "mechanism": SHA_256}]) == [(unique, 0, None)]
    assert describe(wire, unique) == [(unique, 0, "", [(SHA_512, 4096)])]
    late = talk("SASL")
    shake_hands(late, "SCRAM-SHA-256")
    assert scram(late, "SCRAM-SHA-256", unique, "p").error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


def test_what_is_not_there_or_asked_twice_is_refused_by_name(talk: Talk, unique: str) -> None:
    wire = talk("PLAINTEXT")
    missing = f"Attempt to describe a user credential that does not exist: {unique}"
    assert describe(wire, unique) == [(unique, ErrorCode.RESOURCE_NOT_FOUND, missing, [])]
    twice = f"Cannot describe SCRAM credentials for the same user twice in a single request: {unique}"
    assert describe(wire, unique, unique) == [(unique, ErrorCode.DUPLICATE_RESOURCE, twice, [])]


@pytest.mark.parametrize(
    ("change", "code", "message"),
    [
        ({"iterations": 4095}, ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations"),
        ({"iterations": 16385}, ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations"),
        ({"mechanism": 9}, ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"),
        ({"name": ""}, ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty"),
    ],
)
def test_what_is_no_credential_is_refused(
    talk: Talk, unique: str, change: dict[str, Any], code: ErrorCode, message: str
) -> None:
    asked = {**upsertion(unique), **change}
    assert alter(talk("PLAINTEXT"), upsertions=[asked]) == [(asked["name"], code, message)]


def test_one_credential_of_a_user_is_altered_at_a_time(talk: Talk, unique: str) -> None:
    wire = talk("PLAINTEXT")
    twice = "A user credential cannot be altered twice in the same request"
    asked = [upsertion(unique), upsertion(unique, SHA_512)]
    assert alter(wire, upsertions=asked) == [(unique, ErrorCode.DUPLICATE_RESOURCE, twice)]
    missing = "Attempt to delete a user credential that does not exist"
    deletion = {"name": unique, "mechanism": SHA_256}
    assert alter(wire, [deletion]) == [(unique, ErrorCode.RESOURCE_NOT_FOUND, missing)]
