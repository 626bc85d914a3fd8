"""AlterConfigs, the old way: a resource gets exactly what the request says."""

import pytest

from headrace.broker import client_metrics
from headrace.wire.enums import ConfigResourceType
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.alter_configs_request import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
)
from headrace.wire.messages.alter_configs_response import AlterConfigsResponse


def resource(kind, name, **configs):
    return AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[AlterableConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()],
    )


def alter(admin, *resources, validate_only=False):
    request = AlterConfigsRequest(resources=resources, validate_only=validate_only)
    return [
        (result.error_code, result.error_message)
        for result in admin.ask(request, AlterConfigsResponse).responses
    ]


@pytest.fixture
def orders(admin):
    return admin.topics.create("orders", partitions=1, configs={"retention.ms": "5"})


def test_what_is_not_named_falls_back_to_its_default(admin, orders):
    assert alter(admin, resource(ConfigResourceType.TOPIC, "orders", segment_ms="7")) == [(0, None)]
    assert orders.configs == {"segment.ms": "7"}


def test_validate_only_changes_nothing(admin, orders):
    assert alter(admin, resource(ConfigResourceType.TOPIC, "orders"), validate_only=True) == [(0, None)]
    assert orders.configs == {"retention.ms": "5"}


def test_a_null_value_is_refused(admin, orders):
    assert alter(admin, resource(ConfigResourceType.TOPIC, "orders", segment_ms=None)) == [
        (ErrorCode.INVALID_REQUEST, "Null value not supported for : segment.ms")
    ]


def test_loggers_are_unknown_to_this_api(admin):
    assert alter(admin, resource(ConfigResourceType.BROKER_LOGGER, "1", root="INFO")) == [
        (ErrorCode.INVALID_REQUEST, "Unknown resource type 8")
    ]


def test_client_metrics_subscriptions_are_taken(admin):
    assert alter(admin, resource(ConfigResourceType.CLIENT_METRICS, "m", metrics="x")) == [(0, None)]
    assert client_metrics.overrides(admin, "m") == {"metrics": "x"}


def test_a_resource_that_is_there_twice_is_refused_twice(admin, orders):
    asked = resource(ConfigResourceType.TOPIC, "orders")
    refused = (ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
    assert alter(admin, asked, asked) == [refused, refused]
