"""The codec against known bytes: Apache Kafka's for every message and version, and a few worked out by hand.

`kafka_bytes.json` holds digests of what Kafka's own classes write (tools/kafka_bytes.py made it). There and here
a message is filled by the same rule, from the names of its fields: `full` sets everything and puts two elements
into each array, `bare` is null or empty wherever it may be and leaves tagged fields out, `default` sets nothing.
"""

import hashlib
import json
import struct
from binascii import crc32
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

import pytest

import headrace.wire.messages
from headrace.wire.codec import (
    EncodedItems,
    MalformedMessage,
    TooManyElements,
    UnsupportedField,
    encode,
    encode_items,
    read_message,
    read_uvarint,
    write_uvarint,
)
from headrace.wire.message import F, Message
from headrace.wire.messages.api_versions_request import ApiVersionsRequest
from headrace.wire.messages.api_versions_response import ApiVersion, ApiVersionsResponse
from headrace.wire.messages.consumer_group_heartbeat_response import ConsumerGroupHeartbeatResponse
from headrace.wire.messages.create_topics_request import CreateTopicsRequest
from headrace.wire.messages.describe_cluster_request import DescribeClusterRequest
from headrace.wire.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from headrace.wire.messages.init_producer_id_request import InitProducerIdRequest
from headrace.wire.messages.list_offsets_response import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from headrace.wire.messages.list_transactions_request import ListTransactionsRequest
from headrace.wire.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from headrace.wire.messages.produce_response import ProduceResponse
from headrace.wire.messages.share_acknowledge_request import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from headrace.wire.messages.transaction_log_value import TransactionLogValue

DIGESTS: dict[str, dict[str, list[str]]] = json.loads(
    Path(__file__).with_name("kafka_bytes.json").read_text()
)


def message_class(module_name: str) -> type[Message]:
    module = import_module(f"headrace.wire.messages.{module_name}")
    wanted = module_name.replace("_", "")
    found = [each for name, each in vars(module).items() if name.lower() == wanted]
    assert len(found) == 1
    return found[0]


MESSAGES = [message_class(info.name) for info in iter_modules(headrace.wire.messages.__path__)]
NAMES = [message.__name__ for message in MESSAGES]
OUR_TAG = 10_000
"""From here on tagged fields are ours: Kafka passes over them."""


def is_in(version: int, interval: tuple[int, int] | None) -> bool:
    return interval is not None and interval[0] <= version <= interval[1]


def filled(message: type[Message], version: int, *, is_full: bool, has_ours: bool = True) -> Message:
    fields = {}
    for field in message.SCHEMA:
        is_left_out = is_in(version, field.tagged) and not is_full
        if field.tag >= OUR_TAG and not has_ours:
            continue
        if is_in(version, field.versions) and not is_left_out:
            fields[field.name] = value_of(field, version, is_full=is_full, has_ours=has_ours)
    return message(**fields)


def value_of(field: F, version: int, *, is_full: bool, has_ours: bool) -> object:
    if is_in(version, field.nullable) and not is_full:
        return None
    element = field.kind.removeprefix("[]")
    if element != field.kind and not is_full:
        return []
    if field.struct is not None:
        value: object = filled(field.struct, version, is_full=is_full, has_ours=has_ours)
    else:
        value = SCALARS[element](field.name, crc32(field.name.encode()))
    return [value, value] if element != field.kind else value


SCALARS: dict[str, Callable[[str, int], object]] = {
    "bool": lambda name, number: True,
    "int8": lambda name, number: number & 0x7F,
    "int16": lambda name, number: number & 0x7FFF,
    "uint16": lambda name, number: number & 0xFFFF,
    "int32": lambda name, number: number & 0x7FFFFFFF,
    "uint32": lambda name, number: number,
    "int64": lambda name, number: number << 20,
    "float64": lambda name, number: number / 8,
    "uuid": lambda name, number: struct.pack(">QQ", number, number << 1),
    "string": lambda name, number: name,
    "bytes": lambda name, number: name.encode(),
    "records": lambda name, number: name.encode(),
}


def fillings(message: type[Message], version: int, *, has_ours: bool = True) -> list[Message]:
    return [
        filled(message, version, is_full=True, has_ours=has_ours),
        filled(message, version, is_full=False),
        message(),
    ]


def versions(message: type[Message]) -> range:
    return range(message.VERSIONS[0], message.VERSIONS[1] + 1)


