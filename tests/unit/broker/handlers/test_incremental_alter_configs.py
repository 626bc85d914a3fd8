"""IncrementalAlterConfigs: operations, validation, what is refused and by which text."""

import logging

import pytest

from headrace.broker import client_metrics
from headrace.broker.configs import describe
from headrace.wire.enums import AlterOperation, ConfigResourceType, ConfigSource
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from headrace.wire.messages.incremental_alter_configs_response import IncrementalAlterConfigsResponse

TOPIC, BROKER, LOGGER, GROUP, METRICS = (
    ConfigResourceType.TOPIC,
    ConfigResourceType.BROKER,
    ConfigResourceType.BROKER_LOGGER,
    ConfigResourceType.GROUP,
    ConfigResourceType.CLIENT_METRICS,
)
SET, DELETE, APPEND, SUBTRACT = AlterOperation


def resource(kind, name, *changes):
    return AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[
            AlterableConfig(name=key, config_operation=operation, value=value)
            for operation, key, value in changes
        ],
    )


def alter(admin, *resources, validate_only=False):
    request = IncrementalAlterConfigsRequest(resources=resources, validate_only=validate_only)
    return [
        (result.error_code, result.error_message)
        for result in admin.ask(request, IncrementalAlterConfigsResponse).responses
    ]


@pytest.fixture
def orders(admin):
    return admin.topics.create("orders", partitions=1, configs={"retention.ms": "5"})


def test_settings_of_a_topic_are_set_and_deleted(admin, orders):
    changes = [(SET, "max.message.bytes", "7"), (DELETE, "retention.ms", None)]
    assert alter(admin, resource(TOPIC, "orders", *changes)) == [(0, None)]
    assert orders.configs == {"max.message.bytes": "7"}


def test_kafkas_dynamic_settings_that_mean_nothing_here_are_taken_and_shown_again(admin, caplog):
    assert alter(admin, resource(BROKER, "1", (SET, "num.io.threads", "9"))) == [(0, None)]
    assert caplog.messages[-1] == (
        "num.io.threads has no effect: one event loop does this work in another way"
    )
    admin.restart()
    (shown,) = [entry for entry in describe(admin, BROKER, "1") if entry.name == "num.io.threads"]
    assert (shown.value, shown.source, shown.is_read_only) == ("9", ConfigSource.DYNAMIC_BROKER, False)
    assert alter(admin, resource(BROKER, "1", (DELETE, "num.io.threads", None))) == [(0, None)]
    assert "num.io.threads" not in {entry.name for entry in describe(admin, BROKER, "1")}


def test_subscriptions_to_client_metrics_are_kept_and_shown(admin):
    changes = [(SET, "interval.ms", "1000"), (SET, "match", "client_id=x.*")]
    assert alter(admin, resource(METRICS, "s", *changes)) == [(0, None)]
    admin.restart()
    assert [(entry.name, entry.value, entry.source) for entry in describe(admin, METRICS, "s")] == [
        ("interval.ms", "1000", ConfigSource.CLIENT_METRICS),
        ("match", "client_id=x.*", ConfigSource.CLIENT_METRICS),
        ("metrics", "", ConfigSource.DEFAULT),
    ]
    assert client_metrics.names(admin) == ["s"]
    assert alter(admin, resource(METRICS, "s", (DELETE, "interval.ms", None), (DELETE, "match", None))) == [
        (0, None)
    ]
    assert client_metrics.names(admin) == []


def test_lists_are_appended_to_and_subtracted_from(admin, orders):
    alter(admin, resource(TOPIC, "orders", (APPEND, "cleanup.policy", "compact")))
    assert orders.configs["cleanup.policy"] == "delete,compact"
    alter(admin, resource(TOPIC, "orders", (APPEND, "cleanup.policy", "compact")))
    assert orders.configs["cleanup.policy"] == "delete,compact"
    alter(admin, resource(TOPIC, "orders", (SUBTRACT, "cleanup.policy", "delete,none")))
    assert orders.configs["cleanup.policy"] == "compact"


