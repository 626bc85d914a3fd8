"""IncrementalAlterConfigs (44), v0-v1: sets, deletes, appends to or subtracts from single settings of a resource.

A resource's changes are made together or not at all; resources are answered one by one. With `validate_only`
nothing changes. Loggers (resource type 8) take levels, which last until the broker stops.
"""

from typing import TYPE_CHECKING

from headrace.broker import loggers
from headrace.broker.call import Call
from headrace.broker.configs import (
    alter,
    altered,
    overrides_of,
    repeated,
    require_logger_node,
    require_values,
)
from headrace.wire.enums import AlterOperation, ConfigResourceType
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages.incremental_alter_configs_request import (
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from headrace.wire.messages.incremental_alter_configs_response import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)

if TYPE_CHECKING:
    from headrace.broker.core import BrokerCore

VERSIONS = (0, 1)


def handle(
    core: "BrokerCore", request: IncrementalAlterConfigsRequest, call: Call
) -> IncrementalAlterConfigsResponse:
    twice = repeated((resource.resource_type, resource.resource_name) for resource in request.resources)
    return IncrementalAlterConfigsResponse(
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
        _alter(core, resource, validate_only=validate_only)
    except KafkaError as error:
        return _response(resource, error.code, error.message)
    return _response(resource, ErrorCode.NONE, None)


def _alter(core: "BrokerCore", resource: AlterConfigsResource, *, validate_only: bool) -> None:
    require_values(
        (config.name, "" if config.config_operation == AlterOperation.DELETE else config.value)
        for config in resource.configs
    )
    kind, name = resource.resource_type, resource.resource_name
    if kind == ConfigResourceType.BROKER_LOGGER:
        _alter_loggers(core, resource, validate_only=validate_only)
        return
    if kind not in tuple(ConfigResourceType):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown resource type {kind}")
    changes = [(config.name, config.config_operation, config.value) for config in resource.configs]
    texts = altered(kind, overrides_of(core, kind, name), changes)
    alter(core, kind, name, texts, validate_only=validate_only)


def _alter_loggers(core: "BrokerCore", resource: AlterConfigsResource, *, validate_only: bool) -> None:
    require_logger_node(core, resource.resource_name)
    for config in resource.configs:
        operation = config.config_operation
        if operation not in (AlterOperation.SET, AlterOperation.DELETE):
            known = operation in tuple(AlterOperation)
            what = AlterOperation(operation).name if known else f"Unknown operation type {operation}"
            suffix = "operation is not allowed" if known else "is not allowed"
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{what} {suffix} for the BROKER_LOGGER resource")
        loggers.check(config.name, config.value if operation == AlterOperation.SET else None)
    if not validate_only:
        for config in resource.configs:
            loggers.set_level(
                config.name, config.value if config.config_operation == AlterOperation.SET else None
            )


def _response(
    resource: AlterConfigsResource, code: ErrorCode, message: str | None
) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(
        error_code=code,
        error_message=message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )
