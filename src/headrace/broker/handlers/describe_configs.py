"""DescribeConfigs (32), v1-v4: the settings of topics, brokers, groups and loggers, with where each value comes from.

Resources are answered one by one. An empty broker name asks for what was altered cluster-wide. v3 adds types
and documentation.
"""

from typing import TYPE_CHECKING

from headrace.broker.call import Call
from headrace.broker.configs import DescribedConfig, describe
from headrace.broker.pieces import CutList
from headrace.wire.errors import KafkaError
from headrace.wire.messages.describe_configs_request import DescribeConfigsRequest, DescribeConfigsResource
from headrace.wire.messages.describe_configs_response import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

if TYPE_CHECKING:
    from headrace.broker.core import BrokerCore

VERSIONS = (1, 4)
CUTS = {0: CutList("resources", "results", piece_max=50)}


def handle(core: "BrokerCore", request: DescribeConfigsRequest, call: Call) -> DescribeConfigsResponse:
    return DescribeConfigsResponse(
        results=[_describe(core, request, resource) for resource in request.resources]
    )


def _describe(
    core: "BrokerCore", request: DescribeConfigsRequest, resource: DescribeConfigsResource
) -> DescribeConfigsResult:
    try:
        entries = describe(core, resource.resource_type, resource.resource_name)
    except KafkaError as error:
        return DescribeConfigsResult(
            error_code=error.code,
            error_message=error.message,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )
    keys = set(resource.configuration_keys or ())
    return DescribeConfigsResult(
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=[_result(entry, request) for entry in entries if not keys or entry.name in keys],
    )


def _result(entry: DescribedConfig, request: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    synonyms = entry.synonyms if request.include_synonyms else ()
    return DescribeConfigsResourceResult(
        name=entry.name,
        value=entry.value,
        read_only=entry.is_read_only,
        config_source=entry.source,
        is_sensitive=entry.is_sensitive,
        synonyms=[
            DescribeConfigsSynonym(name=shown.name, value=shown.value, source=shown.source)
            for shown in synonyms
        ],
        config_type=entry.type,
        documentation=entry.doc if request.include_documentation else None,
    )
