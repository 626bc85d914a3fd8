"""Configs of topics, groups and the broker: described, changed, and refused in Kafka's own words."""

from typing import Any

import pytest

from headrace.wire.errors import ErrorCode
from tests.conformance.conftest import BrokerUnderTest
from tests.conformance.plain import plain
from tests.conformance.steps import (
    APPEND,
    BROKER,
    DELETE,
    GROUP,
    SET,
    SUBTRACT,
    TOPIC,
    alter,
    describe_configs,
    new_topic,
    set_config,
    wait_for,
)
from tests.conformance.wire_client import WireClient

FROM_TOPIC, FROM_BROKER, FROM_ALL_BROKERS, FROM_FILE, FROM_DEFAULT, FROM_GROUP = 1, 2, 3, 4, 5, 8
BOOLEAN, STRING, INT, SHORT, LONG, DOUBLE, LIST = 1, 2, 3, 4, 5, 6, 7
NODE = "1"


def ask(wire: WireClient, kind: int, name: str, *keys: str) -> Any:
    resource = {"resource_type": kind, "resource_name": name, "configuration_keys": list(keys) or None}
    return wire.ask("describe_configs", 4, resources=[resource]).results[0]


def synonyms(config: Any) -> list[tuple[str, str | None, int]]:
    return [(synonym.name, synonym.value, synonym.source) for synonym in config.synonyms]


def value_of(wire: WireClient, kind: int, name: str, setting: str) -> str | None:
    found = describe_configs(wire, kind, name, setting)[setting].value
    return None if found is None else str(found)


# What is described


def test_a_topic_has_all_its_configs(wire: WireClient, unique: str) -> None:
    new_topic(wire, unique)
    found = describe_configs(wire, TOPIC, unique)
    expected = {
        "cleanup.policy": ("delete", LIST),
        "compression.gzip.level": ("-1", INT),
        "compression.lz4.level": ("9", INT),
        "compression.type": ("producer", STRING),
        "compression.zstd.level": ("3", INT),
        "delete.retention.ms": ("86400000", LONG),
        "file.delete.delay.ms": ("60000", LONG),
        "flush.messages": ("9223372036854775807", LONG),
        "flush.ms": ("9223372036854775807", LONG),
        "index.interval.bytes": ("4096", INT),
        "local.retention.bytes": ("-2", LONG),
        "local.retention.ms": ("-2", LONG),
        "max.compaction.lag.ms": ("9223372036854775807", LONG),
        "max.message.bytes": ("1048588", INT),
        "message.timestamp.after.max.ms": ("3600000", LONG),
        "message.timestamp.before.max.ms": ("9223372036854775807", LONG),
        "message.timestamp.type": ("CreateTime", STRING),
        "min.cleanable.dirty.ratio": ("0.5", DOUBLE),
        "min.compaction.lag.ms": ("0", LONG),
        "min.insync.replicas": ("1", INT),
        "preallocate": ("false", BOOLEAN),
        "retention.bytes": ("-1", LONG),
        "retention.ms": ("604800000", LONG),
        "segment.bytes": ("1073741824", INT),
        "segment.index.bytes": ("10485760", INT),
        "segment.jitter.ms": ("0", LONG),
        "segment.ms": ("604800000", LONG),
        "unclean.leader.election.enable": ("false", BOOLEAN),
    }
    assert {name: (found[name].value, found[name].config_type) for name in expected} == expected
    # The rest has to do with replicas and tiers, of which one broker has none.
    rest = {name for name in found if name not in expected}
    assert rest <= {
        "follower.replication.throttled.replicas",
        "leader.replication.throttled.replicas",
        "remote.copy.lag.bytes",
        "remote.copy.lag.ms",
        "remote.log.copy.disable",
        "remote.log.delete.on.disable",
        "remote.storage.enable",
        "internal.segment.bytes",
        "errors.deadletterqueue.group.enable",
    }


