"""ApiVersions (18), v0-v4: which APIs and versions we speak, and which features are on.

v3 and later carry features. A feature whose lowest version is 0 may only be listed from v4 on. A request in a version
we do not know is answered in version 0 with error 35 (see connection.py).
"""

from typing import TYPE_CHECKING

from headrace.broker.call import Call
from headrace.broker.features import features
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

VERSIONS = (0, 4)
PRODUCE = 0


def handle(core: "BrokerCore", request: ApiVersionsRequest, call: Call) -> ApiVersionsResponse:
    if call.api_version >= 3 and not (
        _is_name(request.client_software_name) and _is_name(request.client_software_version)
    ):
        return error_response(request, ErrorCode.INVALID_REQUEST, None, call)
    return response_for(core, call.api_version, ErrorCode.NONE)


def response_for(core: "BrokerCore", version: int, code: ErrorCode) -> ApiVersionsResponse:
    keys = []
    # To a client that asked in a version we do not know, Kafka names the versions of this API alone; it asks again.
    for key in SERVED if code is ErrorCode.NONE else (API_VERSIONS,):
        low, high = served_versions(key) or (0, -1)
        # librdkafka before 2.11 takes a broker without Produce v0 for one that knows no compression, and
        # refuses to produce; Kafka lists versions it does not serve for that reason (KAFKA-18659), and so do we.
        keys.append(ApiVersion(api_key=key, min_version=0 if key == PRODUCE else low, max_version=high))
    known = features(core.settings)
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


def _is_name(text: str) -> bool:
    """KIP-511: letters, digits, dots and hyphens, beginning and ending with a letter or digit."""
    return (
        bool(text)
        and all(part.isalnum() or part in ".-" for part in text)
        and text[0].isalnum()
        and text[-1].isalnum()
    )


def error_response(
    request: ApiVersionsRequest, code: ErrorCode, message: str | None, call: Call
) -> ApiVersionsResponse:
    return ApiVersionsResponse(error_code=code)
