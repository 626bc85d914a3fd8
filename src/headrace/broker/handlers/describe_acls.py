"""DescribeAcls (29), v1-v3: who may do what. There is no access control yet, and the answer says so (54)."""

from typing import TYPE_CHECKING

from headrace.broker.call import Call
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.describe_acls_request import DescribeAclsRequest
from headrace.wire.messages.describe_acls_response import DescribeAclsResponse

if TYPE_CHECKING:
    from headrace.broker.core import BrokerCore

VERSIONS = (1, 3)


def handle(core: "BrokerCore", request: DescribeAclsRequest, call: Call) -> DescribeAclsResponse:
    return DescribeAclsResponse(
        error_code=ErrorCode.SECURITY_DISABLED, error_message="No Authorizer is configured on the broker"
    )


def error_response(
    request: DescribeAclsRequest, code: ErrorCode, message: str | None, call: Call
) -> DescribeAclsResponse:
    return DescribeAclsResponse(error_code=code, error_message=message)