def test_a_value_says_where_it_comes_from(wire: WireClient, unique: str) -> None:
    new_topic(wire, unique, configs={"retention.ms": "1000"})
    found = describe_configs(wire, TOPIC, unique, "retention.ms", "segment.ms", "flush.messages")
    own, other = found["retention.ms"], found["segment.ms"]
    assert (own.config_source, synonyms(own)) == (FROM_TOPIC, [("retention.ms", "1000", FROM_TOPIC)])
    assert other.config_source == FROM_DEFAULT
    assert synonyms(found["flush.messages"]) == [
        ("log.flush.interval.messages", "9223372036854775807", FROM_DEFAULT)
    ]


def test_synonyms_are_told_on_request_alone(wire: WireClient, unique: str) -> None:
    new_topic(wire, unique)
    assert all(not config.synonyms for config in ask(wire, TOPIC, unique).configs)


def test_only_the_configs_asked_for_are_told(wire: WireClient, unique: str) -> None:
    new_topic(wire, unique)
    found = ask(wire, TOPIC, unique, "retention.ms", "no.such.config")
    assert (found.error_code, [config.name for config in found.configs]) == (0, ["retention.ms"])


def test_the_broker_tells_what_it_was_started_with(wire: WireClient) -> None:
    found = describe_configs(wire, BROKER, NODE, "group.min.session.timeout.ms", "num.partitions", "node.id")
    started = found["group.min.session.timeout.ms"]
    assert (started.value, started.config_source, started.read_only) == ("100", FROM_FILE, True)
    assert synonyms(started) == [
        ("group.min.session.timeout.ms", "100", FROM_FILE),
        ("group.min.session.timeout.ms", "6000", FROM_DEFAULT),
    ]
    assert (found["num.partitions"].value, found["num.partitions"].config_type) == ("1", INT)
    assert found["node.id"].value == NODE


def test_values_that_can_be_changed_while_it_runs_are_not_read_only(wire: WireClient) -> None:
    keys = ("log.retention.ms", "message.max.bytes", "num.partitions", "auto.create.topics.enable")
    found = describe_configs(wire, BROKER, NODE, *keys)
    assert {name: config.read_only for name, config in found.items()} == {
        "log.retention.ms": False,
        "message.max.bytes": False,
        "num.partitions": True,
        "auto.create.topics.enable": True,
    }


def test_a_group_has_configs_before_it_exists(wire: WireClient, unique: str) -> None:
    found = describe_configs(wire, GROUP, unique)
    session = found["consumer.session.timeout.ms"]
    assert (session.value, session.config_source, session.config_type) == ("45000", FROM_DEFAULT, INT)
    assert found["consumer.heartbeat.interval.ms"].value == "5000"


