"""Records out of arrivals: only ours, gaps for the rest, and damaged bytes."""

import pytest

from headrace.client.core.acquired import GAP, OPEN, REJECT, RELEASE, Acquired
from headrace.client.core.decoding import Damaged, Opened, Readable, decode
from headrace.client.core.holdings import Arrival
from headrace.wire.batches import Compression
from headrace.wire.records import NewRecord, build_batch, build_marker, keep_records
from tests.unit.client.core.test_acquired import acquired


def batch(base: int, count: int, *, compression: int = Compression.NONE) -> bytes:
    records = [NewRecord(None, str(base + number).encode(), (), 7) for number in range(count)]
    return build_batch(records, base_offset=base, compression=compression)


def arrival(data: bytes, *ranges: Acquired) -> Arrival:
    return Arrival("t", 0, b"t" * 16, ranges, data)


def values(pieces: list[Readable | Damaged]) -> list[bytes]:
    return [one.value for piece in pieces if isinstance(piece, Readable) for one in piece.records]


@pytest.mark.parametrize("compression", list(Compression))
def test_records_of_several_batches_come_in_order(compression: Compression) -> None:
    one = acquired(0, 9)
    data = batch(0, 5, compression=compression) + batch(5, 5, compression=compression)
    (piece,) = decode(arrival(data, one), check_crcs=True)
    assert values([piece]) == [str(number).encode() for number in range(10)]
    assert one.marks is None


def test_only_acquired_records_are_returned() -> None:
    first, second = acquired(1, 2), acquired(6, 7)
    pieces = decode(arrival(batch(0, 5) + batch(5, 5), first, second), check_crcs=True)
    assert values(pieces) == [b"1", b"2", b"6", b"7"]
    assert [piece.acquired for piece in pieces] == [first, second]


def test_many_ranges_in_one_batch_open_it_once() -> None:
    ranges = [acquired(number, number) for number in range(0, 100, 2)]
    assert len(values(decode(arrival(batch(0, 100), *ranges), check_crcs=True))) == 50


def test_offsets_without_a_record_are_gaps() -> None:
    one = acquired(0, 9)
    data = keep_records(batch(0, 10), lambda record: record.offset in (3, 4))
    assert values(decode(arrival(data, one), check_crcs=True)) == [b"3", b"4"]
    assert [one.mark_of(offset) for offset in range(10)] == [GAP] * 3 + [OPEN] * 2 + [GAP] * 5


def test_control_records_are_gaps() -> None:
    one = acquired(0, 2)
    marker = build_marker(
        producer_id=1, producer_epoch=0, commit=True, coordinator_epoch=0, timestamp=1, base_offset=2
    )
    assert values(decode(arrival(batch(0, 2) + marker, one), check_crcs=True)) == [b"0", b"1"]
    assert one.mark_of(2) == GAP


def test_a_damaged_batch_is_to_be_rejected_and_its_neighbours_are_read() -> None:
    one = acquired(0, 9)
    bad = bytearray(batch(5, 3))
    bad[-1] ^= 1
    pieces = decode(arrival(batch(0, 5) + bytes(bad) + batch(8, 2), one), check_crcs=True)
    assert values(pieces) == [b"0", b"1", b"2", b"3", b"4", b"8", b"9"]
    (damaged,) = (piece for piece in pieces if isinstance(piece, Damaged))
    assert (damaged.first, damaged.last, damaged.mark) == (5, 7, REJECT)
    assert "t-0, offsets 5 to 7" in str(damaged.error)
    assert one.mark_of(5) == OPEN


def test_checksums_are_left_alone_when_asked_to() -> None:
    bad = bytearray(batch(0, 3))
    bad[-2] ^= 1  # inside the last value
    assert len(values(decode(arrival(bytes(bad), acquired(0, 2)), check_crcs=False))) == 3


def test_bytes_that_are_cut_short_are_to_be_released() -> None:
    one = acquired(0, 9)
    data = (batch(0, 5) + batch(5, 5))[:-10]
    pieces = decode(arrival(data, one), check_crcs=True)
    assert values(pieces) == [b"0", b"1", b"2", b"3", b"4"]
    damaged = pieces[-1]
    assert isinstance(damaged, Damaged)
    assert (damaged.first, damaged.last, damaged.mark) == (5, 9, RELEASE)


def test_offsets_lost_in_the_buffer_are_not_handed_out() -> None:
    one = acquired(0, 4)
    one.lose(1, 2)
    assert values(decode(arrival(batch(0, 5), one), check_crcs=True)) == [b"0", b"3", b"4"]


def test_a_batch_that_comes_again_is_opened_from_memory() -> None:
    opened = Opened()
    data = batch(0, 10)
    assert values(decode(arrival(data, acquired(0, 3)), check_crcs=True, opened=opened)) == [
        b"0",
        b"1",
        b"2",
        b"3",
    ]
    assert values(decode(arrival(data, acquired(4, 9)), check_crcs=True, opened=opened)) == [
        str(number).encode() for number in range(4, 10)
    ]
