"""Our producers on both brokers. What they wrote is read back by plain Fetch."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from headrace.client.admin import Admin
from headrace.client.delivery import TopicPartition
from headrace.client.errors import (
    ConfigError,
    IllegalStateError,
    InvalidProducerEpochError,
    InvalidRecordError,
    ProducerFencedError,
    RecordTooLargeError,
    SomeNotSentError,
    TransactionAbortableError,
    UnknownTopicOrPartitionError,
)
from headrace.client.producing.aio import AsyncProducer
from headrace.client.producing.record import ProducerRecord, RecordMetadata
from headrace.client.producing.sync import Producer
from headrace.wire.batches import Compression, split
from headrace.wire.records import read_marker, read_records
from tests.conformance import steps
from tests.conformance.conftest import BrokerUnderTest
from tests.conformance.wire_client import WireClient

NewProducer = Callable[..., Producer]
CODECS = {"none", "gzip", "snappy", "lz4", "zstd"}


@pytest.fixture
def admin(broker: BrokerUnderTest) -> Iterator[Admin]:
    with Admin(bootstrap_servers=broker.bootstrap_servers) as made:
        yield made


@pytest.fixture
def producer(broker: BrokerUnderTest) -> Iterator[NewProducer]:
    """Makes producers; all are closed at the end of the test."""
    with ExitStack() as stack:

        def make(**settings: Any) -> Producer:
            made = Producer(bootstrap_servers=broker.bootstrap_servers, **settings)
            stack.callback(made.close)
            return made

        yield make


@pytest.fixture
def topic(admin: Admin, unique: str) -> str:
    admin.create_topic(unique, 1)
    return unique


def test_a_record_arrives_as_it_was_sent(wire: WireClient, producer: NewProducer, topic: str) -> None:
    sent = producer().send(
        topic, "wért", key=b"k", headers={"a": "b", "none": None}, partition=0, timestamp=1_700_000_000_000
    )
    assert sent.result(30) == RecordMetadata(topic, 0, 0)
    (record,) = records_of(wire, topic)
    assert (record.key, record.value, record.timestamp) == (b"k", "wért".encode(), 1_700_000_000_000)
    assert list(record.headers) == [("a", b"b"), ("none", None)]


def test_a_record_may_have_neither_key_nor_value(wire: WireClient, producer: NewProducer, topic: str) -> None:
    producer().send(topic, None).result(30)
    (record,) = records_of(wire, topic)
    assert (record.key, record.value) == (None, None)


@pytest.mark.parametrize("codec", sorted(CODECS))
def test_batches_are_compressed(wire: WireClient, producer: NewProducer, topic: str, codec: str) -> None:
    producer(compression_type=codec).send_many(topic, [b"x" * 1000] * 20)
    data = fetch_log(wire, topic)
    assert {header.compression for _, header in split(data)} == {Compression[codec.upper()]}
    assert len(records_of(wire, topic)) == 20


def test_records_of_a_partition_keep_their_order(wire: WireClient, producer: NewProducer, topic: str) -> None:
    made = producer(linger_ms=1, batch_size=200)
    futures = [made.send(topic, str(number)) for number in range(500)]
    made.flush()
    assert [future.result().offset for future in futures] == list(range(500))
    assert [int(record.value or b"") for record in records_of(wire, topic)] == list(range(500))


def test_batches_carry_sequence_numbers(wire: WireClient, producer: NewProducer, topic: str) -> None:
    made = producer()
    made.send_many(topic, [b"a", b"b", b"c"])
    made.send(topic, b"d").result(30)
    headers = [header for _, header in split(fetch_log(wire, topic))]
    assert headers[0].producer_id >= 0
    assert headers[-1].last_sequence == 3


def test_keys_go_where_javas_producer_sends_them(admin: Admin, producer: NewProducer, unique: str) -> None:
    """Partitions that Java's default partitioner gives these keys, of ten."""
    admin.create_topic(unique, 10)
    made = producer()
    sent = made.send_many(unique, [ProducerRecord(b"", key=key) for key in (b"21", b"foobar", b"abc")])
    assert [place.partition for place in sent] == [0, 6, 7]


def test_records_without_a_key_reach_every_partition(
    admin: Admin, producer: NewProducer, unique: str
) -> None:
    admin.create_topic(unique, 4)
    made = producer()
    partitions = {made.send(unique, b"x").result(30).partition for _ in range(60)}
    assert partitions == {0, 1, 2, 3}


def test_send_many_says_where_each_record_is(producer: NewProducer, topic: str) -> None:
    sent = producer().send_many(topic, (str(number) for number in range(3_000)))
    assert [place.offset for place in sent] == list(range(3_000))


