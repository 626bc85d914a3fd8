"""DescribeConfigs: values, sources, synonyms, types, what is refused."""

import pytest

from headrace.wire.enums import ConfigResourceType
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.describe_configs_request import DescribeConfigsRequest, DescribeConfigsResource
from headrace.wire.messages.describe_configs_response import DescribeConfigsResponse


def describe(admin, kind, name, keys=None, **include):
    request = DescribeConfigsRequest(
        resources=[DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)],
        **include,
    )
    (result,) = admin.ask(request, DescribeConfigsResponse).results
    assert (result.resource_type, result.resource_name) == (kind, name)
    return result


def synonyms(config):
    return [(synonym.source, synonym.name, synonym.value) for synonym in config.synonyms]


@pytest.fixture
def orders(admin):
    return admin.topics.create("orders", partitions=1, configs={"max.message.bytes": "7"})


def test_a_topics_own_value_is_shown_above_what_it_hides(admin, orders):
    admin.settings.set_dynamic("message.max.bytes", "6")
    (config,) = describe(
        admin, ConfigResourceType.TOPIC, "orders", ["max.message.bytes"], include_synonyms=True
    ).configs
    assert (config.value, config.config_source, config.config_type) == ("7", 1, 3)
    assert not config.read_only
    assert synonyms(config) == [
        (1, "max.message.bytes", "7"),
        (2, "message.max.bytes", "6"),
        (5, "message.max.bytes", "1048588"),
    ]


def test_a_topic_shows_all_of_kafkas_settings_and_nothing_internal(admin, orders):
    result = describe(admin, ConfigResourceType.TOPIC, "orders")
    assert len(result.configs) == 34
    assert all(config.documentation is None and not config.synonyms for config in result.configs)
    assert not any(config.is_sensitive for config in result.configs)


def test_an_empty_list_of_keys_asks_for_all(admin, orders):
    assert len(describe(admin, ConfigResourceType.TOPIC, "orders", []).configs) == 34
    assert describe(admin, ConfigResourceType.TOPIC, "orders", ["no.such"]).configs == []


def test_an_internal_setting_is_shown_where_it_was_set(admin):
    admin.topics.create("small", partitions=1, configs={"internal.segment.bytes": "100"})
    result = describe(admin, ConfigResourceType.TOPIC, "small", ["internal.segment.bytes"])
    assert [config.value for config in result.configs] == ["100"]


def test_documentation_is_given_when_it_is_asked_for(admin, orders):
    (config,) = describe(
        admin, ConfigResourceType.TOPIC, "orders", ["retention.ms"], include_documentation=True
    ).configs
    assert "Segments" in config.documentation


def test_a_retention_given_in_hours_is_not_a_synonym_that_kafka_lists(admin):
    admin.restart(log_retention_hours=24)
    admin.topics.create("orders", partitions=1, configs={})
    (config,) = describe(
        admin, ConfigResourceType.TOPIC, "orders", ["retention.ms"], include_synonyms=True
    ).configs
    assert (config.value, config.config_source, synonyms(config)) == ("86400000", 5, [])


def test_min_insync_replicas_shows_as_altered_cluster_wide(admin, orders):
    (config,) = describe(
        admin, ConfigResourceType.TOPIC, "orders", ["min.insync.replicas"], include_synonyms=True
    ).configs
    assert (config.value, config.config_source) == ("1", 3)
    assert synonyms(config) == [(3, "min.insync.replicas", "1"), (5, "min.insync.replicas", "1")]


def test_a_setting_without_a_broker_default_has_no_synonyms(admin, orders):
    (config,) = describe(
        admin, ConfigResourceType.TOPIC, "orders", ["remote.storage.enable"], include_synonyms=True
    ).configs
    assert (config.value, config.config_source, config.config_type, synonyms(config)) == ("false", 5, 1, [])


def test_a_broker_shows_what_it_was_given_and_what_may_be_altered(admin):
    admin.restart(num_partitions=3)
    result = {config.name: config for config in describe(admin, ConfigResourceType.BROKER, "1").configs}
    assert (result["num.partitions"].value, result["num.partitions"].config_source) == ("3", 4)
    assert result["num.partitions"].read_only
    assert not result["message.max.bytes"].read_only
    assert result["log.retention.ms"].value is None
    assert not any(name.startswith("internal.") for name in result)


