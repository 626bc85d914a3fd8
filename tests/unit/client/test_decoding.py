"""Records out of arrivals: only ours, gaps for the rest, and damaged bytes."""

from datetime import timedelta

import pytest

from headrace.client import decoding
from headrace.client.core.holdings import Arrival
from headrace.client.core.ranges import AcquiredRange, RangeCause, RangeState
from headrace.client.decoding import Damaged, Decoded, Gap, Opened, Readable
from headrace.client.delivery import AcknowledgeType, Delivery
from headrace.wire.batches import HEADER_SIZE, Compression, seal
from headrace.wire.records import NewRecord, build_batch, build_marker, keep_records
from tests.unit.client.core.test_ranges import acquired as any_acquired


class Nobody:
    """A keeper that nobody asks."""

    def acknowledge(self, delivery: Delivery, type: int) -> None:
        raise AssertionError

    def release_later(self, delivery: Delivery, after: float | timedelta) -> None:
        raise AssertionError

    def lock_deadline(self, delivery: Delivery) -> float:
        raise AssertionError


def acquired(first: int, last: int) -> AcquiredRange:
    """Taken by a poll."""
    one = any_acquired(first, last, is_handed=False)
    one.apply(RangeCause.TAKE)
    return one


def decode(given: Arrival, *, check_crcs: bool, opened: Opened | None = None) -> Decoded:
    return decoding.decode(given, Nobody(), check_crcs=check_crcs, opened=opened)


def batch(base: int, count: int, *, compression: int = Compression.NONE) -> bytes:
    records = [NewRecord(None, str(base + number).encode(), (), 7) for number in range(count)]
    return build_batch(records, base_offset=base, compression=compression)


def arrival(data: bytes, *ranges: AcquiredRange) -> Arrival:
    return Arrival("t", 0, b"t" * 16, ranges, data)


def values(decoded: Decoded) -> list[bytes]:
    return [one.value for piece in decoded.pieces if isinstance(piece, Readable) for one in piece.records]


@pytest.mark.parametrize("compression", list(Compression))
def test_records_of_several_batches_come_in_order(compression: Compression) -> None:
    one = acquired(0, 9)
    data = batch(0, 5, compression=compression) + batch(5, 5, compression=compression)
    decoded = decode(arrival(data, one), check_crcs=True)
    assert values(decoded) == [str(number).encode() for number in range(10)]
    assert (len(decoded.pieces), decoded.gaps) == (1, [])


def test_only_acquired_records_are_returned() -> None:
    first, second = acquired(1, 2), acquired(6, 7)
    pieces = decode(arrival(batch(0, 5) + batch(5, 5), first, second), check_crcs=True)
    assert values(pieces) == [b"1", b"2", b"6", b"7"]
    assert [piece.acquired for piece in pieces.pieces] == [first, second]


def test_many_ranges_in_one_batch_open_it_once() -> None:
    ranges = [acquired(number, number) for number in range(0, 100, 2)]
    assert len(values(decode(arrival(batch(0, 100), *ranges), check_crcs=True))) == 50


def test_offsets_without_a_record_are_gaps() -> None:
    one = acquired(0, 9)
    data = keep_records(batch(0, 10), lambda record: record.offset in (3, 4))
    decoded = decode(arrival(data, one), check_crcs=True)
    assert values(decoded) == [b"3", b"4"]
    assert decoded.gaps == [Gap(one, 0, 2), Gap(one, 5, 9)]


def test_control_records_are_gaps() -> None:
    one = acquired(0, 2)
    marker = build_marker(
        producer_id=1, producer_epoch=0, commit=True, coordinator_epoch=0, timestamp=1, base_offset=2
    )
    decoded = decode(arrival(batch(0, 2) + marker, one), check_crcs=True)
    assert values(decoded) == [b"0", b"1"]
    assert decoded.gaps == [Gap(one, 2, 2)]


def test_a_damaged_batch_is_to_be_rejected_and_its_neighbors_are_read() -> None:
    one = acquired(0, 9)
    bad = bytearray(batch(5, 3))
    bad[-1] ^= 1
    pieces = decode(arrival(batch(0, 5) + bytes(bad) + batch(8, 2), one), check_crcs=True)
    assert values(pieces) == [b"0", b"1", b"2", b"3", b"4", b"8", b"9"]
    (damaged,) = (piece for piece in pieces.pieces if isinstance(piece, Damaged))
    assert (damaged.first, damaged.last, damaged.type) == (5, 7, AcknowledgeType.REJECT)
    assert "t-0, offsets 5 to 7" in str(damaged.error)
    assert one.is_all(RangeState.TAKEN)


def test_checksums_are_left_alone_when_asked_to() -> None:
    bad = bytearray(batch(0, 3))
    bad[-2] ^= 1  # inside the last value
    assert len(values(decode(arrival(bytes(bad), acquired(0, 2)), check_crcs=False))) == 3


def test_bytes_that_are_cut_short_are_to_be_released() -> None:
    one = acquired(0, 9)
    data = (batch(0, 5) + batch(5, 5))[:-10]
    pieces = decode(arrival(data, one), check_crcs=True)
    assert values(pieces) == [b"0", b"1", b"2", b"3", b"4"]
    damaged = pieces.pieces[-1]
    assert isinstance(damaged, Damaged)
    assert (damaged.first, damaged.last, damaged.type) == (5, 9, AcknowledgeType.RELEASE)


def test_offsets_lost_in_the_buffer_are_not_handed_out() -> None:
    one = acquired(0, 4)
    one.apply(RangeCause.LOSE, 1, 2)
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


def sealed(data: bytes) -> bytes:
    changed = bytearray(data)
    seal(changed)
    return bytes(changed)


def test_a_batch_that_matches_its_checksum_and_cannot_be_read_is_to_be_released() -> None:
    """It may be the fault of the reader: another member, or a later version, may know its codec."""
    one = acquired(0, 2)
    data = bytearray(batch(0, 3, compression=Compression.ZSTD))
    data[HEADER_SIZE:] = bytes(len(data) - HEADER_SIZE)
    (damaged,) = decode(arrival(sealed(bytes(data)), one), check_crcs=True).pieces
    assert isinstance(damaged, Damaged)
    assert (damaged.first, damaged.last, damaged.type) == (0, 2, AcknowledgeType.RELEASE)
    assert "released" in str(damaged.error)


@pytest.mark.parametrize("error", [MemoryError, TimeoutError, KeyboardInterrupt, RuntimeError])
def test_an_exception_that_is_not_about_the_bytes_passes(
    error: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(decoding, "read_records", fail)
    one = acquired(0, 2)
    with pytest.raises(error):
        decode(arrival(batch(0, 3), one), check_crcs=True)
    assert one.is_all(RangeState.TAKEN)
