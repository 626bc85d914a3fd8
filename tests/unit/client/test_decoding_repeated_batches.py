"""A batch that comes again, because a few more of its records were acquired, is opened once, and read the same."""

import pytest

from headrace.client import decoding
from headrace.client.core.holdings import Arrival
from headrace.client.core.ranges import AcquiredRange, RangeCause
from headrace.client.decoding import OPENED_MAX, Opened
from headrace.wire.records import NewRecord, build_batch
from tests.unit.client.test_decoding import Nobody

TOPIC_ID = b"t" * 16


def batch(count: int, *, base: int = 0) -> bytes:
    return build_batch(
        [NewRecord(None, str(base + index).encode(), timestamp=1) for index in range(count)], base_offset=base
    )


def arrival(records: bytes, *ranges: tuple[int, int], partition: int = 0) -> Arrival:
    acquired = [
        AcquiredRange(
            "t", partition, first=first, last=last, delivery_count=1, topic_id=TOPIC_ID, node_id=1,
            lock_ms=30_000, lock_until_ms=30_000,
        )
        for first, last in ranges
    ]  # fmt: skip
    for one in acquired:
        one.apply(RangeCause.TAKE)
    return Arrival("t", partition, TOPIC_ID, acquired, records)


def decode(given: Arrival, **options):
    return decoding.decode(given, Nobody(), **options).pieces


def values(pieces) -> list[bytes]:
    return [record.value for piece in pieces for record in piece.records]


@pytest.fixture
def openings(monkeypatch):
    """How often records were read."""
    calls = []
    read = decoding.read_records

    def counted(batch, into):
        calls.append(len(batch))
        return read(batch, into)

    monkeypatch.setattr(decoding, "read_records", counted)
    return calls


def test_each_part_of_a_batch_is_what_was_acquired_of_it(openings):
    opened, data = Opened(), batch(10)

    parts = [
        values(decode(arrival(data, span), check_crcs=True, opened=opened))
        for span in ((0, 3), (4, 4), (5, 9))
    ]

    assert parts == [[b"0", b"1", b"2", b"3"], [b"4"], [b"5", b"6", b"7", b"8", b"9"]]
    assert len(openings) == 1


def test_several_acquisitions_of_one_batch_are_told_apart():
    pieces = decode(arrival(batch(10), (1, 2), (7, 8)), check_crcs=True, opened=Opened())

    assert [[record.offset for record in piece.records] for piece in pieces] == [[1, 2], [7, 8]]


def test_an_acquisition_over_two_batches_does_not_spoil_what_is_remembered(openings):
    opened = Opened()
    data = batch(4) + batch(4, base=4)

    first = values(decode(arrival(data, (2, 5)), check_crcs=True, opened=opened))
    second = values(decode(arrival(data, (6, 6)), check_crcs=True, opened=opened))
    third = values(decode(arrival(data, (0, 1), (7, 7)), check_crcs=True, opened=opened))

    assert (first, second, third) == ([b"2", b"3", b"4", b"5"], [b"6"], [b"0", b"1", b"7"])
    assert len(openings) == 3  # the first batch twice: its end had been acquired before its beginning


def test_the_same_offsets_with_other_content_are_not_mixed_up():
    opened = Opened()
    decode(arrival(batch(4), (0, 1)), check_crcs=True, opened=opened)
    other = build_batch([NewRecord(None, b"new", timestamp=1)] * 4, base_offset=0)

    assert values(decode(arrival(other, (2, 3)), check_crcs=True, opened=opened)) == [b"new", b"new"]


def test_only_a_few_batches_are_remembered(openings):
    opened = Opened()
    for partition in range(OPENED_MAX + 1):
        decode(arrival(batch(4), (0, 0), partition=partition), check_crcs=True, opened=opened)
    openings.clear()

    decode(arrival(batch(4), (1, 1), partition=OPENED_MAX), check_crcs=True, opened=opened)
    assert openings == []
    decode(arrival(batch(4), (1, 1), partition=0), check_crcs=True, opened=opened)
    assert len(openings) == 1
