"""Users that log in with SCRAM: who there is, their passwords (sent salted), and their end."""

import hashlib
import secrets

from headrace.client.admin.call import AdminCall
from headrace.client.admin.results import ScramUser
from headrace.client.errors import ConfigError, ResourceNotFoundError, error_for
from headrace.wire.messages.alter_user_scram_credentials_request import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from headrace.wire.messages.alter_user_scram_credentials_response import AlterUserScramCredentialsResponse
from headrace.wire.messages.describe_user_scram_credentials_request import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from headrace.wire.messages.describe_user_scram_credentials_response import (
    DescribeUserScramCredentialsResponse,
)
from headrace.wire.security import SALT_BITS, SaslMechanism, salt_of

_NUMBERS = {SaslMechanism.SCRAM_SHA_256: 1, SaslMechanism.SCRAM_SHA_512: 2}
_HASHES = {SaslMechanism.SCRAM_SHA_256: "sha256", SaslMechanism.SCRAM_SHA_512: "sha512"}
ITERATIONS_MIN, ITERATIONS_MAX = 4_096, 16_384
"""Kafka's bounds."""


async def list_users(call: AdminCall, names: list[str] | None) -> list[ScramUser]:
    def read(response: DescribeUserScramCredentialsResponse) -> list[ScramUser]:
        if response.error_code:
            raise error_for(response.error_code, response.error_message, about="users")
        found = []
        mechanisms = {number: mechanism.value for mechanism, number in _NUMBERS.items()}
        for result in response.results:
            if result.error_code:
                raise error_for(result.error_code, result.error_message, about=f"user {result.user!r}")
            credentials = {
                mechanisms.get(each.mechanism, str(each.mechanism)): each.iterations
                for each in result.credential_infos
            }
            found.append(ScramUser(name=result.user, credentials=dict(sorted(credentials.items()))))
        return sorted(found, key=lambda user: user.name)

    users = None if names is None else [UserName(name=name) for name in names]
    return await call.ask(DescribeUserScramCredentialsRequest(users=users), read)


async def set_password(call: AdminCall, name: str, password: str, *, mechanism: str, iterations: int) -> None:
    kind = _scram(mechanism)
    if not password:
        raise ConfigError(f"the password of user {name!r} must not be empty")
    if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
        raise ConfigError(f"iterations must be {ITERATIONS_MIN} to {ITERATIONS_MAX}, got {iterations}")
    salt = salt_of(secrets.randbits(SALT_BITS))
    salted = hashlib.pbkdf2_hmac(_HASHES[kind], password.encode(), salt, iterations)
    upsertion = ScramCredentialUpsertion(
        name=name, mechanism=_NUMBERS[kind], iterations=iterations, salt=salt, salted_password=salted
    )
    await _alter(call, name, AlterUserScramCredentialsRequest(upsertions=[upsertion]))


async def delete_user(call: AdminCall, name: str, mechanism: str | None) -> None:
    wanted = [mechanism] if mechanism is not None else list((await list_users(call, [name]))[0].credentials)
    for each in wanted:
        deletion = ScramCredentialDeletion(name=name, mechanism=_NUMBERS[_scram(each)])
        try:
            await _alter(call, name, AlterUserScramCredentialsRequest(deletions=[deletion]))
        except ResourceNotFoundError:
            if mechanism is not None:
                raise


def _scram(mechanism: str) -> SaslMechanism:
    for kind in _NUMBERS:
        if kind.value == mechanism:
            return kind
    raise ConfigError(f"mechanism {mechanism!r} has no users here; expected SCRAM-SHA-256 or SCRAM-SHA-512")


async def _alter(call: AdminCall, name: str, request: AlterUserScramCredentialsRequest) -> None:
    def read(response: AlterUserScramCredentialsResponse) -> None:
        for result in response.results:
            if result.error_code:
                raise error_for(result.error_code, result.error_message, about=f"user {name!r}")

    await call.ask(request, read)
