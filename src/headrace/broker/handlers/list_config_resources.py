"""ListConfigResources (74), v0-v1: the names of things that can have settings.

v0 lists client metrics subscriptions alone, of which there are none here. v1 takes types, all of them when it
names none; of groups it lists those that have settings of their own.
"""

from typing import TYPE_CHECKING

from headrace.broker import client_metrics
from headrace.broker.call import Call
from headrace.wire.enums import ConfigResourceType
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages.list_config_resources_request import ListConfigResourcesRequest
from headrace.wire.messages.list_config_resources_response import ConfigResource, ListConfigResourcesResponse

if TYPE_CHECKING:
    from headrace.broker.core import BrokerCore

VERSIONS = (0, 1)


def handle(
    core: "BrokerCore", request: ListConfigResourcesRequest, call: Call
) -> ListConfigResourcesResponse:
    supported = (ConfigResourceType.CLIENT_METRICS,) if call.api_version == 0 else tuple(ConfigResourceType)
    asked = set(request.resource_types) or set(supported)
    if not asked <= set(supported):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    names = {
        ConfigResourceType.GROUP: core.settings.groups_with_overrides(),
        ConfigResourceType.CLIENT_METRICS: client_metrics.names(core),
        ConfigResourceType.BROKER_LOGGER: [str(core.node_id)],
        ConfigResourceType.BROKER: [str(core.node_id)],
        ConfigResourceType.TOPIC: [topic.name for topic in core.topics],
    }
    return ListConfigResourcesResponse(
        config_resources=[
            ConfigResource(resource_name=name, resource_type=kind)
            for kind, found in names.items()
            if kind in asked
            for name in found
        ]
    )