def test_validate_only_changes_nothing(admin, orders):
    asked = resource(TOPIC, "orders", (SET, "retention.ms", "9"))
    assert alter(admin, asked, validate_only=True) == [(0, None)]
    assert orders.configs == {"retention.ms": "5"}


def test_one_bad_change_keeps_the_good_ones_of_its_resource_away(admin, orders):
    admin.topics.create("other", partitions=1, configs={})
    bad = resource(TOPIC, "orders", (SET, "retention.ms", "9"), (SET, "segment.ms", "0"))
    good = resource(TOPIC, "other", (SET, "retention.ms", "9"))
    assert alter(admin, bad, good) == [
        (
            ErrorCode.INVALID_CONFIG,
            "Invalid value 0 for configuration segment.ms: Value must be at least 1",
        ),
        (0, None),
    ]
    assert orders.configs == {"retention.ms": "5"}
    assert admin.topics.get("other").configs == {"retention.ms": "9"}


def test_settings_of_a_broker_are_altered_for_the_node_or_the_cluster(admin):
    assert alter(
        admin,
        resource(BROKER, "1", (SET, "max.connections", "9")),
        resource(BROKER, "", (SET, "log.retention.ms", "77")),
    ) == [(0, None), (0, None)]
    assert admin.settings.get_int("max.connections") == 9
    assert admin.settings.log_config({}).retention_ms == 77
    assert alter(admin, resource(BROKER, "1", (DELETE, "max.connections", None))) == [(0, None)]
    assert admin.settings.get_int("max.connections") == 2**31 - 1


def test_settings_of_a_group_are_kept_before_it_exists(admin):
    asked = resource(GROUP, "g", (SET, "consumer.session.timeout.ms", "50000"))
    assert alter(admin, asked) == [(0, None)]
    assert admin.settings.group_int("g", "consumer.session.timeout.ms") == 50_000
    assert admin.metadata.configs("group") == {"g": {"consumer.session.timeout.ms": "50000"}}


@pytest.fixture
def _quiet_loggers():
    logger = logging.getLogger("headrace.topics")
    before = logger.level
    yield
    logger.setLevel(before)


@pytest.mark.usefixtures("_quiet_loggers")
def test_a_logger_takes_a_level_and_gives_it_back(admin):
    logger = logging.getLogger("headrace.topics")
    assert alter(admin, resource(LOGGER, "1", (SET, "headrace.topics", "ERROR"))) == [(0, None)]
    assert logger.level == logging.ERROR
    assert alter(admin, resource(LOGGER, "1", (SET, "headrace.topics", "DEBUG")), validate_only=True) == [
        (0, None)
    ]
    assert logger.level == logging.ERROR
    assert alter(admin, resource(LOGGER, "1", (DELETE, "headrace.topics", None))) == [(0, None)]
    assert logger.level == logging.NOTSET


