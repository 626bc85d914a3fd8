"""AlterUserScramCredentials (51), v0: adds, replaces and removes SCRAM credentials, one of each user at a time."""

from typing import TYPE_CHECKING

from headrace.broker.call import Call
from headrace.broker.security.scram import (
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    MECHANISM_NUMBERS,
    credential_of_salted,
)
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages.alter_user_scram_credentials_request import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from headrace.wire.messages.alter_user_scram_credentials_response import (
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from headrace.wire.security import SaslMechanism

if TYPE_CHECKING:
    from headrace.broker.core import BrokerCore

VERSIONS = (0, 0)
_MECHANISMS = {number: mechanism for mechanism, number in MECHANISM_NUMBERS.items()}
TWICE = "A user credential cannot be altered twice in the same request"
Change = ScramCredentialDeletion | ScramCredentialUpsertion


def handle(
    core: "BrokerCore", request: AlterUserScramCredentialsRequest, call: Call
) -> AlterUserScramCredentialsResponse:
    changes: dict[str, Change] = {}
    refusals: dict[str, KafkaError] = {}
    asked: list[Change] = [*request.deletions, *request.upsertions]
    for change in asked:
        if change.name in refusals:
            continue
        try:
            if changes.pop(change.name, None) is not None:
                raise KafkaError(ErrorCode.DUPLICATE_RESOURCE, TWICE)
            _check(core, change)
            changes[change.name] = change
        except KafkaError as error:
            refusals[change.name] = error
    for change in changes.values():
        _apply(core, change)
    results = [AlterUserScramCredentialsResult(user=name, error_message=None) for name in changes]
    results += [
        AlterUserScramCredentialsResult(user=name, error_code=error.code, error_message=error.message)
        for name, error in refusals.items()
    ]
    return AlterUserScramCredentialsResponse(results=results)


def _check(core: "BrokerCore", change: Change) -> None:
    if not change.name:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    if change.mechanism not in _MECHANISMS:
        raise KafkaError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    if isinstance(change, ScramCredentialDeletion):
        if _MECHANISMS[change.mechanism] not in core.users.credentials(change.name):
            text = "Attempt to delete a user credential that does not exist"
            raise KafkaError(ErrorCode.RESOURCE_NOT_FOUND, text)
    elif change.iterations < ITERATIONS_MIN:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
    elif change.iterations > ITERATIONS_MAX:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")


def _apply(core: "BrokerCore", change: Change) -> None:
    mechanism: SaslMechanism = _MECHANISMS[change.mechanism]
    if isinstance(change, ScramCredentialDeletion):
        core.users.set(change.name, mechanism, None)
        return
    credential = credential_of_salted(
        mechanism, bytes(change.salted_password), bytes(change.salt), change.iterations
    )
    core.users.set(change.name, mechanism, credential)


def error_response(
    request: AlterUserScramCredentialsRequest, code: ErrorCode, message: str | None, call: Call
) -> AlterUserScramCredentialsResponse:
    asked: list[Change] = [*request.deletions, *request.upsertions]
    return AlterUserScramCredentialsResponse(
        results=[
            AlterUserScramCredentialsResult(user=name, error_code=code, error_message=message)
            for name in sorted({change.name for change in asked})
        ]
    )
