"""Topics: made, grown, emptied and deleted, and every way in which that is refused."""

from typing import Any

import pytest

from headrace.wire.errors import ErrorCode
from headrace.wire.message import ZERO_UUID
from tests.conformance.plain import ANY, plain
from tests.conformance.steps import (
    batch,
    end_offset,
    fetch,
    list_offset,
    new_topic,
    produce,
    produced,
    topic_id_of,
    values,
    wait_for,
    wait_until_led,
)
from tests.conformance.wire_client import WireClient


def create(wire: WireClient, *topics: dict[str, Any], validate_only: bool = False) -> list[Any]:
    wanted = [{"num_partitions": 1, "replication_factor": 1, **topic} for topic in topics]
    return list(
        wire.ask("create_topics", 7, topics=wanted, timeout_ms=5000, validate_only=validate_only).topics
    )


def grow(wire: WireClient, name: str, count: int, **fields: Any) -> Any:
    topic = {"name": name, "count": count, "assignments": None, **fields}
    return wire.ask("create_partitions", 3, topics=[topic], timeout_ms=5000).results[0]


def delete_records(wire: WireClient, topic: str, offset: int, partition: int = 0) -> Any:
    asked = {"name": topic, "partitions": [{"partition_index": partition, "offset": offset}]}
    return wire.ask("delete_records", 2, topics=[asked], timeout_ms=5000).topics[0].partitions[0]


def config(name: str, value: str | None) -> list[dict[str, str | None]]:
    return [{"name": name, "value": value}]


