"""ListConfigResources: what can have settings."""

import pytest

from headrace.wire.enums import ConfigResourceType
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.list_config_resources_request import ListConfigResourcesRequest
from headrace.wire.messages.list_config_resources_response import ListConfigResourcesResponse


def listed(admin, *kinds, version=1):
    response = admin.ask(
        ListConfigResourcesRequest(resource_types=kinds), ListConfigResourcesResponse, version
    )
    assert response.error_code == 0
    return [(resource.resource_type, resource.resource_name) for resource in response.config_resources]


@pytest.fixture(autouse=True)
def _resources(admin):
    admin.topics.create("orders", partitions=1, configs={})
    admin.settings.replace_group("g", {"consumer.session.timeout.ms": "50000"})


def test_all_types_are_listed_when_none_is_named(admin):
    assert sorted(listed(admin)) == [
        (ConfigResourceType.TOPIC, "orders"),
        (ConfigResourceType.BROKER, "1"),
        (ConfigResourceType.BROKER_LOGGER, "1"),
        (ConfigResourceType.GROUP, "g"),
    ]


def test_only_the_asked_types_are_listed(admin):
    assert listed(admin, ConfigResourceType.GROUP, ConfigResourceType.TOPIC) == [
        (ConfigResourceType.GROUP, "g"),
        (ConfigResourceType.TOPIC, "orders"),
    ]


def test_version_0_knows_client_metrics_alone(admin):
    assert listed(admin, version=0) == []


def test_an_unknown_type_is_refused(admin):
    response = admin.ask(ListConfigResourcesRequest(resource_types=[99]), ListConfigResourcesResponse)
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
