"""Record batches to Arrow: the right rows with the right types, in batches of bounded size."""

import sys
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructField, StructType

from headrace.client import columns
from headrace.client.columns import ROWS_PER_BATCH, ColumnBuilder
from headrace.spark.runs import Run
from headrace.spark.source import KafkaShareSource
from headrace.wire.batches import Compression, read_header, stamp_append_time
from headrace.wire.errors import KafkaError
from headrace.wire.records import Headers, NewRecord, build_batch


@pytest.fixture(params=[False, True], ids=["one by one", "vectorized"], autouse=True)
def is_vectorized(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """What `build` here gives, both ways; however few the records are."""
    monkeypatch.setattr(columns, "VECTOR_ROWS_MIN", 1)
    monkeypatch.setattr(columns, "VECTOR_RECORDS_MIN", 1)
    monkeypatch.setattr(sys.modules[__name__], "IS_VECTORIZED", request.param)


IS_VECTORIZED = False


def build(runs: tuple[Run, ...], *batches: bytes, include_headers: bool = False) -> list[pa.RecordBatch]:
    builder = ColumnBuilder(include_headers=include_headers, is_vectorized=IS_VECTORIZED)
    builder.want("orders", 3, runs)
    built = [table for batch in batches for table in builder.stream(read_header(batch), batch)]
    return [*built, *builder.rest()]


def batch(count: int, *, base_offset: int = 0, headers: Headers = (), compression: int = 0) -> bytes:
    records = [NewRecord(b"k%d" % index, b"v%d" % index, headers, 1_000 + index) for index in range(count)]
    return build_batch(records, base_offset=base_offset, compression=compression)


def test_a_row_has_sparks_kafka_columns_and_the_delivery_count() -> None:
    (table,) = build((Run(7, 7, 2),), batch(1, base_offset=7))
    assert table.to_pylist() == [
        {
            "key": b"k0",
            "value": b"v0",
            "topic": "orders",
            "partition": 3,
            "offset": 7,
            "timestamp": datetime.fromtimestamp(1, UTC),
            "timestampType": 0,
            "deliveryCount": 2,
        }
    ]


@pytest.mark.parametrize("include_headers", [False, True])
def test_the_columns_are_those_that_the_source_declares(include_headers: bool) -> None:
    options = {"kafka.bootstrap.servers": "h:1", "subscribe": "orders", "kafka.group.id": "g"}
    declared = KafkaShareSource({**options, "includeHeaders": str(include_headers)}).schema()
    (table,) = build((Run(0, 0, 1),), batch(1), include_headers=include_headers)
    assert table.schema.names == declared.names
    assert from_arrow_schema(table.schema) == StructType(
        [StructField(field.name, field.dataType) for field in declared]
    )


def test_ours_come_after_those_of_sparks_kafka_source() -> None:
    (table,) = build((Run(0, 0, 1),), batch(1), include_headers=True)
    assert table.schema.names[-3:] == ["timestampType", "headers", "deliveryCount"]


def test_only_records_of_the_runs_come_out() -> None:
    (table,) = build((Run(2, 3, 1), Run(5, 11, 4)), batch(10), batch(10, base_offset=10))
    assert table.column("offset").to_pylist() == [2, 3, 5, 6, 7, 8, 9, 10, 11]
    assert table.column("deliveryCount").to_pylist() == [1, 1, 4, 4, 4, 4, 4, 4, 4]


def test_nothing_wanted_gives_no_batch() -> None:
    assert build((Run(50, 60, 1),), batch(10)) == []


def test_null_keys_and_values_stay_null() -> None:
    (table,) = build((Run(0, 0, 1),), build_batch([NewRecord(None, None)]))
    assert table.column("key").to_pylist() == [None]
    assert table.column("value").to_pylist() == [None]


def test_headers_come_with_their_nulls_and_none_is_null_as_in_sparks_own_source() -> None:
    (table,) = build(
        (Run(0, 1, 1),),
        batch(1, headers=[("a", b"1"), ("a", None)]),
        batch(1, base_offset=1),
        include_headers=True,
    )
    assert table.column("headers").to_pylist() == [
        [{"key": "a", "value": b"1"}, {"key": "a", "value": None}],
        None,
    ]


def test_the_brokers_append_time_counts_where_the_topic_says_so() -> None:
    stamped = bytearray(batch(2))
    stamp_append_time(stamped, 0, 5_000)
    (table,) = build((Run(0, 1, 1),), bytes(stamped))
    assert table.column("timestamp").to_pylist() == [datetime.fromtimestamp(5, UTC)] * 2
    assert table.column("timestampType").to_pylist() == [1, 1]


@pytest.mark.parametrize("compression", Compression)
def test_every_codec_is_opened(compression: Compression) -> None:
    (table,) = build((Run(0, 999, 1),), batch(1_000, compression=compression))
    assert table.column("value").to_pylist() == [b"v%d" % index for index in range(1_000)]


def test_arrow_batches_are_of_bounded_size() -> None:
    tables = build((Run(0, 99_999, 1),), batch(25_000))
    assert sum(table.num_rows for table in tables) == 25_000
    assert max(table.num_rows for table in tables) <= ROWS_PER_BATCH + 256


def test_rows_of_several_partitions_are_one_table_and_a_batch_that_cannot_be_read_adds_none() -> None:
    builder = ColumnBuilder(include_headers=False)
    builder.want("orders", 3, (Run(0, 9, 1),))
    builder.add(read_header(batch(2)), batch(2))
    broken = bytearray(batch(300, base_offset=0))
    broken[-1] ^= 0xFF
    builder.want("bills", 0, (Run(0, 100, 2), Run(101, 400, 3)))
    with pytest.raises(KafkaError):
        builder.add(read_header(broken), bytes(broken))
    builder.add(read_header(batch(1, base_offset=101)), batch(1, base_offset=101))
    (table,) = builder.rest()
    columns = ("topic", "partition", "offset", "deliveryCount")
    assert [tuple(row[name] for name in columns) for row in table.to_pylist()] == [
        ("orders", 3, 0, 1),
        ("orders", 3, 1, 1),
        ("bills", 0, 101, 3),
    ]
