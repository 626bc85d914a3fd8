"""The raw client takes responses apart by position: held here to responses written by the codec."""

import pytest

from bench.clients.raw import (
    FETCH_VERSION,
    PRODUCE_VERSION,
    batch,
    produce_frame,
    records_of,
    require_produced,
)
from bench.wire import BrokerRefused
from headrace.wire.apis import read_request_header
from headrace.wire.batches import place, split
from headrace.wire.codec import encode, read_message
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.fetch_response import FetchableTopicResponse, FetchResponse, PartitionData
from headrace.wire.messages.produce_request import ProduceRequest
from headrace.wire.messages.produce_response import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)

TOPIC = "orders"
CORRELATION = bytes(4)


def fetch_response(records: bytes | None, *, end_offset: int, code: int = 0) -> bytes:
    partition = PartitionData(
        partition_index=0,
        error_code=code,
        high_watermark=end_offset,
        records=records,
        aborted_transactions=(),
    )
    topics = (FetchableTopicResponse(topic=TOPIC, partitions=(partition,)),)
    return CORRELATION + encode(FetchResponse(responses=topics), FETCH_VERSION)


def two_batches() -> bytes:
    size = len(batch(150))
    both = bytearray(batch(150) * 2)
    place(both, size, base_offset=150, length=size - 12, leader_epoch=0)
    return bytes(both)


def test_records_are_counted_by_whole_batches() -> None:
    assert records_of(fetch_response(two_batches(), end_offset=900), len(TOPIC)) == (300, 300)


def test_a_batch_that_is_cut_short_does_not_count() -> None:
    assert records_of(fetch_response(two_batches()[:-1], end_offset=900), len(TOPIC)) == (150, 150)


def test_at_the_end_of_the_topic_reading_begins_again() -> None:
    assert records_of(fetch_response(two_batches(), end_offset=300), len(TOPIC)) == (300, 0)
    assert records_of(fetch_response(b"", end_offset=300), len(TOPIC)) == (0, 0)


def test_a_fetch_that_was_refused_is_told() -> None:
    with pytest.raises(BrokerRefused, match="OFFSET_OUT_OF_RANGE"):
        records_of(fetch_response(None, end_offset=-1, code=ErrorCode.OFFSET_OUT_OF_RANGE), len(TOPIC))


def test_a_produce_that_was_refused_is_told() -> None:
    def response(code: int) -> bytearray:
        partitions = (PartitionProduceResponse(index=0, error_code=code),)
        topics = (TopicProduceResponse(name=TOPIC, partition_responses=partitions),)
        return bytearray(CORRELATION + encode(ProduceResponse(responses=topics), PRODUCE_VERSION))

    require_produced(response(0), len(TOPIC))
    with pytest.raises(BrokerRefused, match="MESSAGE_TOO_LARGE"):
        require_produced(response(ErrorCode.MESSAGE_TOO_LARGE), len(TOPIC))


def test_the_prepared_request_holds_one_batch_of_150_records() -> None:
    frame = bytes(produce_frame(TOPIC, 0, batch()))[4:]
    header, position = read_request_header(frame)
    request, end = read_message(ProduceRequest, header.api_version, frame, position)
    assert end == len(frame)
    records = request.topic_data[0].partition_data[0].records
    assert records is not None
    assert [found.record_count for _, found in split(records)] == [150]
