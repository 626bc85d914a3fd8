"""ListOffsets (2) and OffsetForLeaderEpoch (23): which offset belongs to a time, or to a leader's epoch."""

from typing import Any

import pytest

from headrace.wire.errors import ErrorCode
from headrace.wire.records import NewRecord, build_batch
from tests.conformance.plain import plain
from tests.conformance.steps import (
    READ_COMMITTED,
    batch,
    init_producer,
    list_offset,
    new_topic,
    now_ms,
    produced,
    transactional_batch,
)
from tests.conformance.wire_client import WireClient

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, PENDING_UPLOAD = -1, -2, -3, -4, -5, -6
NOTHING = {"timestamp": -1, "offset": -1, "leader_epoch": -1}


def ask(wire: WireClient, topic: str, timestamp: int, **options: Any) -> dict[str, int]:
    found = plain(list_offset(wire, topic, options.pop("partition", 0), timestamp, **options))
    assert found.pop("partition_index") == 0
    code = found.pop("error_code")
    assert code == 0, ErrorCode(code)
    return found


@pytest.fixture
def times(wire: WireClient, unique: str) -> int:
    """A topic whose records are of +0, +2000, +1000 and +3000 ms after the time returned."""
    new_topic(wire, unique)
    start = now_ms() - 60_000
    for shift in (0, 2000, 1000, 3000):
        produced(wire, unique, batch("value", timestamp=start + shift))
    return start


def test_the_ends_of_a_log(wire: WireClient, unique: str, times: int) -> None:
    assert ask(wire, unique, LATEST) == {"timestamp": -1, "offset": 4, "leader_epoch": 0}
    assert ask(wire, unique, EARLIEST) == {"timestamp": -1, "offset": 0, "leader_epoch": 0}
    assert ask(wire, unique, EARLIEST_LOCAL) == {"timestamp": -1, "offset": 0, "leader_epoch": 0}


def test_an_empty_log(wire: WireClient, unique: str) -> None:
    new_topic(wire, unique)
    assert ask(wire, unique, LATEST)["offset"] == 0
    assert ask(wire, unique, EARLIEST)["offset"] == 0
    assert ask(wire, unique, 0) == NOTHING
    assert ask(wire, unique, MAX_TIMESTAMP) == NOTHING


@pytest.mark.parametrize("timestamp", [LATEST_TIERED, PENDING_UPLOAD])
def test_nothing_is_in_another_tier(wire: WireClient, unique: str, times: int, timestamp: int) -> None:
    assert ask(wire, unique, timestamp) == {**NOTHING, "leader_epoch": -1}


@pytest.mark.parametrize(
    ("shift", "offset", "found"),
    [(-5000, 0, 0), (0, 0, 0), (1, 1, 2000), (1500, 1, 2000), (2000, 1, 2000), (2001, 3, 3000)],
)
def test_a_time_means_the_first_record_as_late_as_that(
    wire: WireClient, unique: str, times: int, shift: int, offset: int, found: int
) -> None:
    expected = {"timestamp": times + found, "offset": offset, "leader_epoch": 0}
    assert ask(wire, unique, times + shift) == expected


def test_after_the_last_record_there_is_none(wire: WireClient, unique: str, times: int) -> None:
    assert ask(wire, unique, times + 3001) == NOTHING


def test_the_latest_record_by_time(wire: WireClient, unique: str) -> None:
    new_topic(wire, unique)
    start = now_ms() - 60_000
    for shift in (0, 2000, 1000):
        produced(wire, unique, batch("value", timestamp=start + shift))
    expected = {"timestamp": start + 2000, "offset": 1, "leader_epoch": 0}
    assert ask(wire, unique, MAX_TIMESTAMP) == expected


def test_a_time_within_a_batch_means_the_record(wire: WireClient, unique: str) -> None:
    new_topic(wire, unique)
    start = now_ms() - 60_000
    produced(wire, unique, build_batch([NewRecord(None, b"v", (), start + 10 * n) for n in range(5)]))
    assert ask(wire, unique, start + 11) == {"timestamp": start + 20, "offset": 2, "leader_epoch": 0}
    assert ask(wire, unique, MAX_TIMESTAMP)["offset"] == 4