class TestEveryMessage:
    def test_kafkas_bytes_are_known_for_all_of_them(self) -> None:
        assert {name: [int(version) for version in known] for name, known in DIGESTS.items()} == {
            message.__name__: list(versions(message)) for message in MESSAGES
        }

    @pytest.mark.parametrize("message", MESSAGES, ids=NAMES)
    def test_is_written_as_kafka_writes_it(self, message: type[Message]) -> None:
        ours = {
            str(version): [
                hashlib.sha256(encode(each, version)).hexdigest()[:12]
                for each in fillings(message, version, has_ours=False)
            ]
            for version in versions(message)
        }
        assert ours == DIGESTS[message.__name__]

    @pytest.mark.parametrize("message", MESSAGES, ids=NAMES)
    def test_reads_back_as_it_was_written(self, message: type[Message]) -> None:
        for version in versions(message):
            for written in fillings(message, version)[:2]:
                data = encode(written, version)
                assert read_message(message, version, data) == (written, len(data))
                assert read_message(message, version, b"head" + data + b"tail", 4) == (written, 4 + len(data))

    @pytest.mark.parametrize("message", MESSAGES, ids=NAMES)
    def test_cut_anywhere_it_is_refused(self, message: type[Message]) -> None:
        for version in versions(message):
            data = encode(filled(message, version, is_full=True), version)
            for size in range(len(data)):
                with pytest.raises(MalformedMessage):
                    read_message(message, version, data[:size])


def read(message: type[Message], version: int, text: str) -> Message:
    data = bytes.fromhex(text)
    found, end = read_message(message, version, data)
    assert end == len(data)
    return found


class TestBytesWorkedOutByHand:
    def test_old_versions_have_fixed_lengths_and_no_tags(self) -> None:
        request = InitProducerIdRequest(transactional_id="ab", transaction_timeout_ms=258)
        assert encode(request, 0).hex() == "0002 6162 00000102".replace(" ", "")
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=258)
        assert encode(request, 0).hex() == "ffff 00000102".replace(" ", "")

    def test_flexible_versions_have_lengths_plus_one_and_tags(self) -> None:
        request = InitProducerIdRequest(transactional_id="ab", transaction_timeout_ms=258, producer_id=3)
        assert encode(request, 3).hex() == "03 6162 00000102 0000000000000003 ffff 00".replace(" ", "")
        assert encode(InitProducerIdRequest(transactional_id=None), 2).hex() == "00 00000000 00".replace(
            " ", ""
        )

    def test_a_long_length_takes_more_than_one_byte(self) -> None:
        request = ApiVersionsRequest(client_software_name="n" * 300, client_software_version="")
        data = encode(request, 3)
        assert data[:2].hex() == "ad02"  # 301 = 0b10_0101101
        assert read(ApiVersionsRequest, 3, data.hex()) == request

    def test_null_and_empty_arrays_are_told_apart(self) -> None:
        assert encode(MetadataRequest(topics=None), 1).hex() == "ffffffff"
        assert encode(MetadataRequest(topics=[]), 1).hex() == "00000000"
        assert encode(MetadataRequest(topics=None), 9).hex()[:2] == "00"
        assert encode(MetadataRequest(topics=[]), 9).hex()[:2] == "01"

    def test_arrays_of_structs_and_ids(self) -> None:
        topic = MetadataRequestTopic(topic_id=bytes(range(16)), name=None)
        data = encode(MetadataRequest(topics=[topic], allow_auto_topic_creation=True), 12)
        assert data.hex() == "02 000102030405060708090a0b0c0d0e0f 00 00 01 00 00".replace(" ", "")

    def test_arrays_of_numbers_and_texts(self) -> None:
        request = ListTransactionsRequest(state_filters=["a", "bc"], producer_id_filters=[1, -1])
        expected = "03 02 61 03 6263 03 0000000000000001 ffffffffffffffff 00".replace(" ", "")
        assert encode(request, 0).hex() == expected

    def test_tagged_fields_travel_only_when_they_say_something(self) -> None:
        response = ApiVersionsResponse(api_keys=[ApiVersion(api_key=1, min_version=2, max_version=3)])
        plain = "0000 02 0001 0002 0003 00 00000000 00".replace(" ", "")
        assert encode(response, 3).hex() == plain
        response = ApiVersionsResponse(
            api_keys=response.api_keys, finalized_features_epoch=5, zk_migration_ready=True
        )
        tags = "02 01 08 0000000000000005 03 01 01".replace(" ", "")
        assert encode(response, 3).hex() == plain[:-2] + tags
        assert read(ApiVersionsResponse, 3, plain[:-2] + tags) == response

    def test_unknown_tags_are_passed_over(self) -> None:
        text = "0000 01 00000000 03 01 08 0000000000000005 63 02 abcd ff7f 00".replace(" ", "")
        assert read(ApiVersionsResponse, 3, text) == ApiVersionsResponse(finalized_features_epoch=5)

    def test_a_tagged_struct_and_a_nullable_one(self) -> None:
        assert read(ProduceResponse, 10, "01 00000000 00".replace(" ", "")).node_endpoints == ()  # type: ignore[attr-defined]
        heartbeat = read(ConsumerGroupHeartbeatResponse, 0, "00000000 0000 00 00 00000000 00000000 ff 00")
        assert heartbeat.assignment is None  # type: ignore[attr-defined]
        heartbeat = read(
            ConsumerGroupHeartbeatResponse, 0, "00000000 0000 00 00 00000000 00000000 01 01 00 00"
        )
        assert heartbeat.assignment is not None  # type: ignore[attr-defined]

    def test_a_version_that_lacks_a_field_reads_its_default(self) -> None:
        request = read(InitProducerIdRequest, 0, "ffff 00000102")
        assert request == InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=258)

    def test_fields_that_only_travel_as_tags_are_not_in_older_versions(self) -> None:
        value = TransactionLogValue(producer_id=1, producer_epoch=2, transaction_partitions=None)
        assert len(encode(value, 0)) == 8 + 2 + 4 + 1 + 4 + 8 + 8