def test_one_record_that_is_too_large_does_not_harm_the_others(
    wire: WireClient, admin: Admin, producer: NewProducer, topic: str
) -> None:
    admin.set_topic_config(topic, {"max.message.bytes": "2000"})
    made = producer()
    with pytest.raises(SomeNotSentError) as caught:
        made.send_many(topic, [b"a" * 500, b"b" * 5_000, b"c" * 500, b"d" * 500, b"e" * 500, b"f" * 500])
    assert isinstance(caught.value.__cause__, RecordTooLargeError)
    assert [place is not None for place in caught.value.sent] == [True, False, True, True, True, True]
    made.send(topic, b"g").result(30)
    assert [(record.value or b"")[:1] for record in records_of(wire, topic)] == [
        b"a",
        b"c",
        b"d",
        b"e",
        b"f",
        b"g",
    ]


def test_a_record_that_the_topic_refuses_fails_with_the_cure(
    admin: Admin, producer: NewProducer, unique: str
) -> None:
    admin.create_topic(unique, 1, configs={"cleanup.policy": "compact"})
    made = producer()
    with pytest.raises(InvalidRecordError, match="needs keys"):
        made.send(unique, b"no key").result(30)
    assert made.send(unique, b"x", key=b"k").result(30).offset == 0


def test_a_partition_that_the_topic_does_not_have_is_refused(producer: NewProducer, topic: str) -> None:
    with pytest.raises(UnknownTopicOrPartitionError, match="no partition 7, only 0 to 0"):
        producer().send(topic, b"x", partition=7).result(30)


def test_a_topic_is_created_where_the_broker_does_that(producer: NewProducer, unique: str) -> None:
    assert producer().send(unique, b"x").result(30).offset == 0


def test_a_topic_that_was_made_anew_is_written_to(
    wire: WireClient, admin: Admin, producer: NewProducer, topic: str
) -> None:
    made = producer()
    made.send_many(topic, [b"old"] * 10)
    admin.delete_topics([topic])
    admin.create_topic(topic, 1)
    made.send(topic, b"new").result(60)
    assert [record.value for record in records_of(wire, topic)] == [b"new"]


@pytest.mark.parametrize("acks", ["1", "0"])
def test_other_acks_send_without_idempotence(
    wire: WireClient, producer: NewProducer, topic: str, acks: str
) -> None:
    made = producer(acks=acks)
    sent = made.send_many(topic, [b"a", b"b"])
    assert [place.offset for place in sent] == ([0, 1] if acks == "1" else [-1, -1])
    made.close()
    steps.wait_for(lambda: len(records_of(wire, topic)) == 2 or None)  # nobody says when: acks=0
    assert [header.producer_id for _, header in split(fetch_log(wire, topic))] == [-1]


