"""Batch headers: every field is found, patched fields stay outside or inside the checksum as they should."""

import pytest

from headrace.wire.batches import (
    HEADER_SIZE,
    SEQUENCE_MAX,
    BatchHeader,
    add_to_sequence,
    is_intact,
    place,
    read_header,
    require_intact,
    seal,
    split,
    stamp_append_time,
    with_header,
)
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.records import NewRecord, build_batch, read_records

# Two records of a transactional producer.
BATCH = build_batch(
    [NewRecord(b"k", b"hello", (), 1_700_000_000_000), NewRecord(None, b"world", (), 1_700_000_000_005)],
    producer_id=4000,
    producer_epoch=7,
    base_sequence=42,
    is_transactional=True,
)


def test_every_field_of_a_header_is_read() -> None:
    header = read_header(BATCH)
    assert header.base_offset == 0
    assert header.size == len(BATCH) == header.length + 12
    assert header.magic == 2
    assert (header.last_offset, header.next_offset, header.record_count) == (1, 2, 2)
    assert (header.base_timestamp, header.max_timestamp) == (1_700_000_000_000, 1_700_000_000_005)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (4000, 7, 42)
    assert header.last_sequence == 43
    assert header.is_transactional
    assert not header.is_control
    assert not header.is_log_append_time
    assert header.compression == 0
    assert header.delete_horizon_ms is None


def test_a_batch_is_placed_without_touching_its_checksum() -> None:
    buffer = bytearray(b"before" + BATCH)
    place(buffer, 6, base_offset=1000, length=read_header(BATCH).length, leader_epoch=3)
    header = read_header(buffer, 6)
    assert (header.base_offset, header.leader_epoch) == (1000, 3)
    assert header.crc == read_header(BATCH).crc
    assert is_intact(buffer, 6, header)
    assert buffer[6 + 16 :] == BATCH[16:]


def test_append_time_becomes_the_time_of_every_record() -> None:
    buffer = bytearray(BATCH)
    stamp_append_time(buffer, 0, 123)
    header = read_header(buffer)
    assert header.is_log_append_time
    assert header.max_timestamp == 123
    assert is_intact(buffer, 0, header)
    assert [record.timestamp for record in read_records(buffer)] == [123, 123]


def test_one_changed_byte_is_noticed_wherever_it_is() -> None:
    for position in range(17, len(BATCH)):
        damaged = bytearray(BATCH)
        damaged[position] ^= 1
        with pytest.raises(KafkaError) as caught:
            require_intact(damaged, 0, read_header(damaged))
        assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


def test_seal_makes_a_changed_batch_whole_again() -> None:
    buffer = bytearray(BATCH)
    buffer[-2] ^= 1
    seal(buffer)
    require_intact(buffer, 0, read_header(buffer))


def test_batches_are_split_where_their_lengths_say() -> None:
    assert [position for position, _ in split(BATCH * 3)] == [0, len(BATCH), 2 * len(BATCH)]
    assert list(split(b"")) == []


@pytest.mark.parametrize("cut", [1, 12, 16, 17, HEADER_SIZE - 1, HEADER_SIZE, len(BATCH) - 1])
def test_a_batch_that_is_cut_short_is_corrupt(cut: int) -> None:
    with pytest.raises(KafkaError) as caught:
        list(split(BATCH + BATCH[:cut]))
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("length", [-1, 0, 48, 2**31 - 1])
def test_an_impossible_length_is_corrupt(length: int) -> None:
    buffer = bytearray(BATCH)
    place(buffer, 0, base_offset=0, length=length, leader_epoch=0)
    with pytest.raises(KafkaError) as caught:
        list(split(buffer))
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


def test_older_formats_are_refused_by_name() -> None:
    old = bytearray(BATCH)
    old[16] = 1
    with pytest.raises(KafkaError, match="format 1") as caught:
        list(split(old))
    assert caught.value.code is ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT


def test_sequences_turn_over() -> None:
    assert add_to_sequence(5, 3) == 8
    assert add_to_sequence(SEQUENCE_MAX, 1) == 0
    assert add_to_sequence(SEQUENCE_MAX - 1, 4) == 2
    assert add_to_sequence(-1, 3) == -1


def test_a_batch_around_other_records_has_their_length_and_checksum() -> None:
    header = BatchHeader(9, 0, 1, 2, 0, 0x40, 4, 777, 888, -1, -1, -1, 0)
    made = with_header(header, b"payload")
    found = read_header(made)
    assert found == header._replace(length=len(made) - 12, crc=found.crc)
    assert is_intact(made, 0, found)
    assert found.delete_horizon_ms == 777
