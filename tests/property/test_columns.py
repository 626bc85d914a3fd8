"""Both ways from record batches to Arrow columns give the same, whatever is in the batches."""

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headrace.client import columns
from headrace.client.columns import ColumnBuilder
from headrace.spark.runs import Run
from headrace.wire.batches import HEADER_SIZE, Compression, read_header, stamp_append_time, with_header
from headrace.wire.errors import KafkaError
from headrace.wire.fields import HEADERS_MAX, find_fields
from headrace.wire.records import NewRecord, build_batch, keep_records, unpack

Adding = tuple[str, int, tuple[Run, ...], bytes]

some_bytes = st.binary(max_size=200)
few_bytes = st.binary(max_size=3)
header = st.tuples(st.text(max_size=5), st.none() | few_bytes)
timestamps = st.integers(-(2**40), 2**40) | st.integers(1_700_000_000_000, 1_700_000_000_300)
varied_records = st.lists(
    st.builds(
        NewRecord,
        st.none() | some_bytes,
        st.none() | some_bytes | st.integers(0, 20_000).map(bytes),
        st.lists(header, max_size=3),
        timestamps,
    ),
    min_size=1,
    max_size=12,
)
alike_records = st.builds(
    lambda key, value, headers, count, step: [
        NewRecord(key, value, headers, 1_700_000_000_000 + step * index) for index in range(count)
    ],
    st.none() | few_bytes,
    st.none() | some_bytes,
    st.just([]) | st.lists(header, max_size=2),
    st.integers(1, 200),
    st.integers(-2, 2),
)


@st.composite
def batches(draw: st.DrawFn, base_offset: int) -> bytes:
    records = draw(alike_records | varied_records)
    codec = draw(st.sampled_from(Compression))
    batch = bytearray(build_batch(records, base_offset=base_offset, compression=codec))
    if draw(st.integers(0, 5)) == 5:
        stamp_append_time(batch, 0, draw(st.integers(0, 2**40)))
    if draw(st.integers(0, 5)) == 5:
        gone = draw(st.sets(st.integers(0, len(records) - 1)))
        batch[:] = keep_records(bytes(batch), lambda record: record.offset - base_offset not in gone)
    return bytes(batch)


@st.composite
def adding(draw: st.DrawFn) -> list[Adding]:
    """Batches of two partitions, with the runs of offsets that are wanted of each."""
    found: list[Adding] = []
    following = [0, 0]
    for _ in range(draw(st.integers(1, 5))):
        partition = draw(st.integers(0, 1))
        batch = draw(batches(following[partition]))
        first, last = read_header(batch).base_offset, read_header(batch).last_offset
        following[partition] = last + 1 + draw(st.integers(0, 3))
        cuts = sorted(draw(st.sets(st.integers(max(0, first - 2), last + 2), max_size=6)))
        pairs = list(zip(cuts[::2], cuts[1::2], strict=False))
        runs = tuple(Run(low, high, draw(st.integers(1, 3))) for low, high in pairs)
        if draw(st.booleans()):
            runs = (Run(0, last + 10, 1),)
        found.append((f"t{partition}", partition, runs, batch))
    return found


def added(given: list[Adding], *, include_headers: bool, is_vectorized: bool) -> pa.RecordBatch | str | None:
    """One Arrow batch, None for "read it one by one", or what a batch was refused for."""
    builder = ColumnBuilder(include_headers=include_headers, is_vectorized=is_vectorized)
    try:
        offsets = []
        for topic, partition, runs, batch in given:
            builder.want(topic, partition, runs)
            offsets += builder.add(read_header(batch), batch)
        built = builder.build()
    except KafkaError as error:
        return str(error)
    if built is not None:
        built.validate(full=True)
        assert built["offset"].to_pylist() == offsets
    return built


def streamed(given: list[Adding], *, is_vectorized: bool) -> list[pa.RecordBatch] | str:
    builder = ColumnBuilder(include_headers=True, is_vectorized=is_vectorized)
    found = []
    try:
        for topic, partition, runs, batch in given:
            builder.want(topic, partition, runs)
            found += builder.stream(read_header(batch), batch)
        found += builder.rest()
    except KafkaError as error:
        return str(error)
    return found


