"""Fetch (1) without a session: how much comes back, when, and what is refused."""

import time
from collections.abc import Callable
from typing import Any

import pytest

from headrace.wire.errors import ErrorCode
from tests.conformance.plain import plain
from tests.conformance.steps import (
    batch,
    batches,
    fetch,
    fetch_request,
    new_topic,
    produced,
    values,
    wait_for,
)
from tests.conformance.wire_client import NEVER_MS, WireClient

NOT_FOUND = {
    "partition_index": 0,
    "high_watermark": -1,
    "last_stable_offset": -1,
    "log_start_offset": -1,
    "diverging_epoch": {"epoch": -1, "end_offset": -1},
    "current_leader": {"leader_id": -1, "leader_epoch": -1},
    "snapshot_id": {"end_offset": -1, "epoch": -1},
    "aborted_transactions": [],
    "preferred_read_replica": -1,
    "records": b"",
}


def wanted(partition: int, offset: int, max_bytes: int = 1 << 20) -> dict[str, int]:
    return {"partition": partition, "fetch_offset": offset, "partition_max_bytes": max_bytes}


def sizes(response: Any) -> dict[int, int]:
    """Bytes of records by partition, for an answer about one topic."""
    return {
        partition.partition_index: len(partition.records or b"")
        for topic in response.responses
        for partition in topic.partitions
    }


@pytest.fixture
def filled(wire: WireClient, unique: str) -> int:
    """A topic with ten batches of one record each; returns the size of a batch."""
    new_topic(wire, unique)
    for number in range(10):
        produced(wire, unique, batch(f"{number}"))
    return len(batch("0"))


def test_records_come_from_the_offset_asked_for_on(wire: WireClient, unique: str, filled: int) -> None:
    assert values(fetch(wire, unique, 7).records) == [b"7", b"8", b"9"]


def test_the_batch_that_holds_the_offset_comes_whole(wire: WireClient, unique: str) -> None:
    new_topic(wire, unique)
    produced(wire, unique, batch("0", "1", "2"))
    produced(wire, unique, batch("3"))
    assert values(fetch(wire, unique, 1).records) == [b"0", b"1", b"2", b"3"]


def test_at_the_end_of_the_log_there_is_nothing_yet(wire: WireClient, unique: str, filled: int) -> None:
    answer = fetch(wire, unique, 10)
    assert (answer.error_code, answer.high_watermark, answer.records) == (0, 10, b"")


@pytest.mark.parametrize("offset", [11, -1])
def test_an_offset_outside_the_log_is_refused(
    wire: WireClient, unique: str, filled: int, offset: int
) -> None:
    answer = fetch(wire, unique, offset, max_wait_ms=10_000, min_bytes=1)
    expected = {**NOT_FOUND, "error_code": ErrorCode.OFFSET_OUT_OF_RANGE, "aborted_transactions": None}
    assert plain(answer) == expected


def test_an_offset_before_the_start_is_refused(wire: WireClient, unique: str, filled: int) -> None:
    asked = {"name": unique, "partitions": [{"partition_index": 0, "offset": 4}]}
    wire.ask("delete_records", 2, topics=[asked], timeout_ms=5000)
    assert fetch(wire, unique, 3).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    answer = fetch(wire, unique, 4)
    assert (answer.error_code, answer.log_start_offset) == (0, 4)


