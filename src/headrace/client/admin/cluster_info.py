"""The cluster itself: its brokers, and which features are switched on."""

from headrace.client.admin.call import AdminCall
from headrace.client.admin.results import ClusterDescription, Features, known
from headrace.client.cluster import Node
from headrace.client.errors import error_for
from headrace.version import __version__
from headrace.wire.messages.api_versions_request import ApiVersionsRequest
from headrace.wire.messages.api_versions_response import ApiVersionsResponse
from headrace.wire.messages.describe_cluster_request import DescribeClusterRequest
from headrace.wire.messages.describe_cluster_response import DescribeClusterResponse


async def describe_cluster(call: AdminCall) -> ClusterDescription:
    def read(response: DescribeClusterResponse) -> ClusterDescription:
        if response.error_code:
            raise error_for(response.error_code, response.error_message, about="cluster")
        nodes = {one.broker_id: Node(one.broker_id, one.host, one.port, one.rack) for one in response.brokers}
        return ClusterDescription(
            response.cluster_id,
            nodes.get(response.controller_id),
            tuple(node for _, node in sorted(nodes.items())),
        )

    return await call.ask(DescribeClusterRequest(), read)


async def describe_features(call: AdminCall) -> Features:
    def read(response: ApiVersionsResponse) -> Features:
        if response.error_code:
            raise error_for(response.error_code, about="features")
        return Features(
            finalized={one.name: one.max_version_level for one in response.finalized_features},
            supported={one.name: (one.min_version, one.max_version) for one in response.supported_features},
            epoch=known(response.finalized_features_epoch),
        )

    request = ApiVersionsRequest(client_software_name="headrace", client_software_version=__version__)
    return await call.ask(request, read)
