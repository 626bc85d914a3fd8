"""The sparse indexes: lookups go to a place that is never too late, and files are what Kafka would write."""

import struct

from headrace.log.index import AbortedTransaction, OffsetIndex, TimeIndex, decode_aborted, encode_aborted


def offset_index(*entries: tuple[int, int]) -> OffsetIndex:
    index = OffsetIndex()
    for relative_offset, position in entries:
        index.add(relative_offset, position)
    return index


def test_a_lookup_starts_at_the_last_batch_that_is_not_after_the_offset() -> None:
    index = offset_index((10, 100), (20, 200))
    assert [index.entry_before(offset)[0] for offset in (0, 9, 10, 19, 20, 99)] == [0, 0, 100, 100, 200, 200]


def test_a_boundary_is_the_last_batch_that_starts_before_a_position() -> None:
    index = offset_index((10, 100), (20, 200))
    assert [index.boundary_before(position)[0] for position in (0, 99, 100, 250)] == [0, 0, 100, 200]


def test_an_offset_index_has_kafkas_format() -> None:
    index = offset_index((10, 100), (20, 200))
    assert index.encode() == struct.pack(">iiii", 10, 100, 20, 200)
    decoded = OffsetIndex.decode(index.encode())
    assert decoded is not None
    assert list(decoded.offsets) == [10, 20]
    assert list(decoded.positions) == [100, 200]


def test_what_does_not_rise_is_no_index() -> None:
    for numbers in ((10, 100, 10, 200), (10, 100, 20, 100), (-1, 0), (5, 5, 0, 0)):
        assert OffsetIndex.decode(struct.pack(f">{len(numbers)}i", *numbers)) is None
    assert OffsetIndex.decode(b"abc") is None
    assert TimeIndex.decode(struct.pack(">qiqi", 5, 0, 5, 1)) is None
    assert TimeIndex.decode(b"abc") is None


def test_a_time_lookup_starts_where_everything_before_is_older() -> None:
    index = TimeIndex()
    for timestamp, relative_offset in ((100, 1), (100, 2), (50, 3), (200, 4), (-1, 5)):
        index.add(timestamp, relative_offset)
    assert list(index.times) == [100, 200]
    assert [index.entry_before(timestamp) for timestamp in (0, 100, 101, 200, 201)] == [
        None,
        None,
        (100, 1),
        (100, 1),
        (200, 4),
    ]


def test_a_time_index_has_kafkas_format() -> None:
    index = TimeIndex()
    index.add(100, 1)
    assert index.encode() == struct.pack(">qi", 100, 1)
    decoded = TimeIndex.decode(index.encode())
    assert decoded is not None
    assert list(decoded.times) == [100]


def test_an_index_of_aborted_transactions_has_kafkas_format() -> None:
    aborted = [AbortedTransaction(7, 10, 20, 15), AbortedTransaction(8, 15, 30, 31)]
    data = encode_aborted(aborted)
    assert data[:34] == struct.pack(">hqqqq", 0, 7, 10, 20, 15)
    assert decode_aborted(data) == aborted
    assert decode_aborted(data[:-1]) == aborted[:1]