class TestRefusals:
    @pytest.mark.parametrize(
        ("message", "version", "text"),
        [
            (ApiVersionsRequest, 3, "00 01 00"),  # null where none may be
            (CreateTopicsRequest, 2, "ffffffff 00000000 00"),
            (CreateTopicsRequest, 2, "00000001 ffff 00000001 0001 00000000 00000000 00000000 00"),
            (MetadataRequest, 1, "7fffffff 0001 61"),  # more elements than bytes
            (MetadataRequest, 9, "ffffffff0f 02 61 00"),
            (ListTransactionsRequest, 0, "01 ffffffff0f 00"),
            (ApiVersionsRequest, 3, "ffffffff0f 61 01 00"),  # longer than the rest
            (ApiVersionsRequest, 3, "ffffffffff7f 61 01 00"),  # a length of six bytes
            (InitProducerIdRequest, 0, "0002 c328 00000001"),  # no UTF-8
            (ApiVersionsRequest, 3, "01 01 01 00 7f 00"),  # a tag that ends after the message
            (ApiVersionsRequest, 3, "01 01 ffffffff0f"),  # more tags than bytes
            # A tag whose array, or text, goes on behind the tag's own end.
            (ApiVersionsResponse, 3, "0000 01 00000000 01 00 01 02 02 61 0000 0001 00"),
            (FetchRequest, 17, f"00000000 00000000 00000000 00 {'00' * 8} 01 01 01 01 00 01 03 6161"),
        ],
    )
    def test_bytes_that_are_no_such_message(self, message: type[Message], version: int, text: str) -> None:
        with pytest.raises(MalformedMessage):
            read_message(message, version, bytes.fromhex(text))

    @pytest.mark.timeout(20)
    def test_many_tags_do_not_read_the_rest_of_the_message_once_each(self) -> None:
        """A message of half a megabyte took 47 seconds, in which the broker served nobody."""
        head = encode(FetchRequest(), 17)[:-1]
        text = b"x" * 300_000
        length = b"\xc2\x80\x10"  # a text of 262,209 bytes, and UTF-8 itself
        data = head + b"\x80\x80\x04" + 65_536 * (b"\x00\x03" + length) + text
        with pytest.raises(MalformedMessage, match="cluster_id"):
            read_message(FetchRequest, 17, data)

    def test_a_request_field_that_the_version_cannot_carry(self) -> None:
        with pytest.raises(UnsupportedField, match="InitProducerIdRequest v2 cannot carry producer_id"):
            encode(InitProducerIdRequest(producer_id=5), 2)
        with pytest.raises(UnsupportedField, match="duration_filter"):
            encode(ListTransactionsRequest(duration_filter=5), 0)

    def test_a_value_counts_even_if_it_is_zero(self) -> None:
        with pytest.raises(UnsupportedField, match="duration_filter"):
            encode(ListTransactionsRequest(duration_filter=0), 0)

    def test_also_inside_of_structs(self) -> None:
        topic = FetchTopic(topic="a", partitions=[FetchPartition(last_fetched_epoch=3)])
        with pytest.raises(UnsupportedField, match="FetchPartition v11 cannot carry last_fetched_epoch"):
            encode(FetchRequest(topics=[topic]), 11)

    def test_also_in_records_of_coordinators(self) -> None:
        with pytest.raises(UnsupportedField, match="next_producer_id"):
            encode(TransactionLogValue(next_producer_id=5), 0)

    def test_ignorable_fields_are_left_out_in_silence(self) -> None:
        assert encode(FetchRequest(rack_id="r"), 10) == encode(FetchRequest(), 10)
        assert encode(DescribeClusterRequest(include_fenced_brokers=False), 0)

    def test_a_response_leaves_out_what_its_version_cannot_carry(self) -> None:
        partition = ListOffsetsPartitionResponse(partition_index=1, leader_epoch=7)
        topic = ListOffsetsTopicResponse(name="a", partitions=[partition])
        plain = ListOffsetsTopicResponse(
            name="a", partitions=[ListOffsetsPartitionResponse(partition_index=1)]
        )
        full, bare = ListOffsetsResponse(topics=[topic]), ListOffsetsResponse(topics=[plain])
        assert encode(full, 3) == encode(bare, 3)
        assert encode(full, 4) != encode(bare, 4)


