"""Produce (0): what is taken, how it is acknowledged, and how it is kept."""

from collections.abc import Callable
from typing import Any

import pytest

from headrace.wire.batches import Compression, read_header
from headrace.wire.errors import ErrorCode
from headrace.wire.records import NewRecord, build_batch, read_records
from tests.conformance.conftest import BrokerUnderTest
from tests.conformance.plain import plain
from tests.conformance.steps import (
    batch,
    batches,
    commit,
    end_offset,
    fetch,
    list_offset,
    new_topic,
    now_ms,
    produce,
    produced,
    topic_id_of,
    values,
    wait_for,
)
from tests.conformance.wire_client import WireClient

CODECS = {codec.name.lower(): codec for codec in Compression}


def stored(wire: WireClient, topic: str) -> list[bytes]:
    return batches(fetch(wire, topic, 0).records)


@pytest.mark.parametrize("acks", [1, -1], ids=["leader", "all"])
def test_records_are_there_once_they_are_acknowledged(wire: WireClient, unique: str, acks: int) -> None:
    new_topic(wire, unique)
    assert produced(wire, unique, batch("one", "two"), acks=acks) == 0
    assert produced(wire, unique, batch("three"), acks=acks) == 2
    assert values(fetch(wire, unique, 0).records) == [b"one", b"two", b"three"]


def test_acks_0_is_not_answered(wire: WireClient, unique: str) -> None:
    new_topic(wire, unique)
    partition = {"index": 0, "records": batch("value")}
    wire.post_ask("produce", 12, acks=0, topic_data=[{"name": unique, "partition_data": [partition]}])
    # The next response on the connection is already that to the next request.
    assert end_offset(wire, unique) == 1


def test_acks_0_for_a_topic_that_is_not_there_closes_the_connection(wire: WireClient, unique: str) -> None:
    # There is no response to carry the error, and a client that reconnects asks for metadata again.
    partition = {"index": 0, "records": batch("value")}
    wire.post_ask("produce", 12, acks=0, topic_data=[{"name": unique, "partition_data": [partition]}])
    assert wire.receive_frame() is None


@pytest.mark.parametrize("acks", [2, -2])
def test_acks_other_than_none_one_and_all_are_refused(wire: WireClient, unique: str, acks: int) -> None:
    new_topic(wire, unique)
    answer = produce(wire, unique, batch("value"), acks=acks)
    assert (answer.error_code, answer.base_offset) == (ErrorCode.INVALID_REQUIRED_ACKS, -1)
    assert end_offset(wire, unique) == 0


def test_a_topic_that_is_not_there_is_not_made(wire: WireClient, unique: str) -> None:
    answer = produce(wire, unique, batch("value"))
    assert plain(answer) == {
        "index": 0,
        "error_code": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "base_offset": -1,
        "log_append_time_ms": -1,
        "log_start_offset": -1,
        "record_errors": [],
        "error_message": None,
        "current_leader": {"leader_id": -1, "leader_epoch": -1},
    }
    assert topic_id_of(wire, unique) == bytes(16)