def test_an_empty_broker_name_shows_what_was_altered_cluster_wide(admin):
    admin.settings.set_dynamic("message.max.bytes", "5", is_cluster_wide=True)
    admin.settings.set_dynamic("message.max.bytes", "6")
    result = describe(admin, ConfigResourceType.BROKER, "", include_synonyms=True)
    assert [(config.name, config.value, synonyms(config)) for config in result.configs] == [
        ("message.max.bytes", "5", [(3, "message.max.bytes", "5")]),
        ("min.insync.replicas", "1", [(3, "min.insync.replicas", "1")]),
    ]


def test_a_group_shows_its_own_values_and_the_brokers(admin):
    admin.settings.replace_group("g", {"consumer.session.timeout.ms": "50000"})
    result = describe(admin, ConfigResourceType.GROUP, "g", include_synonyms=True)
    by_name = {config.name: config for config in result.configs}
    assert sorted(by_name) == [
        "consumer.assignment.interval.ms",
        "consumer.heartbeat.interval.ms",
        "consumer.session.timeout.ms",
        "errors.deadletterqueue.copy.record.enable",
        "errors.deadletterqueue.topic.name",
        "share.assignment.interval.ms",
        "share.auto.offset.reset",
        "share.delivery.count.limit",
        "share.heartbeat.interval.ms",
        "share.isolation.level",
        "share.partition.max.record.locks",
        "share.record.lock.duration.ms",
        "share.renew.acknowledge.enable",
        "share.session.timeout.ms",
    ]
    session = by_name["consumer.session.timeout.ms"]
    assert (session.value, session.config_source) == ("50000", 8)
    assert synonyms(session) == [
        (8, "consumer.session.timeout.ms", "50000"),
        (5, "group.consumer.session.timeout.ms", "45000"),
    ]
    heartbeat = by_name["consumer.heartbeat.interval.ms"]
    assert (heartbeat.value, heartbeat.config_source) == ("5000", 5)


def test_a_group_that_does_not_exist_has_the_brokers_values(admin):
    assert {config.config_source for config in describe(admin, ConfigResourceType.GROUP, "new").configs} == {
        5
    }


def test_loggers_are_shown_with_their_levels(admin):
    result = {
        config.name: config for config in describe(admin, ConfigResourceType.BROKER_LOGGER, "1").configs
    }
    assert "root" in result
    assert result["headrace.topics"].config_source == 6
    assert not result["headrace.topics"].read_only


def test_a_client_metrics_subscription_that_nobody_made_has_the_defaults(admin):
    configs = describe(admin, ConfigResourceType.CLIENT_METRICS, "m").configs
    assert {config.name: config.value for config in configs} == {
        "interval.ms": "300000",
        "match": "",
        "metrics": "",
    }


@pytest.mark.parametrize(
    ("kind", "name", "code", "message"),
    [
        (ConfigResourceType.TOPIC, "x", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ""),
        (
            ConfigResourceType.TOPIC,
            "",
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            "Topic name is invalid: the empty string is not allowed",
        ),
        (
            ConfigResourceType.BROKER,
            "2",
            ErrorCode.INVALID_REQUEST,
            "Unexpected broker id, expected 1 or empty string, but received 2",
        ),
        (
            ConfigResourceType.BROKER,
            "x",
            ErrorCode.INVALID_REQUEST,
            "Broker id must be an integer, but it is: x",
        ),
        (ConfigResourceType.BROKER_LOGGER, "", ErrorCode.INVALID_REQUEST, "Broker id must not be empty"),
        (
            ConfigResourceType.BROKER_LOGGER,
            "2",
            ErrorCode.INVALID_REQUEST,
            "Unexpected broker id, expected 1 but received 2",
        ),
        (ConfigResourceType.GROUP, "", ErrorCode.INVALID_REQUEST, "Group name must not be empty"),
        (
            ConfigResourceType.CLIENT_METRICS,
            "",
            ErrorCode.INVALID_REQUEST,
            "Client metrics subscription name must not be empty",
        ),
        (99, "x", ErrorCode.INVALID_REQUEST, "Unexpected resource type UNKNOWN for resource x"),
    ],
)
def test_what_is_not_there_is_refused_with_kafkas_text(admin, kind, name, code, message):
    result = describe(admin, kind, name)
    assert (result.error_code, result.error_message or "") == (code, message)
    assert not result.configs
