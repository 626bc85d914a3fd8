"""CreateAcls (30), v1-v3: new ACLs, in force at once; answered when they are durable.

Entries stand or fall one by one: 42 for one that no resource can have. One that is there already is fine. Without an
authorizer: 54.
"""

from typing import TYPE_CHECKING

from headrace.broker.call import Call, CloseConnection
from headrace.broker.security.acls import NO_AUTHORIZER, check_new
from headrace.wire.acls import Acl, acl_of
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages.create_acls_request import AclCreation, CreateAclsRequest
from headrace.wire.messages.create_acls_response import AclCreationResult, CreateAclsResponse

if TYPE_CHECKING:
    from headrace.broker.core import BrokerCore

VERSIONS = (1, 3)


def handle(core: "BrokerCore", request: CreateAclsRequest, call: Call) -> CreateAclsResponse:
    if core.access is None:
        raise KafkaError(ErrorCode.SECURITY_DISABLED, f"{NO_AUTHORIZER}.")
    acls = [_acl(creation) for creation in request.creations]
    valid: list[Acl] = []
    results: list[AclCreationResult] = []
    for acl in acls:
        try:
            check_new(acl)
        except KafkaError as error:
            results.append(AclCreationResult(error_code=error.code, error_message=error.message))
            continue
        valid.append(acl)
        results.append(AclCreationResult())
    core.access.create(valid)
    return CreateAclsResponse(results=results)


def _acl(creation: AclCreation) -> Acl:
    if 0 in (
        creation.resource_type,
        creation.resource_pattern_type,
        creation.operation,
        creation.permission_type,
    ):
        raise CloseConnection(f"an ACL with unknown elements: {creation}")
    return acl_of(
        creation.resource_type,
        creation.resource_name,
        creation.resource_pattern_type,
        creation.principal,
        creation.host,
        creation.operation,
        creation.permission_type,
    )


def error_response(
    request: CreateAclsRequest, code: ErrorCode, message: str | None, call: Call
) -> CreateAclsResponse:
    """One for each entry, in their order: nothing in the response says which one is meant."""
    return CreateAclsResponse(
        results=[AclCreationResult(error_code=code, error_message=message) for _ in request.creations]
    )