def test_a_partition_that_is_not_there_is_refused(wire: WireClient, unique: str) -> None:
    new_topic(wire, unique)
    for index in (1, -1):
        answer = produce(wire, unique, batch("value"), partition=index)
        assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_an_id_that_is_not_there_has_an_error_of_its_own(wire: WireClient) -> None:
    partition = {"index": 0, "records": batch("value")}
    nobodys = bytes(range(16))
    (topic,) = wire.ask(
        "produce", 13, acks=-1, topic_data=[{"topic_id": nobodys, "partition_data": [partition]}]
    ).responses
    assert topic.topic_id == nobodys
    assert topic.partition_responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_each_partition_of_a_request_is_answered_for_itself(wire: WireClient, unique: str) -> None:
    new_topic(wire, unique, partitions=2)
    data = [
        {"index": 0, "records": batch("zero")},
        {"index": 7, "records": batch("nowhere")},
        {"index": 1, "records": batch("one", "two")},
    ]
    topics = [
        {"name": unique, "partition_data": data},
        {"name": f"{unique}-not", "partition_data": data[:1]},
    ]
    response = wire.ask("produce", 12, acks=-1, topic_data=topics)
    assert {
        (topic.name, partition.index): (partition.error_code, partition.base_offset)
        for topic in response.responses
        for partition in topic.partition_responses
    } == {
        (unique, 0): (0, 0),
        (unique, 7): (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
        (unique, 1): (0, 0),
        (f"{unique}-not", 0): (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
    }


def test_a_request_without_topics_is_answered(wire: WireClient) -> None:
    assert wire.ask("produce", 12, acks=-1).responses == []


@pytest.mark.parametrize("codec", CODECS)
def test_a_batch_comes_back_as_it_was_packed(wire: WireClient, unique: str, codec: str) -> None:
    new_topic(wire, unique)
    records = batch("one" * 100, "two" * 100, compression=CODECS[codec])
    produced(wire, unique, records)
    (kept,) = stored(wire, unique)
    # Base offset, length and leader epoch are the broker's; all else is the client's, bit for bit.
    assert kept[16:] == records[16:]
    assert read_header(kept).compression == CODECS[codec]


@pytest.mark.parametrize("setting", ["gzip", "snappy", "lz4", "zstd", "uncompressed"])
@pytest.mark.parametrize("sent", ["none", "lz4"])
def test_a_topic_may_have_a_codec_of_its_own(wire: WireClient, unique: str, setting: str, sent: str) -> None:
    new_topic(wire, unique, configs={"compression.type": setting})
    assert produced(wire, unique, batch("one" * 100, "two" * 100, compression=CODECS[sent])) == 0
    (kept,) = stored(wire, unique)
    assert read_header(kept).compression == CODECS["none" if setting == "uncompressed" else setting]
    assert values(kept) == [b"one" * 100, b"two" * 100]


def test_zstd_is_for_clients_that_know_it(wire: WireClient, unique: str) -> None:
    # KIP-110: a consumer as old as a producer of v6 could not read the batch.
    new_topic(wire, unique)
    answer = produce(wire, unique, batch("value", compression=Compression.ZSTD), version=6)
    assert answer.error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert end_offset(wire, unique) == 0


def test_the_brokers_time_is_kept_where_the_topic_says_so(
    broker: BrokerUnderTest, wire: WireClient, unique: str
) -> None:
    new_topic(wire, unique, configs={"message.timestamp.type": "LogAppendTime"})
    before = broker.now_ms()
    answer = produce(wire, unique, batch("one", "two", timestamp=1000))
    assert answer.error_code == 0
    assert before <= answer.log_append_time_ms <= broker.now_ms()
    (kept,) = stored(wire, unique)
    assert read_header(kept).is_log_append_time
    assert {record.timestamp for record in read_records(kept)} == {answer.log_append_time_ms}


def test_the_leader_epoch_is_written_into_the_batch(wire: WireClient, unique: str) -> None:
    new_topic(wire, unique)
    produced(wire, unique, batch("value", leader_epoch=77))
    header = read_header(stored(wire, unique)[0])
    assert (header.leader_epoch, header.base_offset) == (0, 0)


def test_headers_keys_and_nulls_survive(wire: WireClient, unique: str) -> None:
    new_topic(wire, unique)
    when = now_ms()
    sent = [
        NewRecord(b"key", None, [("h", b"1"), ("h", None)], when),
        NewRecord(None, b"", [], when - 5),
        NewRecord(b"", b"\x00\xff", [("", b"")], when + 5),
    ]
    produced(wire, unique, build_batch(sent))
    (kept,) = stored(wire, unique)
    assert [
        NewRecord(record.key, record.value, list(record.headers), record.timestamp)
        for record in read_records(kept)
    ] == sent


def test_clients_may_not_write_to_the_coordinators_topics(wire: WireClient, unique: str) -> None:
    new_topic(wire, unique)
    commit(wire, unique, unique, 0)
    answer = produce(wire, "__consumer_offsets", batch("value", key=b"key"))
    assert answer.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_the_log_start_offset_is_told(wire: WireClient, unique: str) -> None:
    new_topic(wire, unique)
    produced(wire, unique, batch("one", "two"))
    asked = {"name": unique, "partitions": [{"partition_index": 0, "offset": 1}]}
    wire.ask("delete_records", 2, topics=[asked], timeout_ms=5000)
    wait_for(lambda: list_offset(wire, unique, 0, -2).offset == 1)
    assert produce(wire, unique, batch("three")).log_start_offset == 1


def test_produce_requests_sent_together_are_answered_in_order(wire: WireClient, unique: str) -> None:
    new_topic(wire, unique)
    count = 50
    for number in range(count):
        partition = {"index": 0, "records": batch(str(number))}
        wire.post_ask("produce", 12, acks=-1, topic_data=[{"name": unique, "partition_data": [partition]}])
    offsets = [wire.receive().responses[0].partition_responses[0].base_offset for _ in range(count)]
    assert offsets == list(range(count))
    assert values(fetch(wire, unique, 0).records) == [str(number).encode() for number in range(count)]


def test_two_connections_write_to_one_partition(
    wire: WireClient, connect: Callable[[], WireClient], unique: str
) -> None:
    new_topic(wire, unique)
    others: list[Any] = [connect() for _ in range(3)]
    for round_number in range(5):
        for number, other in enumerate(others):
            partition = {"index": 0, "records": batch(f"{number}:{round_number}")}
            other.post_ask(
                "produce", 12, acks=-1, topic_data=[{"name": unique, "partition_data": [partition]}]
            )
    for other in others:
        for _ in range(5):
            assert other.receive().responses[0].partition_responses[0].error_code == 0
    found = values(fetch(wire, unique, 0).records)
    assert len(found) == 15
    for number in range(3):
        mine = [value for value in found if value and value.startswith(b"%d:" % number)]
        assert mine == [b"%d:%d" % (number, round_number) for round_number in range(5)]