@pytest.mark.parametrize("number", [0, 1, 127, 128, 16383, 16384, 2**31 - 1, 2**32 - 1])
def test_a_variable_length_number_reads_back(number: int) -> None:
    out = bytearray(b"x")
    write_uvarint(out, number)
    assert read_uvarint(bytes(out), 1) == (number, len(out))


def test_the_elements_of_all_lists_are_counted() -> None:
    topics = [FetchTopic(topic="t", partitions=[FetchPartition()] * 3)] * 2
    data = encode(FetchRequest(topics=topics), 12)
    request, end = read_message(FetchRequest, 12, data, elements_max=8)
    assert (request.topics, end) == (topics, len(data))
    with pytest.raises(TooManyElements):
        read_message(FetchRequest, 12, data, elements_max=7)


def test_numbers_and_unknown_tagged_fields_are_elements() -> None:
    filters = encode(ListTransactionsRequest(producer_id_filters=[*range(10)]), 0)
    assert read_message(ListTransactionsRequest, 0, filters, elements_max=10)
    with pytest.raises(TooManyElements):
        read_message(ListTransactionsRequest, 0, filters, elements_max=9)
    tagged = encode(DescribeClusterRequest(), 0)[:-1] + b"\x05" + b"\x63\x00" * 5
    assert read_message(DescribeClusterRequest, 0, tagged, elements_max=5)
    with pytest.raises(TooManyElements):
        read_message(DescribeClusterRequest, 0, tagged, elements_max=4)


def test_what_acknowledgements_say_of_each_record_counts_for_little() -> None:
    batch = AcknowledgementBatch(first_offset=0, last_offset=999, acknowledge_types=[1] * 1000)
    partition = AcknowledgePartition(acknowledgement_batches=[batch])
    request = ShareAcknowledgeRequest(topics=[AcknowledgeTopic(partitions=[partition])])
    assert read_message(ShareAcknowledgeRequest, 1, encode(request, 1), elements_max=3 + 1000 // 64)


@pytest.mark.parametrize("version", [1, 4])
def test_items_that_are_written_beforehand_are_written_in_their_place(version: int) -> None:
    topics = [
        ListOffsetsTopicResponse(
            name=f"t{number}",
            partitions=[ListOffsetsPartitionResponse(partition_index=each) for each in range(3)],
        )
        for number in range(4)
    ]
    written = EncodedItems()
    encode_items(ListOffsetsResponse, ("topics",), version, topics[:1], written)
    encode_items(ListOffsetsResponse, ("topics",), version, topics[1:], written)
    expected = encode(ListOffsetsResponse(topics=topics), version)
    assert encode(ListOffsetsResponse(topics=written), version) == expected
    inside = EncodedItems()
    encode_items(ListOffsetsResponse, ("topics", "partitions"), version, topics[0].partitions, inside)
    first = ListOffsetsTopicResponse(name="t0", partitions=inside)
    assert encode(ListOffsetsResponse(topics=[first, *topics[1:]]), version) == expected
