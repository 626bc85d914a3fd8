"""DescribeAcls (29), v1-v3: the ACLs that match a filter, by resource. Without an authorizer: 54."""

from typing import TYPE_CHECKING

from headrace.broker.call import Call, CloseConnection
from headrace.broker.security.acls import NO_AUTHORIZER
from headrace.wire.acls import Acl, AclFilter, AclOperation, AclPatternType, AclPermission, AclResourceType
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.describe_acls_request import DescribeAclsRequest
from headrace.wire.messages.describe_acls_response import (
    AclDescription,
    DescribeAclsResource,
    DescribeAclsResponse,
)

if TYPE_CHECKING:
    from headrace.broker.core import BrokerCore

VERSIONS = (1, 3)


def handle(core: "BrokerCore", request: DescribeAclsRequest, call: Call) -> DescribeAclsResponse:
    if core.access is None:
        return DescribeAclsResponse(
            error_code=ErrorCode.SECURITY_DISABLED, error_message=f"{NO_AUTHORIZER} on the broker"
        )
    resources: dict[tuple[int, str, int], list[Acl]] = {}
    for acl in core.access.matching(_filter(request)):
        resources.setdefault((acl.resource_type, acl.resource_name, acl.pattern_type), []).append(acl)
    return DescribeAclsResponse(
        resources=[
            DescribeAclsResource(
                resource_type=kind,
                resource_name=name,
                pattern_type=pattern,
                acls=[_description(acl) for acl in acls],
            )
            for (kind, name, pattern), acls in resources.items()
        ],
    )


def _filter(request: DescribeAclsRequest) -> AclFilter:
    wanted = AclFilter(
        AclResourceType(request.resource_type_filter),
        request.resource_name_filter,
        AclPatternType(request.pattern_type_filter),
        request.principal_filter,
        request.host_filter,
        AclOperation(request.operation),
        AclPermission(request.permission_type),
    )
    if 0 in (wanted.resource_type, wanted.pattern_type, wanted.operation, wanted.permission):
        raise CloseConnection(f"a filter of ACLs with unknown elements: {wanted}")
    return wanted


def _description(acl: Acl) -> AclDescription:
    return AclDescription(
        principal=acl.principal, host=acl.host, operation=acl.operation, permission_type=acl.permission
    )