def test_an_unknown_partition_is_refused_at_once(wire: WireClient, unique: str) -> None:
    unknown = {**NOT_FOUND, "error_code": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert plain(fetch(wire, unique, 0, max_wait_ms=10_000)) == unknown
    new_topic(wire, unique)
    assert plain(fetch(wire, unique, 0, partition=1)) == {**unknown, "partition_index": 1}


def test_an_unknown_id_is_refused_at_once(wire: WireClient) -> None:
    topic = {"topic_id": bytes(range(16)), "partitions": [wanted(0, 0)]}
    (answer,) = wire.ask("fetch", 13, max_wait_ms=10_000, min_bytes=1, topics=[topic]).responses
    assert answer.topic_id == bytes(range(16))
    assert plain(answer.partitions[0]) == {**NOT_FOUND, "error_code": ErrorCode.UNKNOWN_TOPIC_ID}


def test_a_limit_is_kept_to_whole_batches(wire: WireClient, unique: str, filled: int) -> None:
    answer = fetch(wire, unique, 0, partition_max_bytes=3 * filled + filled // 2)
    assert len(batches(answer.records)) == 3


def test_the_first_batch_comes_even_if_it_is_larger_than_the_limit(
    wire: WireClient, unique: str, filled: int
) -> None:
    # KIP-74: a consumer must be able to go on whatever its limits are.
    for limits in ({"partition_max_bytes": 1}, {"max_bytes": 1}, {"partition_max_bytes": 0}):
        assert values(fetch(wire, unique, 4, **limits).records) == [b"4"]


def test_the_limit_of_the_request_holds_over_all_partitions(wire: WireClient, unique: str) -> None:
    new_topic(wire, unique, partitions=3)
    records = batch("value")
    for partition in range(3):
        for _ in range(4):
            produced(wire, unique, records, partition=partition)

    def ask(max_bytes: int) -> dict[int, int]:
        topic = {"topic": unique, "partitions": [wanted(partition, 0) for partition in range(3)]}
        return sizes(wire.ask("fetch", 12, max_wait_ms=0, min_bytes=1, max_bytes=max_bytes, topics=[topic]))

    assert ask(1 << 20) == {partition: 4 * len(records) for partition in range(3)}
    assert sorted(ask(1).values()) == [0, 0, len(records)]
    assert sum(ask(6 * len(records)).values()) == 6 * len(records)


def test_several_topics_in_one_request(wire: WireClient, unique: str) -> None:
    topics = [f"{unique}-{number}" for number in range(2)]
    for name in topics:
        new_topic(wire, name)
        produced(wire, name, batch(name))
    asked = [{"topic": name, "partitions": [wanted(0, 0)]} for name in [*topics, f"{unique}-not"]]
    response = wire.ask("fetch", 12, max_wait_ms=0, min_bytes=1, topics=asked)
    found = {topic.topic: topic.partitions[0] for topic in response.responses}
    assert [values(found[name].records) for name in topics] == [[name.encode()] for name in topics]
    assert found[f"{unique}-not"].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_request_without_partitions_is_answered_when_its_time_is_up(wire: WireClient) -> None:
    response = wire.ask("fetch", 12, max_wait_ms=50, min_bytes=1)
    assert (response.error_code, response.responses) == (0, [])


def test_a_fetch_waits_until_its_time_is_up(wire: WireClient, unique: str, filled: int) -> None:
    begun = time.monotonic()
    answer = fetch(wire, unique, 10, max_wait_ms=300)
    assert (answer.error_code, answer.records) == (0, b"")
    assert time.monotonic() - begun >= 0.29


def test_a_fetch_does_not_wait_for_no_bytes(wire: WireClient, unique: str, filled: int) -> None:
    assert fetch(wire, unique, 10, max_wait_ms=NEVER_MS, min_bytes=0).error_code == 0


def test_a_waiting_fetch_is_answered_when_a_record_comes(
    wire: WireClient, connect: Callable[[], WireClient], unique: str, filled: int
) -> None:
    reader = connect()
    reader.post_ask("fetch", 12, **fetch_request(unique, 10, max_wait_ms=NEVER_MS))
    produced(wire, unique, batch("news"))
    answer = reader.receive().responses[0].partitions[0]
    assert (values(answer.records), answer.high_watermark) == ([b"news"], 11)


def test_a_waiting_fetch_wants_all_the_bytes_it_asked_for(
    wire: WireClient, connect: Callable[[], WireClient], unique: str, filled: int
) -> None:
    reader = connect()
    records = batch("value")
    wanted_bytes = 3 * len(records)
    reader.post_ask("fetch", 12, **fetch_request(unique, 10, max_wait_ms=NEVER_MS, min_bytes=wanted_bytes))
    for _ in range(3):
        produced(wire, unique, records)
    assert values(reader.receive().responses[0].partitions[0].records) == [b"value"] * 3


def test_too_few_bytes_come_when_the_time_is_up(wire: WireClient, unique: str, filled: int) -> None:
    answer = fetch(wire, unique, 9, max_wait_ms=100, min_bytes=1 << 20)
    assert values(answer.records) == [b"9"]


def test_waiting_fetches_on_other_connections_hold_back_nobody(
    wire: WireClient, connect: Callable[[], WireClient], unique: str, filled: int
) -> None:
    readers = [connect() for _ in range(20)]
    for reader in readers:
        reader.post_ask("fetch", 12, **fetch_request(unique, 10, max_wait_ms=NEVER_MS))
    assert values(fetch(wire, unique, 9).records) == [b"9"]
    produced(wire, unique, batch("for all"))
    for reader in readers:
        assert values(reader.receive().responses[0].partitions[0].records) == [b"for all"]


def test_a_reader_that_leaves_while_it_waits_disturbs_nobody(
    wire: WireClient, connect: Callable[[], WireClient], unique: str, filled: int
) -> None:
    leaving, staying = connect(), connect()
    for reader in (leaving, staying):
        reader.post_ask("fetch", 12, **fetch_request(unique, 10, max_wait_ms=NEVER_MS))
    leaving.close()
    produced(wire, unique, batch("news"))
    assert values(staying.receive().responses[0].partitions[0].records) == [b"news"]


def test_a_waiting_fetch_is_told_when_its_topic_is_deleted(
    wire: WireClient, connect: Callable[[], WireClient], unique: str, filled: int
) -> None:
    reader = connect()
    reader.post_ask("fetch", 12, **fetch_request(unique, 10, max_wait_ms=NEVER_MS))
    time.sleep(0.05)  # a parked request shows no sign: give it time to be parked
    wire.ask("delete_topics", 5, topic_names=[unique], timeout_ms=5000)
    answer = reader.receive().responses[0].partitions[0]
    assert answer.error_code in (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
    )


def test_requests_behind_a_waiting_fetch_wait_for_it(
    wire: WireClient, connect: Callable[[], WireClient], unique: str, filled: int
) -> None:
    reader = connect()
    reader.post_ask("fetch", 12, **fetch_request(unique, 10, max_wait_ms=NEVER_MS))
    reader.post_ask("metadata", 12, topics=[{"name": unique}])
    time.sleep(0.05)  # a parked request shows no sign: give it time to be parked
    produced(wire, unique, batch("news"))
    assert values(reader.receive().responses[0].partitions[0].records) == [b"news"]
    assert reader.receive().topics[0].name == unique


@pytest.mark.parametrize(
    ("epoch", "code"),
    [(0, 0), (5, ErrorCode.UNKNOWN_LEADER_EPOCH), (-1, 0)],
    ids=["current", "later", "none"],
)
def test_a_leader_epoch_must_be_the_leaders(
    wire: WireClient, unique: str, filled: int, epoch: int, code: int
) -> None:
    assert fetch(wire, unique, 0, leader_epoch=epoch).error_code == code


def test_a_fetch_that_knows_another_history_is_told_where_they_part(
    wire: WireClient, unique: str, filled: int
) -> None:
    # KIP-595: a reader that last saw records of an epoch we have not seen learns our own.
    topic = {"topic": unique, "partitions": [{**wanted(0, 5), "last_fetched_epoch": 0}]}
    (answer,) = wire.ask("fetch", 12, max_wait_ms=0, min_bytes=1, topics=[topic]).responses
    assert values(answer.partitions[0].records) == [b"5", b"6", b"7", b"8", b"9"]


def test_deleted_and_made_again_a_topic_has_another_id(wire: WireClient, unique: str) -> None:
    old = new_topic(wire, unique)
    produced(wire, unique, batch("old"))
    wire.ask("delete_topics", 5, topic_names=[unique], timeout_ms=5000)
    wait_for(lambda: fetch(wire, unique, 0).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    new = new_topic(wire, unique)
    assert old != new

    def ask(topic_id: bytes) -> Any:
        topic = {"topic_id": topic_id, "partitions": [wanted(0, 0)]}
        (answer,) = wire.ask("fetch", 13, max_wait_ms=0, min_bytes=0, topics=[topic]).responses
        return answer.partitions[0]

    assert ask(old).error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert (ask(new).error_code, ask(new).high_watermark) == (0, 0)
