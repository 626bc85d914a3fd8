"""ApiVersions (18), v0-v5: which APIs and versions we speak, and which features are on.

v3 and later carry features. A feature whose lowest version is 0 may only be listed from v4 on. A request in a version
we do not know is answered in version 0 with error 35 (see connection.py). From v5 on, a client that expected another
broker here is told to bootstrap again (KIP-1242): an address may have passed to another cluster.
"""

from typing import TYPE_CHECKING

from headrace.broker.call import Call
from headrace.broker.handlers import SERVED, served_versions
from headrace.wire.apis import API_VERSIONS
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.api_versions_request import ApiVersionsRequest
from headrace.wire.messages.api_versions_response import (
    ApiVersion,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

if TYPE_CHECKING:
    from headrace.broker.core import BrokerCore

VERSIONS = (0, 5)
PRODUCE = 0


def handle(core: "BrokerCore", request: ApiVersionsRequest, call: Call) -> ApiVersionsResponse:
    if call.api_version >= 3 and not (
        _is_name(request.client_software_name) and _is_name(request.client_software_version)
    ):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
    if _is_meant_for_another(core, request):
        return ApiVersionsResponse(error_code=ErrorCode.REBOOTSTRAP_REQUIRED)
    return response_for(core, call.api_version, ErrorCode.NONE)


def response_for(core: "BrokerCore", version: int, code: ErrorCode) -> ApiVersionsResponse:
    keys = []
    # To a client that asked in a version we do not know, Kafka names the versions of this API alone; it asks again.
    for key in SERVED if code is ErrorCode.NONE else (API_VERSIONS,):
        low, high = served_versions(key) or (0, -1)
        # librdkafka before 2.11 takes a broker without Produce v0 for one that knows no compression, and
        # refuses to produce; Kafka lists versions it does not serve for that reason (KAFKA-18659), and so do we.
        keys.append(ApiVersion(api_key=key, min_version=0 if key == PRODUCE else low, max_version=high))
    known = core.features.by_name
    return ApiVersionsResponse(
        error_code=code,
        api_keys=keys,
        supported_features=[
            SupportedFeatureKey(name=name, min_version=feature.lowest, max_version=feature.highest)
            for name, feature in known.items()
            if version >= 4 or feature.lowest > 0
        ],
        finalized_features_epoch=0,
        finalized_features=[
            FinalizedFeatureKey(name=name, min_version_level=feature.level, max_version_level=feature.level)
            for name, feature in known.items()
            if feature.level > 0
        ],
    )


def _is_meant_for_another(core: "BrokerCore", request: ApiVersionsRequest) -> bool:
    """A client gives both or, before it knows them, neither. The fields have their defaults before v5."""
    if request.cluster_id is None or request.node_id < 0:
        return False
    return (request.cluster_id, request.node_id) != (core.cluster_id, core.node_id)


def _is_name(text: str) -> bool:
    """KIP-511: letters, digits, dots and hyphens, beginning and ending with a letter or digit."""
    return (
        bool(text)
        and all(part.isalnum() or part in ".-" for part in text)
        and text[0].isalnum()
        and text[-1].isalnum()
    )
