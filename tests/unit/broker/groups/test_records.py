"""Goal: the journal holds exactly Kafka's bytes. Method: records written out by hand from Kafka's definitions."""

import pytest

from headrace.broker.groups import records
from headrace.broker.groups.consumer_member import ConsumerMember, MemberState
from headrace.broker.groups.offsets import OffsetAndMetadata
from headrace.broker.groups.records import JournalEntry, decode
from headrace.wire.codec import MalformedMessage
from headrace.wire.messages.group_metadata_value import GroupMetadataValue, MemberMetadata

TOPIC = bytes(range(16))
EVERY_KIND = [
    records.offset_commit(
        "g", "t", 3, OffsetAndMetadata(offset=7, leader_epoch=2, topic_id=TOPIC).as_record()
    ),
    records.offset_commit("g", "t", 3, OffsetAndMetadata(offset=7, expires_ms=99).as_record()),
    records.offset_commit("g", "t", 3, None),
    records.group_metadata("g", GroupMetadataValue(protocol=None, leader=None)),
    records.group_metadata("g", GroupMetadataValue(members=[MemberMetadata(member_id="m", assignment=b"a")])),
    records.group_epoch("g", 5, -12),
    records.target_epoch("g", 5, 1234),
    records.target_assignment("g", "m", [(TOPIC, 1), (TOPIC, 0)]),
    records.regular_expression("g", "a.*", ["ab", "aa"], 55),
    records.regular_expression_tombstone("g", "a.*"),
    *records.member_tombstones("g", "m"),
    ConsumerMember(member_id="m", topic_names=frozenset("t")).metadata_entry("g"),
    ConsumerMember(member_id="m", epoch=3, held={(TOPIC, 1): 2}, state=MemberState.UNREVOKED).current_entry(
        "g"
    ),
]


@pytest.mark.parametrize("entry", EVERY_KIND, ids=lambda entry: type(entry.key).__name__)
def test_every_kind_of_record_comes_back_as_it_was_written(entry: JournalEntry) -> None:
    decoded = decode(*entry.encode())
    assert decoded is not None
    assert decoded.key == entry.key
    assert decoded.value == entry.value


def test_an_offset_commit_is_written_in_version_4_with_its_topic_id() -> None:
    committed = OffsetAndMetadata(offset=258, leader_epoch=5, metadata="x", committed_ms=1, topic_id=TOPIC)
    key, value = records.offset_commit("g", "t", 3, committed.as_record()).encode()
    assert key == b"\0\1" + b"\0\1g" + b"\0\1t" + b"\0\0\0\3"
    assert value == (
        b"\0\4"
        + (258).to_bytes(8, "big")
        + b"\0\0\0\5"
        + b"\2x"
        + (1).to_bytes(8, "big")
        + b"\1\0\x10"
        + TOPIC
    )


def test_an_offset_commit_with_its_own_expiry_is_written_in_version_1() -> None:
    committed = OffsetAndMetadata(offset=1, committed_ms=2, expires_ms=3)
    _, value = records.offset_commit("g", "t", 0, committed.as_record()).encode()
    assert value == b"\0\1" + b"".join(
        [(1).to_bytes(8, "big"), b"\0\0", (2).to_bytes(8, "big"), (3).to_bytes(8, "big")]
    )


def test_group_metadata_is_written_in_version_3() -> None:
    key, value = records.group_metadata(
        "g", GroupMetadataValue(protocol=None, leader=None, generation=1)
    ).encode()
    assert key == b"\0\2\0\1g"
    assert value == b"\0\3" + b"\0\0" + b"\0\0\0\1" + b"\xff\xff" + b"\xff\xff" + b"\xff" * 8 + b"\0\0\0\0"


def test_a_member_of_the_consumer_protocol_has_no_classic_part() -> None:
    _, value = ConsumerMember(member_id="m", client_id="c", client_host="h").metadata_entry("g").encode()
    # Instance and rack: null; names: none; pattern: ""; rebalance: -1; assignor: null; one tagged field, which is null:
    # a null in the definition's JSON is no default to Kafka's generator, so that null must be written.
    assert value == b"\0\0" + b"\0\0" + b"\2c\2h" + b"\1" + b"\1" + b"\xff\xff\xff\xff" + b"\0" + b"\1\0\1\0"


def test_a_tombstone_has_a_null_value() -> None:
    assert records.offset_commit("g", "t", 3, None).encode()[1] is None


def test_records_of_other_group_types_are_passed_over() -> None:
    assert decode(b"\0\x11\0\1g", b"\0\0\0\0\0\1\0") is None


@pytest.mark.parametrize(
    ("key", "value"),
    [(b"", None), (b"\0", None), (b"\0\1", b""), (b"\0\2\0\1g", b"\0"), (b"\0\2\0\1g", b"\0\x63")],
)
def test_what_is_no_record_of_a_group_is_called_malformed(key: bytes, value: bytes | None) -> None:
    with pytest.raises(MalformedMessage):
        decode(key, value)
