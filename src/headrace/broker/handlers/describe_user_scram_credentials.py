"""DescribeUserScramCredentials (50), v0: which users log in with SCRAM, and with how many iterations."""

from collections import Counter
from typing import TYPE_CHECKING

from headrace.broker.call import Call
from headrace.broker.security.scram import MECHANISM_NUMBERS
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.describe_user_scram_credentials_request import DescribeUserScramCredentialsRequest
from headrace.wire.messages.describe_user_scram_credentials_response import (
    CredentialInfo,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)

if TYPE_CHECKING:
    from headrace.broker.core import BrokerCore

VERSIONS = (0, 0)


def handle(
    core: "BrokerCore", request: DescribeUserScramCredentialsRequest, call: Call
) -> DescribeUserScramCredentialsResponse:
    asked = Counter([user.name for user in request.users or ()] or core.users.names())
    return DescribeUserScramCredentialsResponse(
        results=[_describe(core, name, times) for name, times in asked.items()]
    )


def _describe(core: "BrokerCore", name: str, times: int) -> DescribeUserScramCredentialsResult:
    if times > 1:
        text = f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
        return _refused(name, ErrorCode.DUPLICATE_RESOURCE, text)
    credentials = core.users.credentials(name)
    if not credentials:
        text = f"Attempt to describe a user credential that does not exist: {name}"
        return _refused(name, ErrorCode.RESOURCE_NOT_FOUND, text)
    return DescribeUserScramCredentialsResult(
        user=name,
        credential_infos=[
            CredentialInfo(mechanism=MECHANISM_NUMBERS[mechanism], iterations=credential.iterations)
            for mechanism, credential in sorted(credentials.items(), key=lambda pair: pair[0].value)
        ],
    )


def _refused(name: str, code: ErrorCode, text: str) -> DescribeUserScramCredentialsResult:
    return DescribeUserScramCredentialsResult(user=name, error_code=code, error_message=text)


def error_response(
    request: DescribeUserScramCredentialsRequest, code: ErrorCode, message: str | None, call: Call
) -> DescribeUserScramCredentialsResponse:
    """As in Kafka, the error is there twice: for the whole request and for every user."""
    return DescribeUserScramCredentialsResponse(
        error_code=code,
        error_message=message,
        results=[
            DescribeUserScramCredentialsResult(user=user.name, error_code=code, error_message=message)
            for user in request.users or ()
        ],
    )
