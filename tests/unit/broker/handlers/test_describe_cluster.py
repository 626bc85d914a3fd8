"""DescribeCluster: one broker, which also answers for the controller."""

import pytest

from headrace.wire.errors import ErrorCode
from headrace.wire.messages.describe_cluster_request import DescribeClusterRequest
from headrace.wire.messages.describe_cluster_response import DescribeClusterBroker, DescribeClusterResponse


def test_the_cluster_is_this_broker(admin):
    response = admin.ask(DescribeClusterRequest(), DescribeClusterResponse)
    assert response == DescribeClusterResponse(
        cluster_id=admin.cluster_id,
        controller_id=1,
        brokers=[DescribeClusterBroker(broker_id=1, host="localhost", port=9092)],
    )


def test_without_access_control_everybody_may_do_everything(admin):
    request = DescribeClusterRequest(include_cluster_authorized_operations=True)
    # create, alter, describe, cluster action, describe and alter configs, idempotent write
    assert admin.ask(request, DescribeClusterResponse).cluster_authorized_operations == 8096


@pytest.mark.parametrize(
    ("kind", "code"), [(2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (9, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)]
)
def test_other_endpoints_are_refused(admin, kind, code):
    response = admin.ask(DescribeClusterRequest(endpoint_type=kind), DescribeClusterResponse)
    assert response.error_code == code
    assert not response.brokers