def test_an_open_transaction_is_the_end_for_those_who_read_committed(wire: WireClient, unique: str) -> None:
    new_topic(wire, unique)
    when = now_ms()
    produced(wire, unique, batch("value", timestamp=when - 1000))
    producer = init_producer(wire, unique)
    produced(wire, unique, transactional_batch(producer, 0, "open"), transactional_id=unique)
    assert ask(wire, unique, LATEST)["offset"] == 2
    assert ask(wire, unique, LATEST, isolation=READ_COMMITTED)["offset"] == 1
    assert ask(wire, unique, when)["offset"] == 1
    assert ask(wire, unique, when, isolation=READ_COMMITTED) == NOTHING


@pytest.mark.parametrize(
    ("timestamp", "version"),
    [(MAX_TIMESTAMP, 6), (EARLIEST_LOCAL, 7), (LATEST_TIERED, 8), (PENDING_UPLOAD, 10)],
)
def test_special_times_are_for_those_who_know_them(
    wire: WireClient, unique: str, times: int, timestamp: int, version: int
) -> None:
    found = list_offset(wire, unique, 0, timestamp, version=version)
    assert found.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert (found.timestamp, found.offset) == (-1, -1)


@pytest.mark.parametrize("timestamp", [-7, -(2**31)])
def test_special_times_nobody_knows_yet_are_refused(
    wire: WireClient, unique: str, times: int, timestamp: int
) -> None:
    found = list_offset(wire, unique, 0, timestamp)
    assert (found.error_code, found.offset) == (ErrorCode.UNSUPPORTED_VERSION, -1)


def test_an_unknown_partition_is_refused(wire: WireClient, unique: str) -> None:
    expected = {"error_code": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "partition_index": 0, **NOTHING}
    assert plain(list_offset(wire, unique, 0, LATEST)) == expected
    new_topic(wire, unique)
    assert plain(list_offset(wire, unique, 3, LATEST)) == {**expected, "partition_index": 3}


def test_a_partition_asked_for_twice_is_refused(wire: WireClient, unique: str, times: int) -> None:
    partitions = [{"partition_index": 0, "timestamp": timestamp} for timestamp in (LATEST, EARLIEST)]
    response = wire.ask(
        "list_offsets", 11, replica_id=-1, topics=[{"name": unique, "partitions": partitions}]
    )
    codes = {partition.error_code for topic in response.topics for partition in topic.partitions}
    assert codes == {ErrorCode.INVALID_REQUEST}


@pytest.mark.parametrize(("epoch", "code"), [(0, 0), (1, ErrorCode.UNKNOWN_LEADER_EPOCH)])
def test_a_leader_epoch_must_be_the_leaders(
    wire: WireClient, unique: str, times: int, epoch: int, code: int
) -> None:
    partition = {"partition_index": 0, "timestamp": LATEST, "current_leader_epoch": epoch}
    response = wire.ask(
        "list_offsets", 11, replica_id=-1, topics=[{"name": unique, "partitions": [partition]}]
    )
    assert response.topics[0].partitions[0].error_code == code


@pytest.mark.parametrize(
    ("asked", "current", "answer"),
    [
        (0, -1, (0, 0, 4)),
        (0, 0, (0, 0, 4)),
        (5, -1, (0, -1, -1)),
        (0, 5, (ErrorCode.UNKNOWN_LEADER_EPOCH, -1, -1)),
    ],
    ids=["known", "known with check", "later than ours", "leader we have not seen"],
)
def test_where_a_leaders_epoch_ends(
    wire: WireClient, unique: str, times: int, asked: int, current: int, answer: tuple[int, int, int]
) -> None:
    partition = {"partition": 0, "current_leader_epoch": current, "leader_epoch": asked}
    response = wire.ask(
        "offset_for_leader_epoch", 4, replica_id=-1, topics=[{"topic": unique, "partitions": [partition]}]
    )
    found = response.topics[0].partitions[0]
    assert (found.error_code, found.leader_epoch, found.end_offset) == answer


def test_an_epoch_of_an_unknown_partition(wire: WireClient, unique: str) -> None:
    partition = {"partition": 0, "leader_epoch": 0}
    response = wire.ask(
        "offset_for_leader_epoch", 4, replica_id=-1, topics=[{"topic": unique, "partitions": [partition]}]
    )
    found = response.topics[0].partitions[0]
    assert (found.error_code, found.leader_epoch, found.end_offset) == (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        -1,
        -1,
    )