@pytest.mark.parametrize(
    ("asked", "code", "message"),
    [
        (
            resource(TOPIC, "x", (SET, "retention.ms", "1")),
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            "The topic 'x' does not exist.",
        ),
        (
            resource(TOPIC, "", (SET, "retention.ms", "1")),
            ErrorCode.INVALID_REQUEST,
            "Default topic resources are not allowed.",
        ),
        (
            resource(TOPIC, "orders", (SET, "nope", "1")),
            ErrorCode.INVALID_CONFIG,
            "Unknown topic config name: nope",
        ),
        (
            resource(TOPIC, "orders", (APPEND, "retention.ms", "1")),
            ErrorCode.INVALID_CONFIG,
            "Can't APPEND to key retention.ms because its type is not LIST.",
        ),
        (
            resource(TOPIC, "orders", (SET, "retention.ms", None), (SET, "segment.ms", None)),
            ErrorCode.INVALID_REQUEST,
            "Null value not supported for : retention.ms, segment.ms",
        ),
        (
            resource(TOPIC, "orders", (SET, "retention.ms", "1"), (DELETE, "retention.ms", None)),
            ErrorCode.INVALID_REQUEST,
            "Error due to duplicate config keys",
        ),
        (
            resource(TOPIC, "orders", (9, "retention.ms", "1")),
            ErrorCode.INVALID_REQUEST,
            "Unknown operations type 9",
        ),
        (
            resource(TOPIC, "orders", (SET, "leader.replication.throttled.replicas", "1:1," * 10_000)),
            ErrorCode.INVALID_CONFIG,
            "The configuration value cannot be added because it exceeds the maximum value size of 32767 bytes.",
        ),
        (
            resource(BROKER, "2", (SET, "max.connections", "1")),
            ErrorCode.INVALID_REQUEST,
            "Unexpected broker id, expected 1, but received 2",
        ),
        (
            resource(BROKER, "x", (SET, "max.connections", "1")),
            ErrorCode.INVALID_REQUEST,
            "Node id must be an integer, but it is: x",
        ),
        (
            resource(BROKER, "1", (SET, "num.partitions", "1")),
            ErrorCode.INVALID_REQUEST,
            "Cannot update these configs dynamically: [num.partitions]",
        ),
        (
            resource(BROKER, "1", (SET, "max.connection", "1")),
            ErrorCode.INVALID_REQUEST,
            "Cannot update these configs dynamically: [max.connection]; "
            "unknown setting max.connection; did you mean max.connections?",
        ),
        (
            resource(BROKER, "1", (SET, "num.io.threads", "0")),
            ErrorCode.INVALID_REQUEST,
            "Invalid value 0 for configuration num.io.threads: Value must be at least 1",
        ),
        (
            resource(BROKER, "1", (SET, "ssl.keystore.type", "PKCS12")),
            ErrorCode.INVALID_REQUEST,
            "These security configs can be dynamically updated only per-listener using the listener prefix: "
            "[ssl.keystore.type]; use listener.name.LISTENER.ssl.keystore.type",
        ),
        (
            resource(METRICS, "s", (SET, "interval.ms", "10")),
            ErrorCode.INVALID_REQUEST,
            "Invalid value 10 for interval.ms, interval must be between 100 and 3600000 (1 hour)",
        ),
        (
            resource(METRICS, "s", (SET, "interval.ms", "x")),
            ErrorCode.INVALID_CONFIG,
            "Invalid value x for configuration interval.ms: Not a number of type INT",
        ),
        (
            resource(METRICS, "s", (APPEND, "metrics", "a.b")),
            ErrorCode.INVALID_CONFIG,
            "Can't APPEND to key metrics because its type is not LIST.",
        ),
        (
            resource(METRICS, "s", (SET, "match", "client_id=x.*,foo=1")),
            ErrorCode.INVALID_CONFIG,
            "Illegal client matching pattern: foo=1",
        ),
        (
            resource(METRICS, "s", (SET, "nope", "1")),
            ErrorCode.INVALID_REQUEST,
            "Unknown client metrics configuration: nope",
        ),
        (
            resource(METRICS, "", (SET, "interval.ms", "1000")),
            ErrorCode.INVALID_REQUEST,
            "Subscription name can't be empty",
        ),
        (
            resource(BROKER, "1", (SET, "max.connections", "-1")),
            ErrorCode.INVALID_REQUEST,
            "Invalid value -1 for configuration max.connections: Value must be at least 0",
        ),
        (
            resource(BROKER, "1", (APPEND, "max.connections", "1")),
            ErrorCode.INVALID_CONFIG,
            "Config value append is not allowed for config key: max.connections",
        ),
        (
            resource(BROKER, "1", (SET, "min.insync.replicas", "1")),
            ErrorCode.INVALID_CONFIG,
            "Broker-level min.insync.replicas cannot be altered while ELR is enabled.",
        ),
        (
            resource(BROKER, "", (DELETE, "min.insync.replicas", None)),
            ErrorCode.INVALID_CONFIG,
            "Cluster-level min.insync.replicas cannot be removed while ELR is enabled.",
        ),
        (
            resource(GROUP, "", (SET, "consumer.session.timeout.ms", "50000")),
            ErrorCode.INVALID_REQUEST,
            "Default group resources are not allowed.",
        ),
        (
            resource(GROUP, "g", (SET, "consumer.session", "1")),
            ErrorCode.INVALID_CONFIG,
            "Unknown group config name: consumer.session",
        ),
        (
            resource(GROUP, "g", (SET, "consumer.session.timeout.ms", "0")),
            ErrorCode.INVALID_CONFIG,
            "Invalid value 0 for configuration consumer.session.timeout.ms: Value must be at least 1",
        ),
        (
            resource(GROUP, "g", (SET, "consumer.session.timeout.ms", "1000")),
            ErrorCode.INVALID_CONFIG,
            "consumer.session.timeout.ms must be greater than or equal to group.consumer.min.session.timeout.ms",
        ),
        (
            resource(GROUP, "g", (SET, "consumer.heartbeat.interval.ms", "99999")),
            ErrorCode.INVALID_CONFIG,
            "consumer.heartbeat.interval.ms must be less than or equal to group.consumer.max.heartbeat.interval.ms",
        ),
        (
            resource(LOGGER, "1", (SET, "headrace.no.such", "INFO")),
            ErrorCode.INVALID_CONFIG,
            "Logger headrace.no.such does not exist!",
        ),
        (
            resource(LOGGER, "1", (SET, "root", "LOUD")),
            ErrorCode.INVALID_CONFIG,
            "Cannot set the log level of root to LOUD as it is not a supported log level. "
            "Valid log levels are FATAL, ERROR, WARN, INFO, DEBUG, TRACE",
        ),
        (
            resource(LOGGER, "1", (DELETE, "root", None)),
            ErrorCode.INVALID_REQUEST,
            "Removing the log level of the root logger is not allowed",
        ),
        (
            resource(LOGGER, "1", (APPEND, "root", "INFO")),
            ErrorCode.INVALID_REQUEST,
            "APPEND operation is not allowed for the BROKER_LOGGER resource",
        ),
        (
            resource(LOGGER, "2", (SET, "root", "INFO")),
            ErrorCode.INVALID_REQUEST,
            "Unexpected node id. Expected 1, but received 2",
        ),
        (
            resource(LOGGER, "²", (SET, "root", "INFO")),
            ErrorCode.INVALID_REQUEST,
            "Node id must be an integer, but it is: ²",
        ),
        (resource(99, "x"), ErrorCode.INVALID_REQUEST, "Unknown resource type 99"),
    ],
)
@pytest.mark.usefixtures("orders")
def test_what_cannot_be_is_refused_with_kafkas_text(admin, asked, code, message):
    assert alter(admin, asked) == [(code, message)]
    assert admin.topics.get("orders").configs == {"retention.ms": "5"}
    assert admin.settings.groups_with_overrides() == []


def test_a_session_must_outlast_the_heartbeat(admin):
    admin.restart(
        group_consumer_min_session_timeout_ms=6000,
        group_consumer_max_heartbeat_interval_ms=15000,
    )
    asked = resource(
        GROUP,
        "g",
        (SET, "consumer.session.timeout.ms", "7000"),
        (SET, "consumer.heartbeat.interval.ms", "7000"),
    )
    assert alter(admin, asked) == [
        (
            ErrorCode.INVALID_CONFIG,
            "consumer.session.timeout.ms must be greater than consumer.heartbeat.interval.ms",
        )
    ]


def test_a_resource_that_is_there_twice_is_refused_twice(admin, orders):
    asked = resource(TOPIC, "orders", (SET, "retention.ms", "9"))
    refused = (ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
    assert alter(admin, asked, asked) == [refused, refused]
    assert orders.configs == {"retention.ms": "5"}