def test_threads_share_a_producer(wire: WireClient, producer: NewProducer, topic: str) -> None:
    made = producer()

    def work(name: int) -> None:
        for number in range(100):
            made.send(topic, f"{name} {number}")

    threads = [threading.Thread(target=work, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    made.flush()
    values = [(record.value or b"").decode().split() for record in records_of(wire, topic)]
    for name in range(4):
        assert [int(number) for one, number in values if one == str(name)] == list(range(100))


def test_asyncio_sends_side_by_side(broker: BrokerUnderTest, wire: WireClient, topic: str) -> None:
    async def work() -> None:
        async with AsyncProducer(bootstrap_servers=broker.bootstrap_servers) as made:
            sent = await asyncio.gather(*(made.send(topic, str(number)) for number in range(200)))
            assert [place.offset for place in sent] == list(range(200))
            many = await made.send_many(topic, [b"x"] * 100)
            assert many[-1].offset == 299

    asyncio.run(work())
    assert len(records_of(wire, topic)) == 300


def test_records_of_a_transaction_are_visible_when_it_is_committed(
    wire: WireClient, producer: NewProducer, topic: str, unique: str
) -> None:
    made = producer(transactional_id=unique)
    for number in range(3):
        made.begin()
        made.send(topic, f"kept {number}").result(30)
        made.commit()
        made.begin()
        made.send(topic, b"dropped").result(30)
        made.abort()
    kept, dropped = [b"kept 0", b"kept 1", b"kept 2"], [b"dropped"] * 3
    steps.wait_for(lambda: values_by_transaction(wire, topic) == (dropped, kept) or None)


def test_a_block_that_raises_aborts_its_transaction(
    wire: WireClient, producer: NewProducer, topic: str, unique: str
) -> None:
    made = producer(transactional_id=unique)

    def fail() -> None:
        with made.transaction():
            made.send(topic, b"dropped")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    with made.transaction():
        made.send(topic, b"kept")
    steps.wait_for(lambda: values_by_transaction(wire, topic)[1] == [b"kept"] or None)


def test_a_transaction_with_a_record_that_failed_cannot_be_committed(
    admin: Admin, producer: NewProducer, topic: str, unique: str
) -> None:
    admin.set_topic_config(topic, {"max.message.bytes": "2000"})
    made = producer(transactional_id=unique)
    made.begin()
    made.send(topic, b"small")
    failed = made.send(topic, b"x" * 5_000)
    with pytest.raises(TransactionAbortableError, match="must be aborted"):
        made.commit()
    assert isinstance(failed.exception(), RecordTooLargeError)
    with pytest.raises(TransactionAbortableError):
        made.send(topic, b"more")
    made.abort()
    with made.transaction():
        made.send(topic, b"again")


def test_a_transaction_writes_to_a_topic_that_was_created_again(
    wire: WireClient, admin: Admin, producer: NewProducer, topic: str, unique: str
) -> None:
    made = producer(transactional_id=unique)
    with made.transaction():
        made.send(topic, b"old")
    made.begin()
    admin.delete_topics([topic])
    admin.create_topic(topic, 1)
    made.send(topic, b"new").result(60)
    made.commit()
    assert [record.value for record in records_of(wire, topic)] == [b"new"]


def test_a_transaction_whose_records_are_gone_with_their_topic_fails(
    admin: Admin, producer: NewProducer, topic: str, unique: str
) -> None:
    made = producer(transactional_id=unique)
    made.begin()
    made.send(topic, b"old").result(30)
    admin.delete_topics([topic])
    admin.create_topic(topic, 1)
    assert made.send(topic, b"new").exception(60) is not None
    with pytest.raises(TransactionAbortableError):
        made.commit()
    made.abort()
    with made.transaction():
        made.send(topic, b"new").result(30)


def test_a_second_producer_of_the_same_id_fences_the_first(
    producer: NewProducer, topic: str, unique: str
) -> None:
    first, second = producer(transactional_id=unique), producer(transactional_id=unique)
    first.begin()
    first.send(topic, b"x").result(30)
    second.begin()
    failed = first.send(topic, b"y").exception(30)
    assert isinstance(failed, ProducerFencedError | InvalidProducerEpochError)
    with pytest.raises(ProducerFencedError):
        first.abort()
    second.send(topic, b"z").result(30)
    second.commit()


def test_offsets_of_a_consumer_group_go_with_the_transaction(
    wire: WireClient, producer: NewProducer, topic: str, unique: str
) -> None:
    made = producer(transactional_id=unique)
    made.begin()
    made.send(topic, b"x")
    made.send_offsets({TopicPartition(topic, 0): 7}, unique)
    made.abort()
    made.begin()
    made.send(topic, b"x")
    made.send_offsets({TopicPartition(topic, 0): 9}, unique)
    made.commit()
    steps.wait_for(lambda: steps.committed(wire, unique, topic).committed_offset == 9 or None)


def test_calls_that_do_not_fit_are_refused_with_what_to_do(
    producer: NewProducer, topic: str, unique: str
) -> None:
    made = producer(transactional_id=unique)
    with pytest.raises(IllegalStateError, match=r"call begin\(\) first"):
        made.send(topic, b"x")
    with pytest.raises(IllegalStateError, match=r"call begin\(\) first"):
        made.commit()
    with pytest.raises(IllegalStateError, match="transactional_id"):
        producer().begin()
    with pytest.raises(ConfigError, match="acks=all"):
        producer(transactional_id=unique, acks="1")


def fetch_log(wire: WireClient, topic: str) -> bytes:
    """All that is in partition 0."""
    data, offset = b"", 0
    while offset < steps.end_offset(wire, topic):
        part = bytes(steps.fetch(wire, topic, offset).records)
        *_, (_, last) = split(part)
        data, offset = data + part, last.next_offset
    return data


def records_of(wire: WireClient, topic: str) -> list[Any]:
    data = fetch_log(wire, topic)
    found: list[Any] = []
    for position, header in split(data):
        if not header.is_control:
            found += read_records(memoryview(data)[position : position + header.size])
    return found


def values_by_transaction(wire: WireClient, topic: str) -> tuple[list[bytes], list[bytes]]:
    """The values of aborted and of committed transactions, by the markers in the log."""
    data = fetch_log(wire, topic)
    open_now: list[bytes] = []
    aborted: list[bytes] = []
    kept: list[bytes] = []
    for position, header in split(data):
        batch = memoryview(data)[position : position + header.size]
        if header.is_control:
            marker = read_marker(batch)
            assert marker is not None
            (kept if marker.is_commit else aborted).extend(open_now)
            open_now = []
        else:
            open_now += [record.value or b"" for record in read_records(batch)]
    return aborted, kept
