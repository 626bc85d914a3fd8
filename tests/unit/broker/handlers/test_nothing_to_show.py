"""APIs whose truthful answer is that there is none: reassignments, quotas, access control."""

from headrace.wire.errors import ErrorCode
from headrace.wire.messages.describe_acls_request import DescribeAclsRequest
from headrace.wire.messages.describe_acls_response import DescribeAclsResponse
from headrace.wire.messages.describe_client_quotas_request import DescribeClientQuotasRequest
from headrace.wire.messages.describe_client_quotas_response import DescribeClientQuotasResponse
from headrace.wire.messages.list_partition_reassignments_request import ListPartitionReassignmentsRequest
from headrace.wire.messages.list_partition_reassignments_response import ListPartitionReassignmentsResponse


def test_no_partition_is_on_its_way_elsewhere(admin):
    response = admin.ask(ListPartitionReassignmentsRequest(), ListPartitionReassignmentsResponse)
    assert (response.error_code, response.topics) == (0, ())


def test_there_are_no_client_quotas(admin):
    response = admin.ask(DescribeClientQuotasRequest(), DescribeClientQuotasResponse)
    assert (response.error_code, response.entries) == (0, ())


def test_access_control_is_said_to_be_off(admin):
    response = admin.ask(DescribeAclsRequest(), DescribeAclsResponse)
    assert (response.error_code, response.error_message) == (
        ErrorCode.SECURITY_DISABLED,
        "No Authorizer is configured on the broker",
    )
