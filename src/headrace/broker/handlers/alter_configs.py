"""AlterConfigs (33), v0-v2: the old way to alter settings. What the request does not name falls back to its default."""

from typing import TYPE_CHECKING

from headrace.broker.call import Call
from headrace.broker.configs import alter, repeated, require_values
from headrace.wire.enums import ConfigResourceType
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages.alter_configs_request import AlterConfigsRequest, AlterConfigsResource
from headrace.wire.messages.alter_configs_response import AlterConfigsResourceResponse, AlterConfigsResponse

if TYPE_CHECKING:
    from headrace.broker.core import BrokerCore

VERSIONS = (0, 2)


def handle(core: "BrokerCore", request: AlterConfigsRequest, call: Call) -> AlterConfigsResponse:
    twice = repeated((resource.resource_type, resource.resource_name) for resource in request.resources)
    return AlterConfigsResponse(
        responses=[
            _attempt(
                core,
                resource,
                (resource.resource_type, resource.resource_name) in twice,
                validate_only=request.validate_only,
            )
            for resource in request.resources
        ]
    )


def _attempt(
    core: "BrokerCore", resource: AlterConfigsResource, is_repeated: bool, *, validate_only: bool
) -> AlterConfigsResourceResponse:
    try:
        if is_repeated:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
        require_values((config.name, config.value) for config in resource.configs)
        if resource.resource_type == ConfigResourceType.BROKER_LOGGER:
            # Loggers came with IncrementalAlterConfigs; this API never knew them.
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown resource type {resource.resource_type}")
        texts = {config.name: config.value or "" for config in resource.configs}
        alter(core, resource.resource_type, resource.resource_name, texts, validate_only=validate_only)
    except KafkaError as error:
        return _response(resource, error.code, error.message)
    return _response(resource, ErrorCode.NONE, None)


def _response(
    resource: AlterConfigsResource, code: ErrorCode, message: str | None
) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(
        error_code=code,
        error_message=message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )
