"""DeleteAcls (31), v1-v3: deletes the ACLs that match filters, and names them; answered when that is durable.

Without an authorizer: 54.
"""

from typing import TYPE_CHECKING

from headrace.broker.call import Call, CloseConnection
from headrace.broker.security.acls import NO_AUTHORIZER
from headrace.wire.acls import Acl, AclFilter, AclOperation, AclPatternType, AclPermission, AclResourceType
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages.delete_acls_request import DeleteAclsFilter, DeleteAclsRequest
from headrace.wire.messages.delete_acls_response import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsResponse,
)

if TYPE_CHECKING:
    from headrace.broker.core import BrokerCore

VERSIONS = (1, 3)


def handle(core: "BrokerCore", request: DeleteAclsRequest, call: Call) -> DeleteAclsResponse:
    if core.access is None:
        raise KafkaError(ErrorCode.SECURITY_DISABLED, f"{NO_AUTHORIZER}.")
    deleted = core.access.delete([_filter(asked) for asked in request.filters])
    return DeleteAclsResponse(
        filter_results=[
            DeleteAclsFilterResult(error_message=None, matching_acls=[_matching(acl) for acl in acls])
            for acls in deleted
        ]
    )


def _filter(asked: DeleteAclsFilter) -> AclFilter:
    wanted = AclFilter(
        AclResourceType(asked.resource_type_filter),
        asked.resource_name_filter,
        AclPatternType(asked.pattern_type_filter),
        asked.principal_filter,
        asked.host_filter,
        AclOperation(asked.operation),
        AclPermission(asked.permission_type),
    )
    if 0 in (wanted.resource_type, wanted.pattern_type, wanted.operation, wanted.permission):
        raise CloseConnection(f"a filter of ACLs with unknown elements: {wanted}")
    return wanted


def _matching(acl: Acl) -> DeleteAclsMatchingAcl:
    return DeleteAclsMatchingAcl(
        error_message=None,
        resource_type=acl.resource_type,
        resource_name=acl.resource_name,
        pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )


def error_response(
    request: DeleteAclsRequest, code: ErrorCode, message: str | None, call: Call
) -> DeleteAclsResponse:
    """One for each filter, in their order: nothing in the response says which one is meant."""
    return DeleteAclsResponse(
        filter_results=[
            DeleteAclsFilterResult(error_code=code, error_message=message) for _ in request.filters
        ]
    )