REFUSED: dict[str, tuple[dict[str, Any], ErrorCode, Any]] = {
    "no partitions": (
        {"num_partitions": 0},
        ErrorCode.INVALID_PARTITIONS,
        "Number of partitions was set to an invalid non-positive value.",
    ),
    "fewer than no partitions": (
        {"num_partitions": -2},
        ErrorCode.INVALID_PARTITIONS,
        "Number of partitions was set to an invalid non-positive value.",
    ),
    "no replicas": (
        {"replication_factor": 0},
        ErrorCode.INVALID_REPLICATION_FACTOR,
        "Replication factor must be larger than 0, or -1 to use the default value.",
    ),
    "more replicas than brokers": (
        {"replication_factor": 2},
        ErrorCode.INVALID_REPLICATION_FACTOR,
        ANY,
    ),
    "an unknown config": (
        {"configs": config("no.such.config", "1")},
        ErrorCode.INVALID_CONFIG,
        "Unknown topic config name: no.such.config",
    ),
    "a config that is no number": (
        {"configs": config("retention.ms", "soon")},
        ErrorCode.INVALID_CONFIG,
        "Invalid value soon for configuration retention.ms: Not a number of type LONG",
    ),
    "a config out of range": (
        {"configs": config("retention.ms", "-2")},
        ErrorCode.INVALID_CONFIG,
        "Invalid value -2 for configuration retention.ms: Value must be at least -1",
    ),
    "a config that is no choice": (
        {"configs": config("compression.type", "rar")},
        ErrorCode.INVALID_CONFIG,
        "Invalid value rar for configuration compression.type: String must be one of: "
        "uncompressed, zstd, lz4, snappy, gzip, producer",
    ),
    "a config without a value": (
        {"configs": config("retention.ms", None)},
        ErrorCode.INVALID_CONFIG,
        "Null value not supported for topic configs: retention.ms",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
@pytest.mark.parametrize("validate_only", [True, False], ids=["ask", "do"])
def test_a_topic_that_cannot_be_is_refused(
    wire: WireClient, unique: str, what: str, validate_only: bool
) -> None:
    fields, code, message = REFUSED[what]
    (answer,) = create(wire, {"name": unique, **fields}, validate_only=validate_only)
    assert plain(answer) == {
        "name": unique,
        "topic_id": ZERO_UUID,
        "error_code": code,
        "error_message": message,
        "topic_config_error_code": 0,
        "num_partitions": -1,
        "replication_factor": -1,
        "configs": [],
    }
    assert answer.error_message
    assert topic_id_of(wire, unique) == ZERO_UUID


INVALID_NAMES = {
    "": "Topic name is invalid: the empty string is not allowed",
    ".": "Topic name is invalid: '.' is not allowed",
    "..": "Topic name is invalid: '..' is not allowed",
    "has space": "Topic name is invalid: 'has space' contains one or more characters other than ASCII "
    "alphanumerics, '.', '_' and '-'",
    "x"
    * 250: f"Topic name is invalid: the length of '{'x' * 250}' is longer than the max allowed length 249",
}


@pytest.mark.parametrize("name", INVALID_NAMES)
def test_a_name_that_is_no_name_is_refused(wire: WireClient, name: str) -> None:
    (answer,) = create(wire, {"name": name})
    assert (answer.error_code, answer.error_message) == (
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        INVALID_NAMES[name],
    )


def test_dots_and_underscores_collide(wire: WireClient, unique: str) -> None:
    # In names of metrics both become underscores.
    new_topic(wire, f"{unique}.a")
    (answer,) = create(wire, {"name": f"{unique}_a"})
    assert (answer.error_code, answer.error_message) == (
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        f"Topic '{unique}_a' collides with existing topic: {unique}.a",
    )


def test_a_topic_that_exists_is_not_made_again(wire: WireClient, unique: str) -> None:
    topic_id = new_topic(wire, unique)
    (answer,) = create(wire, {"name": unique, "num_partitions": 5})
    assert (answer.error_code, answer.error_message) == (
        ErrorCode.TOPIC_ALREADY_EXISTS,
        f"Topic '{unique}' already exists.",
    )
    assert topic_id_of(wire, unique) == topic_id


def test_a_topic_named_twice_is_not_made_at_all(wire: WireClient, unique: str) -> None:
    answers = create(wire, {"name": unique}, {"name": unique}, {"name": f"{unique}-other"})
    assert {(answer.name, answer.error_code) for answer in answers} == {
        (unique, ErrorCode.INVALID_REQUEST),
        (f"{unique}-other", 0),
    }
    assert topic_id_of(wire, unique) == ZERO_UUID


def test_only_asking_makes_nothing(wire: WireClient, unique: str) -> None:
    (answer,) = create(wire, {"name": unique, "num_partitions": 3}, validate_only=True)
    assert (answer.error_code, answer.num_partitions, answer.replication_factor) == (0, 3, 1)
    assert topic_id_of(wire, unique) == ZERO_UUID


def test_minus_one_means_the_brokers_default(wire: WireClient, unique: str) -> None:
    (answer,) = create(wire, {"name": unique, "num_partitions": -1, "replication_factor": -1})
    assert (answer.error_code, answer.num_partitions, answer.replication_factor) == (0, 1, 1)


def test_replicas_may_be_given_by_hand(wire: WireClient, unique: str) -> None:
    by_hand = [{"partition_index": index, "broker_ids": [1]} for index in range(2)]
    topic = {"name": unique, "num_partitions": -1, "replication_factor": -1, "assignments": by_hand}
    (answer,) = create(wire, topic)
    assert (answer.error_code, answer.num_partitions) == (0, 2)
    wait_until_led(wire, unique, partitions=2)


@pytest.mark.parametrize(
    ("by_hand", "fields"),
    [
        ([{"partition_index": 0, "broker_ids": [99]}], {}),
        ([{"partition_index": 1, "broker_ids": [1]}], {}),
        ([{"partition_index": 0, "broker_ids": []}], {}),
        ([{"partition_index": 0, "broker_ids": [1, 1]}], {}),
    ],
    ids=["unknown broker", "a gap", "no broker", "one broker twice"],
)
def test_replicas_by_hand_must_make_sense(
    wire: WireClient, unique: str, by_hand: list[dict[str, Any]], fields: dict[str, Any]
) -> None:
    topic = {"name": unique, "num_partitions": -1, "replication_factor": -1, "assignments": by_hand}
    (answer,) = create(wire, {**topic, **fields})
    assert answer.error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert answer.error_message


def test_replicas_by_hand_and_a_number_do_not_go_together(wire: WireClient, unique: str) -> None:
    by_hand = [{"partition_index": 0, "broker_ids": [1]}]
    (answer,) = create(wire, {"name": unique, "num_partitions": 1, "assignments": by_hand})
    assert answer.error_code == ErrorCode.INVALID_REQUEST


def test_a_topic_is_deleted_by_its_id(wire: WireClient, unique: str) -> None:
    topic_id = new_topic(wire, unique)
    asked = {"name": None, "topic_id": topic_id}
    (answer,) = wire.ask("delete_topics", 6, topics=[asked], timeout_ms=5000).responses
    assert plain(answer) == {"name": unique, "topic_id": topic_id, "error_code": 0, "error_message": None}
    wait_for(lambda: topic_id_of(wire, unique) == ZERO_UUID)


def test_what_is_not_there_cannot_be_deleted(wire: WireClient, unique: str) -> None:
    asked = [{"name": unique}, {"name": None, "topic_id": bytes(range(16))}]
    response = wire.ask("delete_topics", 6, topics=asked, timeout_ms=5000)
    answers = {(answer.name, answer.topic_id): answer.error_code for answer in response.responses}
    assert answers == {
        (unique, ZERO_UUID): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        (None, bytes(range(16))): ErrorCode.UNKNOWN_TOPIC_ID,
    }
    assert all(answer.error_message for answer in response.responses)


def test_a_deletion_by_name_and_id_at_once_is_refused(wire: WireClient, unique: str) -> None:
    topic_id = new_topic(wire, unique)
    asked = {"name": unique, "topic_id": topic_id}
    (answer,) = wire.ask("delete_topics", 6, topics=[asked], timeout_ms=5000).responses
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert topic_id_of(wire, unique) == topic_id


def test_a_topic_named_twice_is_not_deleted(wire: WireClient, unique: str) -> None:
    topic_id = new_topic(wire, unique)
    response = wire.ask("delete_topics", 6, topics=[{"name": unique}, {"name": unique}], timeout_ms=5000)
    assert {answer.error_code for answer in response.responses} == {ErrorCode.INVALID_REQUEST}
    assert topic_id_of(wire, unique) == topic_id


def test_a_deleted_topic_is_gone_with_its_records(wire: WireClient, unique: str) -> None:
    new_topic(wire, unique)
    produced(wire, unique, batch("old"))
    wire.ask("delete_topics", 5, topic_names=[unique], timeout_ms=5000)
    wait_for(lambda: topic_id_of(wire, unique) == ZERO_UUID)
    wait_for(lambda: fetch(wire, unique, 0).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert produce(wire, unique, batch("new")).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    new_topic(wire, unique)
    assert end_offset(wire, unique) == 0


def test_a_topic_grows(wire: WireClient, unique: str) -> None:
    new_topic(wire, unique)
    produced(wire, unique, batch("kept"))
    answer = grow(wire, unique, 3)
    assert (answer.error_code, answer.error_message) == (0, None)
    wait_until_led(wire, unique, partitions=3)
    assert produced(wire, unique, batch("new"), partition=2) == 0
    assert values(fetch(wire, unique, 0).records) == [b"kept"]


GROW_REFUSED: dict[str, tuple[int, ErrorCode, str]] = {
    "fewer": (
        1,
        ErrorCode.INVALID_PARTITIONS,
        "The topic {name} currently has 2 partition(s); 1 would not be an increase.",
    ),
    "as many": (2, ErrorCode.INVALID_PARTITIONS, "Topic already has 2 partition(s)."),
    "none": (
        0,
        ErrorCode.INVALID_PARTITIONS,
        "The topic {name} currently has 2 partition(s); 0 would not be an increase.",
    ),
}


@pytest.mark.parametrize("what", GROW_REFUSED)
def test_a_topic_does_not_shrink(wire: WireClient, unique: str, what: str) -> None:
    count, code, message = GROW_REFUSED[what]
    new_topic(wire, unique, partitions=2)
    answer = grow(wire, unique, count)
    assert (answer.error_code, answer.error_message) == (code, message.format(name=unique))


def test_a_topic_that_is_not_there_does_not_grow(wire: WireClient, unique: str) -> None:
    assert grow(wire, unique, 3).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_only_asking_grows_nothing(wire: WireClient, unique: str) -> None:
    new_topic(wire, unique)
    topic = {"name": unique, "count": 3, "assignments": None}
    (answer,) = wire.ask("create_partitions", 3, topics=[topic], timeout_ms=5000, validate_only=True).results
    assert answer.error_code == 0
    assert produce(wire, unique, batch("x"), partition=2).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize(
    ("by_hand", "code"),
    [
        ([[1], [1]], 0),
        ([[1]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([[1], [99]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
    ids=["right", "too few", "unknown broker"],
)
def test_new_partitions_may_be_placed_by_hand(
    wire: WireClient, unique: str, by_hand: list[list[int]], code: int
) -> None:
    new_topic(wire, unique)
    answer = grow(wire, unique, 3, assignments=[{"broker_ids": brokers} for brokers in by_hand])
    assert answer.error_code == code


def test_records_are_deleted_up_to_an_offset(wire: WireClient, unique: str) -> None:
    new_topic(wire, unique)
    for number in range(5):
        produced(wire, unique, batch(str(number)))
    answer = delete_records(wire, unique, 3)
    assert (answer.error_code, answer.low_watermark) == (0, 3)
    assert list_offset(wire, unique, 0, -2).offset == 3
    assert fetch(wire, unique, 2).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert values(fetch(wire, unique, 3).records) == [b"3", b"4"]
    # An offset that is deleted already leaves the start where it is.
    again = delete_records(wire, unique, 1)
    assert (again.error_code, again.low_watermark) == (0, 3)


def test_an_offset_within_a_batch_keeps_the_batch(wire: WireClient, unique: str) -> None:
    new_topic(wire, unique)
    produced(wire, unique, batch("0", "1", "2"))
    assert delete_records(wire, unique, 1).low_watermark == 1
    assert list_offset(wire, unique, 0, -2).offset == 1
    assert values(fetch(wire, unique, 1).records) == [b"0", b"1", b"2"]


def test_minus_one_deletes_everything(wire: WireClient, unique: str) -> None:
    new_topic(wire, unique)
    produced(wire, unique, batch("0", "1"))
    answer = delete_records(wire, unique, -1)
    assert (answer.error_code, answer.low_watermark) == (0, 2)
    assert produced(wire, unique, batch("2")) == 2
    assert values(fetch(wire, unique, 2).records) == [b"2"]


@pytest.mark.parametrize("offset", [3, -2])
def test_an_offset_outside_the_log_deletes_nothing(wire: WireClient, unique: str, offset: int) -> None:
    new_topic(wire, unique)
    produced(wire, unique, batch("0", "1"))
    answer = delete_records(wire, unique, offset)
    assert (answer.error_code, answer.low_watermark) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert list_offset(wire, unique, 0, -2).offset == 0


def test_records_of_an_unknown_partition_cannot_be_deleted(wire: WireClient, unique: str) -> None:
    unknown = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
    answer = delete_records(wire, unique, 0)
    assert (answer.error_code, answer.low_watermark) == unknown
    new_topic(wire, unique)
    answer = delete_records(wire, unique, 0, partition=4)
    assert (answer.error_code, answer.low_watermark) == unknown


def test_a_compacted_topic_lets_nobody_delete_its_records(wire: WireClient, unique: str) -> None:
    new_topic(wire, unique, configs={"cleanup.policy": "compact"})
    produced(wire, unique, batch("value", key=b"key"))
    assert delete_records(wire, unique, 1).error_code == ErrorCode.POLICY_VIOLATION
