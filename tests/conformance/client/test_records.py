"""What is in records: compressions, gaps, control records, bytes that cannot be read, and only what is acquired."""

import json
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.serialization import Deserializer, MessageField, SerializationContext, StringDeserializer

from headrace.client.delivery import AcknowledgeType
from headrace.client.errors import RecordDeserializationError
from headrace.wire.batches import Compression
from tests.conformance.client.conftest import NewConsumer
from tests.conformance.client.steps import nothing_comes, one_poll, places, take, values
from tests.conformance.conftest import BrokerUnderTest
from tests.conformance.share.share_client import fill, new_queue, start_and_lag, start_at
from tests.conformance.steps import batch, end_offset, new_topic, produced, wait_for
from tests.conformance.wire_client import WireClient

COMPRESSIONS = [Compression.GZIP, Compression.SNAPPY, Compression.LZ4, Compression.ZSTD]


def test_every_compression_is_read(wire: WireClient, consumer: NewConsumer, unique: str) -> None:
    new_queue(wire, unique)
    for compression in COMPRESSIONS:
        produced(wire, unique, batch("a" * 500, "b", compression=compression))
    assert values(take(consumer(), 8)) == [b"a" * 500, b"b"] * 4


def test_keys_and_values_go_through_their_deserializers(
    wire: WireClient, consumer: NewConsumer, unique: str
) -> None:
    new_queue(wire, unique)
    produced(wire, unique, batch('{"a": 1}', None, key=b"k"))
    first, second = one_poll(consumer(key_deserializer=bytes.decode, value_deserializer=json.loads))
    assert (first.key, first.value) == ("k", {"a": 1})
    assert (second.key, second.value) == ("k", None)


class JsonOfTopic(Deserializer):
    """As the deserializers of confluent-kafka's schema registry client: it finds the schema by topic and field."""

    def __call__(self, value: bytes | None, ctx: SerializationContext | None = None) -> Any:
        assert ctx is not None
        schema = dict(ctx.headers or ()).get("schema")
        return f"{ctx.topic}-{ctx.field}", ctx.field == MessageField.VALUE, schema, json.loads(value or b"")


def test_deserializers_of_confluent_kafka_get_the_context_that_they_expect(
    broker: BrokerUnderTest, wire: WireClient, consumer: NewConsumer, unique: str
) -> None:
    new_queue(wire, unique)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    producer.produce(unique, b'{"a": 1}', key=b"k", headers=[("schema", b"7")])
    assert producer.flush(20) == 0
    (delivery,) = one_poll(
        consumer(key_deserializer=StringDeserializer("utf_8"), value_deserializer=JsonOfTopic())
    )
    assert delivery.key == "k"
    assert delivery.value == (f"{unique}-value", True, b"7", {"a": 1})


def test_good_records_come_before_the_error_of_a_bad_one(
    wire: WireClient, consumer: NewConsumer, unique: str
) -> None:
    new_queue(wire, unique)
    produced(wire, unique, batch("1", "2", "?", "4"))
    mine = consumer(value_deserializer=json.loads)
    assert values(one_poll(mine)) == [1, 2]
    with pytest.raises(RecordDeserializationError, match=f"{unique}-0, offset 2") as caught:
        mine.poll(1)
    assert caught.value.delivery.value == b"?"
    assert values(one_poll(mine)) == [4]
    mine.commit_sync()
    with pytest.raises(RecordDeserializationError):  # it was released, and comes again
        one_poll(mine)
    assert wait_for(lambda: start_and_lag(wire, unique, unique)[1] == 1)


def test_a_bad_record_can_be_rejected_instead(wire: WireClient, consumer: NewConsumer, unique: str) -> None:
    new_queue(wire, unique)
    produced(wire, unique, batch("?", "1"))
    mine = consumer(value_deserializer=json.loads, share_acknowledgement_mode="explicit")
    with pytest.raises(RecordDeserializationError) as caught:
        one_poll(mine)
    bad = caught.value.delivery
    mine.acknowledge_offset(bad.topic, bad.partition, bad.offset, AcknowledgeType.REJECT)
    (good,) = one_poll(mine)
    good.accept()
    assert nothing_comes(mine)


def test_the_policy_for_bad_records_is_settable(wire: WireClient, consumer: NewConsumer, unique: str) -> None:
    new_queue(wire, unique)
    produced(wire, unique, batch("?"))
    mine = consumer(value_deserializer=json.loads, on_deserialization_error=AcknowledgeType.REJECT)
    with pytest.raises(RecordDeserializationError, match="REJECT"):
        one_poll(mine)
    assert nothing_comes(mine)


def test_only_acquired_records_are_handed_out(wire: WireClient, consumer: NewConsumer, unique: str) -> None:
    new_queue(wire, unique, 6)
    mine = consumer(share_acknowledgement_mode="explicit")
    deliveries = one_poll(mine)
    for delivery in deliveries:
        delivery.release() if delivery.offset in (1, 4) else delivery.accept()
    assert places(one_poll(mine)) == [(0, 1, 2), (0, 4, 2)]


def test_control_records_are_passed_over_and_acknowledged(
    broker: BrokerUnderTest, wire: WireClient, consumer: NewConsumer, unique: str
) -> None:
    new_topic(wire, unique)
    start_at(wire, unique, unique, {0: 0})
    _transaction(broker.bootstrap_servers, unique)
    wait_for(lambda: end_offset(wire, unique) == 3)  # the marker may be written after the commit is answered
    fill(wire, unique, 1)
    mine = consumer()
    assert [one.offset for one in take(mine, 3)] == [0, 1, 3]
    mine.commit_sync()
    assert wait_for(lambda: start_and_lag(wire, unique, unique)[1] == 0)


def _transaction(bootstrap_servers: str, topic: str) -> None:
    """Two records and the marker of their commit."""
    producer = Producer({"bootstrap.servers": bootstrap_servers, "transactional.id": topic, "log_level": 0})
    producer.init_transactions(30)
    producer.begin_transaction()
    for value in ("a", "b"):
        producer.produce(topic, value, partition=0)
    producer.commit_transaction(30)