@given(given=adding(), include_headers=st.booleans())
@settings(deadline=None)
def test_vectors_and_lists_give_equal_columns(given: list[Adding], include_headers: bool) -> None:
    expected = added(given, include_headers=include_headers, is_vectorized=False)
    assert isinstance(expected, pa.RecordBatch)
    found = added(given, include_headers=include_headers, is_vectorized=True)
    assert isinstance(found, pa.RecordBatch)
    assert found.schema == expected.schema
    assert found.to_pylist() == expected.to_pylist()


@given(given=adding())
@settings(deadline=None)
def test_a_stream_of_vectors_has_the_rows_of_a_stream_of_lists(given: list[Adding]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columns, "VECTOR_ROWS_MIN", 20)
        patch.setattr(columns, "ROWS_PER_BATCH", 50)
        found = streamed(given, is_vectorized=True)
        expected = streamed(given, is_vectorized=False)
    assert not isinstance(found, str)
    assert not isinstance(expected, str)
    assert [row for table in found for row in table.to_pylist()] == [
        row for table in expected for row in table.to_pylist()
    ]


@given(
    batch=batches(5),
    at=st.integers(0, 10_000),
    byte=st.integers(1, 255),
    cut=st.integers(0, 3),
)
@example(batch=build_batch([NewRecord(b"k", b"v", (), 0)] * 40), at=4, byte=0x41, cut=0)
@settings(deadline=None, max_examples=300)
def test_damaged_records_are_left_to_the_reader_that_reads_one_by_one(
    batch: bytes, at: int, byte: int, cut: int
) -> None:
    """With a checksum that is right, so that nobody has noticed. Whatever the vectors make of it, the lists do too."""
    plain = unpack(batch)
    payload = bytearray(plain[HEADER_SIZE:])
    if payload:
        payload[at % len(payload)] ^= byte
    damaged = with_header(read_header(plain), bytes(payload[: len(payload) - cut]))
    given: list[Adding] = [("t", 0, (Run(0, 100_000, 1),), damaged)]
    expected = added(given, include_headers=True, is_vectorized=False)
    found = added(given, include_headers=True, is_vectorized=True)
    if isinstance(expected, str):
        assert found is None or found == expected
    elif found is not None:
        assert isinstance(found, pa.RecordBatch)
        assert found.to_pylist() == expected.to_pylist()
    in_stream = streamed(given, is_vectorized=True)
    if isinstance(expected, str):
        assert in_stream == expected
    else:
        assert not isinstance(in_stream, str)
        assert [row for table in in_stream for row in table.to_pylist()] == expected.to_pylist()


def test_usual_records_are_read_as_vectors() -> None:
    """Else the tests above would compare the lists with themselves."""
    headers = [("trace", b"1"), ("span", None)]
    records = [
        NewRecord(b"k%d" % n, None if n % 7 == 0 else b"v" * n, headers[: n % 3], n * 1_000)
        for n in range(300)
    ]
    for codec in Compression:
        batch = build_batch(records, compression=codec)
        found = find_fields([unpack(batch)[HEADER_SIZE:]] * 2, [300, 300])
        assert found is not None
        assert len(found.offset_deltas) == 600


def test_a_record_of_very_many_headers_is_read_one_by_one() -> None:
    batch = build_batch([NewRecord(None, b"", [("a", None)] * (HEADERS_MAX + 1), 0)])
    assert find_fields([batch[HEADER_SIZE:]], [1]) is None


def test_a_batch_that_is_laid_out_otherwise_than_the_last_of_its_size_is_read_right() -> None:
    """Where records begin in a batch is guessed from another one of the same size and count."""
    alike = [20] * 40 + [20] * 40
    other = [10] * 40 + [30] * 40
    for sizes in (alike, other, other, alike):
        values = [bytes([place]) * size for place, size in enumerate(sizes)]
        payload = build_batch([NewRecord(None, value) for value in values])[HEADER_SIZE:]
        found = find_fields([payload], [80])
        assert found is not None
        bounds = zip(found.values.starts.tolist(), found.values.ends.tolist(), strict=True)
        assert [found.data[start:end] for start, end in bounds] == values


def test_a_batch_whose_offsets_are_not_from_the_first_on_is_left_to_the_other_reader() -> None:
    for count in (40, 100, 9_000):
        batch = build_batch([NewRecord(None, b"x") for _ in range(count)])
        assert find_fields([batch[HEADER_SIZE:]], [count]) is not None
        last = {count - 2}
        kept = keep_records(batch, lambda record, last=last: record.offset not in last)
        assert find_fields([kept[HEADER_SIZE:]], [count - 1]) is None
