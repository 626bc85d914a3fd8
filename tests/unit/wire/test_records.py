"""Records: built and opened in every codec, the same bytes as other writers make, and no bomb goes off."""

import zlib

import cramjam
import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from hypothesis import given
from hypothesis import strategies as st

from headrace.wire import compression
from headrace.wire.batches import CONTROL, HEADER_SIZE, Compression, is_intact, read_header, with_header
from headrace.wire.compression import compress, decompress
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.records import (
    Marker,
    NewRecord,
    build_batch,
    build_marker,
    empty_batch,
    encode_record,
    encode_values,
    keep_records,
    read_marker,
    read_records,
    recompress,
)

RECORDS = [
    NewRecord(b"key", b"value", [("name", b"content"), ("größe", None)], 1000),
    NewRecord(None, b"x" * 300, (), 900),
    NewRecord(b"", None, (), 2_000_000),
]
CODECS = list(Compression)
PACKED = [codec for codec in CODECS if codec]


def opened(batch: bytes) -> list[NewRecord]:
    return [
        NewRecord(record.key, record.value, record.headers or (), record.timestamp)
        for record in read_records(batch)
    ]


@pytest.mark.parametrize("codec", CODECS)
def test_records_come_back_as_they_went_in(codec: int) -> None:
    batch = build_batch(RECORDS, compression=codec, base_offset=50)
    header = read_header(batch)
    assert header.compression == codec
    assert is_intact(batch, 0, header)
    assert (header.base_timestamp, header.max_timestamp) == (1000, 2_000_000)
    assert opened(batch) == [*RECORDS]
    assert [record.offset for record in read_records(batch)] == [50, 51, 52]


def test_a_batch_is_byte_for_byte_what_another_writer_makes() -> None:
    builder = DefaultRecordBatchBuilder(2, 0, 1, 5, 6, 7, 10**9)
    for index, (key, value, headers, timestamp) in enumerate(RECORDS):
        builder.append(index, timestamp, key, value, list(headers))
    ours = build_batch(
        RECORDS, producer_id=5, producer_epoch=6, base_sequence=7, is_transactional=True, leader_epoch=-1
    )
    assert ours == bytes(builder.build())


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("other", CODECS)
def test_a_change_of_codec_leaves_records_and_header_alone(codec: int, other: int) -> None:
    batch = build_batch(RECORDS, compression=codec, producer_id=5, producer_epoch=0, base_sequence=9)
    changed = recompress(batch, other)
    assert opened(changed) == [*RECORDS]
    fields = {"length": 0, "crc": 0, "attributes": 0}
    assert read_header(changed)._replace(**fields) == read_header(batch)._replace(**fields)


@pytest.mark.parametrize("codec", CODECS)
def test_some_records_stay_with_their_offsets_and_times(codec: int) -> None:
    batch = build_batch(RECORDS, compression=codec, base_offset=50)
    kept = keep_records(batch, lambda record: record.offset != 51)
    assert [record.offset for record in read_records(kept)] == [50, 52]
    assert opened(kept) == [RECORDS[0], RECORDS[2]]
    header = read_header(kept)
    assert (header.record_count, header.last_offset, header.compression) == (2, 52, codec)


@pytest.mark.parametrize("horizon_ms", [5, 1000, 10**12])
def test_a_delete_horizon_takes_the_base_timestamps_place_and_changes_no_time(horizon_ms: int) -> None:
    kept = keep_records(build_batch(RECORDS), lambda record: True, delete_horizon_ms=horizon_ms)
    assert read_header(kept).delete_horizon_ms == horizon_ms
    assert opened(kept) == [*RECORDS]


def test_the_largest_timestamp_is_that_of_the_records_that_stay() -> None:
    kept = keep_records(build_batch(RECORDS), lambda record: record.offset < 2)
    assert read_header(kept).max_timestamp == 1000


def test_an_empty_batch_keeps_the_producers_last_sequence() -> None:
    batch = build_batch(RECORDS, compression=1, producer_id=5, producer_epoch=6, base_sequence=7)
    empty = empty_batch(read_header(batch))
    header = read_header(empty)
    assert len(empty) == HEADER_SIZE
    assert (header.record_count, header.last_sequence, header.compression) == (0, 9, 0)
    assert read_records(empty) == []


def test_a_marker_says_how_a_transaction_ended() -> None:
    for commit in (True, False):
        batch = build_marker(
            producer_id=5, producer_epoch=6, commit=commit, coordinator_epoch=9, timestamp=77, base_offset=3
        )
        header = read_header(batch)
        assert header.is_control
        assert header.is_transactional
        assert (header.base_offset, header.base_sequence, header.max_timestamp) == (3, -1, 77)
        marker = read_marker(batch)
        assert marker == Marker(int(commit), 9)
        assert marker.is_commit == commit
        (record,) = read_records(batch)
        assert record.key == bytes([0, 0, 0, int(commit)])
        assert record.value == bytes([0, 0, 0, 0, 0, 9])


def test_control_records_of_other_kinds_end_no_transaction() -> None:
    plain = build_batch([NewRecord(b"\0\0\0\2", b"leader change")])
    control = with_header(read_header(plain)._replace(attributes=CONTROL), plain[HEADER_SIZE:])
    assert read_marker(control) is None


