"""Settings of share groups: Kafka's bounds and texts, our wider windows, and what dead-letter queues add."""

import pytest

from headrace.broker.configs import alter, check_group, describe
from headrace.broker.settings import InvalidSettings, Settings
from headrace.wire.enums import ConfigResourceType
from headrace.wire.errors import ErrorCode, KafkaError


def refusal(texts: dict[str, str], settings: Settings | None = None) -> str | None:
    try:
        check_group(settings or Settings(), texts)
    except KafkaError as error:
        return error.message if error.code is ErrorCode.INVALID_CONFIG else error.code.name
    return None


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("share.record.lock.duration.ms", "999", "Value must be at least 1000"),
        ("share.delivery.count.limit", "1", "Value must be at least 2"),
        ("share.partition.max.record.locks", "99", "Value must be at least 100"),
        ("share.session.timeout.ms", "0", "Value must be at least 1"),
        ("share.heartbeat.interval.ms", "0", "Value must be at least 1"),
        ("share.assignment.interval.ms", "-1", "Value must be at least 0"),
        ("share.record.lock.duration.ms", "x", "Not a number of type INT"),
        ("share.renew.acknowledge.enable", "yes", "Expected value to be either true or false"),
        ("share.isolation.level", "READ_COMMITTED", "String must be one of: read_committed, read_uncommitted"),
        (
            "share.auto.offset.reset",
            "by_duration:-PT1M",
            "Invalid value `by_duration:-PT1M` for configuration share.auto.offset.reset. The value must be either "
            "'earliest', 'latest' or of the format 'by_duration:<PnDTnHnMn.nS>'.",
        ),
    ],
)  # fmt: skip
def test_a_value_that_no_group_can_have_is_refused_with_kafkas_text(
    name: str, text: str, expected: str
) -> None:
    assert refusal({name: text}) == f"Invalid value {text} for configuration {name}: {expected}"


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        ("share.record.lock.duration.ms", 15_000, 60_000),
        ("share.delivery.count.limit", 2, 10),
        ("share.partition.max.record.locks", 100, 4000),
        ("share.session.timeout.ms", 45_000, 60_000),
        ("share.heartbeat.interval.ms", 5000, 15_000),
        ("share.assignment.interval.ms", 0, 15_000),
    ],
)
def test_the_broker_bounds_what_a_group_may_set(name: str, low: int, high: int) -> None:
    rest = name.removeprefix("share.")
    assert refusal({name: str(low)}) is None
    assert refusal({name: str(high)}) is None
    assert refusal({name: str(high + 1)}) == f"{name} must be less than or equal to group.share.max.{rest}"
    if low > 100:
        assert (
            refusal({name: str(low - 1)}) == f"{name} must be greater than or equal to group.share.min.{rest}"
        )


def test_a_groups_session_must_outlast_its_heartbeats() -> None:
    settings = Settings(
        {"group.share.min.session.timeout.ms": 1000, "group.share.min.heartbeat.interval.ms": 1000}
    )
    texts = {"share.session.timeout.ms": "5000"}
    assert (
        refusal(texts, settings)
        == "share.session.timeout.ms must be greater than share.heartbeat.interval.ms"
    )
    assert refusal({**texts, "share.heartbeat.interval.ms": "4000"}, settings) is None


@pytest.mark.parametrize("text", ["earliest", "latest", "by_duration:PT1H", "by_duration:P1DT0.5S"])
def test_where_a_group_begins_is_a_word_or_a_duration(text: str) -> None:
    assert refusal({"share.auto.offset.reset": text}) is None


def test_values_of_a_group_are_read_by_type() -> None:
    settings = Settings()
    settings.replace_group(
        "g", {"share.renew.acknowledge.enable": "false", "share.isolation.level": "read_committed"}
    )
    assert settings.group_bool("g", "share.renew.acknowledge.enable") is False
    assert settings.group_bool("other", "share.renew.acknowledge.enable") is True
    assert settings.group_str("g", "share.isolation.level") == "read_committed"
    assert settings.group_str("g", "share.auto.offset.reset") == "latest"
    assert settings.group_int("g", "share.record.lock.duration.ms") == 30_000


def test_a_window_may_be_far_larger_than_kafkas() -> None:
    settings = Settings(
        {
            "group.share.partition.max.record.locks": 1_000_000,
            "group.share.max.partition.max.record.locks": 10_000_000,
        }
    )
    assert settings.group_int("g", "share.partition.max.record.locks") == 1_000_000
    assert refusal({"share.partition.max.record.locks": "10000000"}, settings) is None


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (
            {"group.share.delivery.count.limit": 2, "group.share.min.delivery.count.limit": 3},
            "group.share.min.delivery.count.limit=3 must not be more than group.share.delivery.count.limit=2",
        ),
        (
            {"group.share.record.lock.duration.ms": 70_000},
            "group.share.record.lock.duration.ms=70000 must not be more than "
            "group.share.max.record.lock.duration.ms=60000",
        ),
        (
            {"group.share.partition.max.record.locks": 5000},
            "group.share.partition.max.record.locks=5000 must not be more than "
            "group.share.max.partition.max.record.locks=4000",
        ),
        (
            {"group.share.max.share.sessions": 10},
            "group.share.max.size=200 must not be more than group.share.max.share.sessions=10",
        ),
        (
            {"group.share.heartbeat.interval.ms": 45_000, "group.share.max.heartbeat.interval.ms": 45_000},
            "group.share.heartbeat.interval.ms=45000 must be less than group.share.session.timeout.ms=45000",
        ),
        (
            {"group.share.assignment.interval.ms": 16_000},
            "group.share.assignment.interval.ms=16000 must not be more than "
            "group.share.max.assignment.interval.ms=15000",
        ),
        (
            {"group.share.assignors": ""},
            "group.share.assignors=[]: there must be one assignor (allowed: any of simple)",
        ),
        (
            {"share.coordinator.state.topic.replication.factor": 3},
            "share.coordinator.state.topic.replication.factor=3: Value must be no more than 1 (allowed: only 1)",
        ),
    ],
)
def test_settings_that_do_not_fit_are_refused_at_start(given: dict[str, object], expected: str) -> None:
    with pytest.raises(InvalidSettings) as caught:
        Settings(given)
    assert str(caught.value) == expected


def test_dead_letter_settings_have_the_names_of_kafka_4_4(admin):
    assert refusal({"errors.deadletterqueue.topic.name": "dlq.orders"}) is None
    admin.topics.create("dlq.orders", partitions=1, configs={"errors.deadletterqueue.group.enable": "true"})
    entries = {entry.name: entry.value for entry in describe(admin, ConfigResourceType.TOPIC, "dlq.orders")}
    assert entries["errors.deadletterqueue.group.enable"] == "true"
    entries = {entry.name: entry.value for entry in describe(admin, ConfigResourceType.GROUP, "g")}
    assert entries["errors.deadletterqueue.topic.name"] == ""
    assert entries["errors.deadletterqueue.copy.record.enable"] == "false"
    dynamic = {"errors.deadletterqueue.topic.name.prefix": "", "min.insync.replicas": "1"}
    alter(admin, ConfigResourceType.BROKER, "", dynamic)
    assert admin.settings.get_str("errors.deadletterqueue.topic.name.prefix") == ""
