"""DescribeClientQuotas (48), v0-v1: limits on users, clients and addresses. None can be set here, so none are found."""

from typing import TYPE_CHECKING

from headrace.broker.call import Call
from headrace.wire.messages.describe_client_quotas_request import DescribeClientQuotasRequest
from headrace.wire.messages.describe_client_quotas_response import DescribeClientQuotasResponse

if TYPE_CHECKING:
    from headrace.broker.core import BrokerCore

VERSIONS = (0, 1)


def handle(
    core: "BrokerCore", request: DescribeClientQuotasRequest, call: Call
) -> DescribeClientQuotasResponse:
    return DescribeClientQuotasResponse(error_message="")