UNKNOWN: dict[str, tuple[int, str, ErrorCode]] = {
    "topic": (TOPIC, "no-such-topic", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    "name of a topic": (TOPIC, "no such topic", ErrorCode.INVALID_TOPIC_EXCEPTION),
    "node": (BROKER, "77", ErrorCode.INVALID_REQUEST),
    "number of a node": (BROKER, "one", ErrorCode.INVALID_REQUEST),
    "kind": (99, "x", ErrorCode.INVALID_REQUEST),
    "group name": (GROUP, "", ErrorCode.INVALID_REQUEST),
}


@pytest.mark.parametrize("what", UNKNOWN)
def test_what_is_not_there_cannot_be_described(wire: WireClient, what: str) -> None:
    kind, name, code = UNKNOWN[what]
    found = ask(wire, kind, name)
    assert (ErrorCode(found.error_code), found.configs) == (code, [])
    assert bool(found.error_message) is (what != "topic")


# What is changed


def test_a_value_is_set_and_taken_back(wire: WireClient, unique: str) -> None:
    new_topic(wire, unique)
    set_config(wire, TOPIC, unique, "retention.ms", "1000")
    assert alter(wire, TOPIC, unique, ("retention.ms", DELETE, None)).error_code == 0
    wait_for(lambda: value_of(wire, TOPIC, unique, "retention.ms") == "604800000")


def test_lists_are_added_to_and_taken_from(wire: WireClient, unique: str) -> None:
    new_topic(wire, unique)
    assert alter(wire, TOPIC, unique, ("cleanup.policy", APPEND, "compact")).error_code == 0
    wait_for(lambda: value_of(wire, TOPIC, unique, "cleanup.policy") == "delete,compact")
    # What is there already is not added again.
    assert alter(wire, TOPIC, unique, ("cleanup.policy", APPEND, "compact")).error_code == 0
    assert alter(wire, TOPIC, unique, ("cleanup.policy", SUBTRACT, "delete")).error_code == 0
    wait_for(lambda: value_of(wire, TOPIC, unique, "cleanup.policy") == "compact")


def test_only_asking_changes_nothing(wire: WireClient, unique: str) -> None:
    new_topic(wire, unique)
    configs = [{"name": "retention.ms", "config_operation": SET, "value": "1000"}]
    resource = {"resource_type": TOPIC, "resource_name": unique, "configs": configs}
    response = wire.ask("incremental_alter_configs", 1, resources=[resource], validate_only=True)
    assert response.responses[0].error_code == 0
    assert value_of(wire, TOPIC, unique, "retention.ms") == "604800000"


def test_one_bad_value_and_nothing_is_changed(wire: WireClient, unique: str) -> None:
    new_topic(wire, unique)
    answer = alter(wire, TOPIC, unique, ("retention.ms", SET, "1000"), ("segment.ms", SET, "never"))
    assert answer.error_code == ErrorCode.INVALID_CONFIG
    assert value_of(wire, TOPIC, unique, "retention.ms") == "604800000"


def test_each_resource_is_changed_for_itself(wire: WireClient, unique: str) -> None:
    new_topic(wire, unique)
    configs = [{"name": "retention.ms", "config_operation": SET, "value": "1000"}]
    names = [unique, f"{unique}-not"]
    resources = [{"resource_type": TOPIC, "resource_name": name, "configs": configs} for name in names]
    response = wire.ask("incremental_alter_configs", 1, resources=resources)
    assert {answer.resource_name: answer.error_code for answer in response.responses} == {
        unique: 0,
        f"{unique}-not": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    wait_for(lambda: value_of(wire, TOPIC, unique, "retention.ms") == "1000")


def test_the_broker_is_changed_while_it_runs(wire: WireClient, unique: str) -> None:
    new_topic(wire, unique)
    set_config(wire, BROKER, NODE, "log.segment.delete.delay.ms", "1234")
    try:
        own = describe_configs(wire, BROKER, NODE, "log.segment.delete.delay.ms")
        config = own["log.segment.delete.delay.ms"]
        assert (config.config_source, config.read_only) == (FROM_BROKER, False)
        # A topic without a value of its own has the broker's.
        topics = describe_configs(wire, TOPIC, unique, "file.delete.delay.ms")["file.delete.delay.ms"]
        assert (topics.value, topics.config_source) == ("1234", FROM_BROKER)
        assert synonyms(topics) == [
            ("log.segment.delete.delay.ms", "1234", FROM_BROKER),
            ("log.segment.delete.delay.ms", "60000", FROM_DEFAULT),
        ]
    finally:
        alter(wire, BROKER, NODE, ("log.segment.delete.delay.ms", DELETE, None))
    wait_for(lambda: value_of(wire, BROKER, NODE, "log.segment.delete.delay.ms") == "60000")


def test_all_brokers_are_changed_at_once(wire: WireClient, unique: str) -> None:
    assert alter(wire, BROKER, "", ("log.index.interval.bytes", SET, "8192")).error_code == 0
    try:
        wait_for(lambda: value_of(wire, BROKER, NODE, "log.index.interval.bytes") == "8192")
        config = describe_configs(wire, BROKER, NODE, "log.index.interval.bytes")["log.index.interval.bytes"]
        assert config.config_source == FROM_ALL_BROKERS
        # The broker without a number stands for all: it has only what was set for all.
        found = describe_configs(wire, BROKER, "")
        assert found["log.index.interval.bytes"].value == "8192"
        assert "log.retention.bytes" not in found
    finally:
        alter(wire, BROKER, "", ("log.index.interval.bytes", DELETE, None))
    wait_for(lambda: value_of(wire, BROKER, NODE, "log.index.interval.bytes") == "4096")


def test_a_group_is_given_values_of_its_own(wire: WireClient, unique: str) -> None:
    set_config(wire, GROUP, unique, "consumer.session.timeout.ms", "50000")
    found = describe_configs(wire, GROUP, unique, "consumer.session.timeout.ms")
    config = found["consumer.session.timeout.ms"]
    assert (config.config_source, config.value) == (FROM_GROUP, "50000")
    assert synonyms(config)[0] == ("consumer.session.timeout.ms", "50000", FROM_GROUP)


# What is refused, and the words for it

REFUSED: dict[str, tuple[int, str | None, tuple[str, int, str | None], ErrorCode, str]] = {
    "a name nobody has": (
        TOPIC,
        None,
        ("no.such.config", SET, "1"),
        ErrorCode.INVALID_CONFIG,
        "Unknown topic config name: no.such.config",
    ),
    "no number": (
        TOPIC,
        None,
        ("retention.ms", SET, "soon"),
        ErrorCode.INVALID_CONFIG,
        "Invalid value soon for configuration retention.ms: Not a number of type LONG",
    ),
    "a number too large for its type": (
        TOPIC,
        None,
        ("max.message.bytes", SET, "3000000000"),
        ErrorCode.INVALID_CONFIG,
        "Invalid value 3000000000 for configuration max.message.bytes: Not a number of type INT",
    ),
    "too small": (
        TOPIC,
        None,
        ("retention.ms", SET, "-2"),
        ErrorCode.INVALID_CONFIG,
        "Invalid value -2 for configuration retention.ms: Value must be at least -1",
    ),
    "out of bounds": (
        TOPIC,
        None,
        ("min.cleanable.dirty.ratio", SET, "1.5"),
        ErrorCode.INVALID_CONFIG,
        "Invalid value 1.5 for configuration min.cleanable.dirty.ratio: Value must be no more than 1",
    ),
    "not one of a few": (
        TOPIC,
        None,
        ("message.timestamp.type", SET, "Noon"),
        ErrorCode.INVALID_CONFIG,
        "Invalid value Noon for configuration message.timestamp.type: String must be one of: "
        "CreateTime, LogAppendTime",
    ),
    "not true or false": (
        TOPIC,
        None,
        ("preallocate", SET, "maybe"),
        ErrorCode.INVALID_CONFIG,
        "Invalid value maybe for configuration preallocate: Expected value to be either true or false",
    ),
    "an unknown policy": (
        TOPIC,
        None,
        ("cleanup.policy", SET, "shred"),
        ErrorCode.INVALID_CONFIG,
        "Invalid value shred for configuration cleanup.policy: String must be one of: compact, delete",
    ),
    "set to nothing": (
        TOPIC,
        None,
        ("retention.ms", SET, None),
        ErrorCode.INVALID_REQUEST,
        "Null value not supported for : retention.ms",
    ),
    "added to something that is no list": (
        TOPIC,
        None,
        ("retention.ms", APPEND, "1"),
        ErrorCode.INVALID_CONFIG,
        "Can't APPEND to key retention.ms because its type is not LIST.",
    ),
    "a topic that is not there": (
        TOPIC,
        "no-such-topic",
        ("retention.ms", SET, "1"),
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "The topic 'no-such-topic' does not exist.",
    ),
    "a name that is no name": (
        TOPIC,
        "no such topic",
        ("retention.ms", SET, "1"),
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        "",
    ),
    "a broker that is not there": (
        BROKER,
        "77",
        ("log.retention.ms", SET, "1"),
        ErrorCode.INVALID_REQUEST,
        "",
    ),
    "a kind of thing that has no configs": (
        99,
        "x",
        ("retention.ms", SET, "1"),
        ErrorCode.INVALID_REQUEST,
        "",
    ),
    "the broker's, which cannot be changed while it runs": (
        BROKER,
        NODE,
        ("num.partitions", SET, "3"),
        ErrorCode.INVALID_REQUEST,
        "",
    ),
    "the broker's, which is no number": (
        BROKER,
        NODE,
        ("log.retention.ms", SET, "soon"),
        ErrorCode.INVALID_REQUEST,
        "",
    ),
    "a listener's, for all brokers": (
        BROKER,
        "",
        ("listener.name.plaintext.ssl.keystore.location", SET, "/no/such.jks"),
        ErrorCode.INVALID_REQUEST,
        "",
    ),
    "the mechanisms of all listeners, for all brokers": (
        BROKER,
        "",
        ("sasl.enabled.mechanisms", SET, "PLAIN"),
        ErrorCode.INVALID_REQUEST,
        "",
    ),
    "a group's that nobody has": (
        GROUP,
        None,
        ("no.such.config", SET, "1"),
        ErrorCode.INVALID_CONFIG,
        "Unknown group config name: no.such.config",
    ),
    "a group's below the broker's bound": (
        GROUP,
        None,
        ("consumer.session.timeout.ms", SET, "99"),
        ErrorCode.INVALID_CONFIG,
        "consumer.session.timeout.ms must be greater than or equal to group.consumer.min.session.timeout.ms",
    ),
    "a group's above the broker's bound": (
        GROUP,
        None,
        ("consumer.session.timeout.ms", SET, "60001"),
        ErrorCode.INVALID_CONFIG,
        "consumer.session.timeout.ms must be less than or equal to group.consumer.max.session.timeout.ms",
    ),
    "a group's session shorter than its heartbeat": (
        GROUP,
        None,
        ("consumer.session.timeout.ms", SET, "4000"),
        ErrorCode.INVALID_CONFIG,
        "",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_change_that_cannot_be_is_refused(wire: WireClient, unique: str, what: str) -> None:
    kind, name, change, code, message = REFUSED[what]
    if kind == TOPIC and name is None:
        new_topic(wire, unique)
    answer = alter(wire, kind, unique if name is None else name, change)
    assert ErrorCode(answer.error_code) == code
    assert answer.error_message
    assert message in ("", answer.error_message)


def test_an_operation_nobody_knows_is_refused(wire: WireClient, unique: str) -> None:
    # With which code is left open: Kafka's -1 is no more than an exception nobody has thought of.
    new_topic(wire, unique)
    assert alter(wire, TOPIC, unique, ("retention.ms", 9, "1")).error_code != 0
    assert value_of(wire, TOPIC, unique, "retention.ms") == "604800000"


def test_a_config_named_twice_is_refused(wire: WireClient, unique: str) -> None:
    new_topic(wire, unique)
    answer = alter(wire, TOPIC, unique, ("retention.ms", SET, "1"), ("retention.ms", SET, "2"))
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert answer.error_message


def test_replacing_all_configs_checks_them_too(wire: WireClient, unique: str) -> None:
    new_topic(wire, unique, configs={"segment.ms": "5000"})

    def replace(name: str, value: str | None) -> Any:
        configs = [{"name": name, "value": value}]
        resource = {"resource_type": TOPIC, "resource_name": unique, "configs": configs}
        return wire.ask("alter_configs", 2, resources=[resource]).responses[0]

    answer = replace("retention.ms", "soon")
    assert (answer.error_code, answer.error_message) == (
        ErrorCode.INVALID_CONFIG,
        "Invalid value soon for configuration retention.ms: Not a number of type LONG",
    )
    assert replace("retention.ms", None).error_code == ErrorCode.INVALID_REQUEST
    assert value_of(wire, TOPIC, unique, "segment.ms") == "5000"


# What is listed


def test_things_with_configs_are_listed_by_kind(
    broker: BrokerUnderTest, wire: WireClient, unique: str
) -> None:
    new_topic(wire, unique)
    set_config(wire, GROUP, unique, "consumer.session.timeout.ms", "50000")

    def listed(*kinds: int) -> set[tuple[int, str]]:
        response = wire.ask("list_config_resources", 1, resource_types=list(kinds))
        assert response.error_code == 0
        return {(one.resource_type, one.resource_name) for one in response.config_resources}

    assert (TOPIC, unique) in listed(TOPIC)
    assert {kind for kind, _ in listed(TOPIC)} == {TOPIC}
    assert (GROUP, unique) in listed(GROUP)
    assert listed(BROKER) == {(BROKER, str(broker.node_id))}
    everything = listed()
    assert {(TOPIC, unique), (GROUP, unique), (BROKER, str(broker.node_id))} <= everything


def test_a_kind_that_cannot_be_listed_is_refused(wire: WireClient) -> None:
    response = wire.ask("list_config_resources", 1, resource_types=[99])
    assert plain(response) == {
        "throttle_time_ms": 0,
        "error_code": ErrorCode.UNSUPPORTED_VERSION,
        "config_resources": [],
    }