def test_a_control_batch_without_a_whole_record_is_corrupt() -> None:
    whole = build_marker(producer_id=5, producer_epoch=6, commit=True, coordinator_epoch=9, timestamp=0)
    for end in (HEADER_SIZE, HEADER_SIZE + 5, len(whole) - 4):
        with pytest.raises(KafkaError) as caught:
            read_marker(whole[:end])
        assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


def test_records_that_are_not_what_the_header_counts_are_corrupt() -> None:
    batch = build_batch(RECORDS)
    header = read_header(batch)
    for count, payload in ((4, batch[HEADER_SIZE:]), (2, batch[HEADER_SIZE:]), (3, batch[HEADER_SIZE:-1])):
        with pytest.raises(KafkaError) as caught:
            read_records(with_header(header._replace(record_count=count), payload))
        assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


def test_bytes_after_the_batch_do_not_matter() -> None:
    assert len(read_records(build_batch(RECORDS) + b"next batch")) == 3


@pytest.mark.parametrize("codec", PACKED)
@pytest.mark.parametrize("size", [0, 1, 100, 70_000, 3_000_000])
def test_what_is_packed_can_be_unpacked(codec: int, size: int) -> None:
    data = bytes(range(256)) * (size // 256 + 1)
    assert decompress(codec, compress(codec, data[:size])) == data[:size]


def test_snappy_without_javas_framing_is_understood() -> None:
    bare = bytes(cramjam.snappy.compress_raw(b"librdkafka " * 100))
    assert decompress(Compression.SNAPPY, bare) == b"librdkafka " * 100


@pytest.mark.parametrize("codec", PACKED)
def test_rubbish_and_cut_data_are_corrupt(codec: int) -> None:
    whole = compress(codec, b"some data that is worth packing " * 50)
    for data in (b"\xff" * 40, whole[: len(whole) // 2]):
        with pytest.raises(KafkaError) as caught:
            decompress(codec, data)
        assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("codec", PACKED)
def test_a_few_bytes_cannot_unpack_to_more_than_the_bound(
    codec: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compression, "UNPACKED_MAX", 100_000)
    assert len(decompress(codec, compress(codec, bytes(100_000)))) == 100_000
    with pytest.raises(KafkaError, match="more than 100000") as caught:
        decompress(codec, compress(codec, bytes(100_001)))
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


def test_gzip_of_both_kinds_is_understood() -> None:
    assert decompress(Compression.GZIP, zlib.compress(b"zlib's header")) == b"zlib's header"


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_unknown_codecs_are_named(codec: int) -> None:
    for attempt in (lambda: compress(codec, b""), lambda: decompress(codec, b"")):
        with pytest.raises(KafkaError) as caught:
            attempt()
        assert caught.value.code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


def test_a_marker_that_compaction_has_emptied_ends_no_transaction() -> None:
    marker = build_marker(producer_id=5, producer_epoch=6, commit=True, coordinator_epoch=9, timestamp=0)
    assert read_marker(empty_batch(read_header(marker))) is None


@pytest.mark.parametrize("size", [0, 63, 64, 2031, 2032, 2047, 2048, 9000])
@pytest.mark.parametrize("delta", [-1, 0, 64, 2047, 2048])
def test_a_record_without_key_reads_back_whatever_its_size_and_time(size: int, delta: int) -> None:
    """Small numbers are encoded by a table, larger ones by computing them."""
    count = 2050  # indexes beyond the table, too
    given = [NewRecord(None, bytes(size), (), 10_000)]
    given += [NewRecord(None, bytes(index % 7), (), 10_000 + delta) for index in range(1, count)]
    given.append(NewRecord(None, bytes(size), (), 10_000 + delta))
    found = read_records(build_batch(given))
    assert [(one.key, one.value, one.timestamp) for one in found] == [
        (one.key, one.value, one.timestamp) for one in given
    ]
    assert [one.offset for one in found] == list(range(count + 1))


@given(
    index=st.sampled_from([0, 1, 60, 63, 64, 2_040, 8_180, 8_191, 8_192, 1_048_570]),
    timestamp_delta=st.sampled_from([-1, 0, 1, 63, 64, 5_000, 10**12]),
    sizes=st.one_of(
        st.lists(st.sampled_from([0, 1, 50, 63, 64, 2_000, 2_040, 9_000]), min_size=1, max_size=20),
        st.builds(lambda size, count: [size] * count, st.integers(0, 200), st.integers(1, 20)),
    ),
    room=st.sampled_from([0, 10, 70, 500, 10**9]),
)
def test_values_encoded_together_are_the_bytes_of_each(
    index: int, timestamp_delta: int, sizes: list[int], room: int
) -> None:
    values = [bytes([place]) * size for place, size in enumerate(sizes)]
    each = [
        encode_record(index + place, timestamp_delta, None, value, ()) for place, value in enumerate(values)
    ]
    parts, count = encode_values(index, timestamp_delta, values, room)
    assert b"".join(parts) == b"".join(each[:count])
    assert sum(map(len, each[:count])) <= room
    assert count == len(each) or sum(map(len, each[: count + 1])) > room
