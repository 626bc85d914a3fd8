"""DescribeCluster (60), v0-v2: the cluster's id and its brokers, which is this one.

v1 can ask for controllers' endpoints instead; this is a broker's endpoint, so that is refused with 114.
"""

from typing import TYPE_CHECKING

from headrace.broker.call import Call
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages.describe_cluster_request import DescribeClusterRequest
from headrace.wire.messages.describe_cluster_response import DescribeClusterBroker, DescribeClusterResponse

if TYPE_CHECKING:
    from headrace.broker.core import BrokerCore

VERSIONS = (0, 2)
NOT_ASKED = -(2**31)
CLUSTER_OPERATIONS = sum(1 << operation for operation in (5, 7, 8, 9, 10, 11, 12))
"""All that can be done to a cluster, as a bit field of operation codes: without access control everybody may."""
BROKERS, CONTROLLERS = 1, 2


def handle(core: "BrokerCore", request: DescribeClusterRequest, call: Call) -> DescribeClusterResponse:
    if request.endpoint_type == CONTROLLERS:
        raise KafkaError(
            ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER",
        )
    if request.endpoint_type != BROKERS:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"Unsupported endpoint type {request.endpoint_type}"
        )
    host, port = core.address_of(call.listener)
    return DescribeClusterResponse(
        cluster_id=core.cluster_id,
        controller_id=core.node_id,
        brokers=[DescribeClusterBroker(broker_id=core.node_id, host=host, port=port, rack=core.rack)],
        cluster_authorized_operations=(
            CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else NOT_ASKED
        ),
    )
