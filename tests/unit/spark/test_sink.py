"""The options and columns of `format("kafka-headrace")`, without Spark's JVM."""

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from headrace.spark.errors import ColumnError, OptionError
from headrace.spark.sink import KafkaSink, SinkColumns, SinkOptions, _Task

SERVERS = {"kafka.bootstrap.servers": "localhost:9092"}
HEADERS = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
TEXT, DATA, INT, LONG = StringType(), BinaryType(), IntegerType(), LongType()
Fields = list[tuple[str, DataType]]


def schema(fields: Fields) -> StructType:
    return StructType([StructField(name, kind) for name, kind in fields])


def columns(fields: Fields, **options: str) -> SinkColumns:
    return SinkColumns.find(schema(fields), SinkOptions.parse({**SERVERS, **options}))


def test_options_are_those_of_sparks_sink_in_any_case() -> None:
    options = SinkOptions.parse(
        {**SERVERS, "Topic": "scored", "includeheaders": "TRUE", "kafka.linger.ms": "5", "kafka.acks": "all"}
    )
    assert (options.topic, options.include_headers, options.client.linger_ms) == ("scored", True, 5)
    assert options.client.is_idempotent


def test_sparks_own_options_for_a_write_are_passed_over() -> None:
    given = {"checkpointLocation": "c", "path": "p", "queryName": "q", "asyncProgressTrackingEnabled": "true"}
    assert SinkOptions.parse({**SERVERS, **given}).topic is None


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"topic": "t"}, r"kafka\.bootstrap\.servers is missing"),
        ({**SERVERS, "topic": ""}, "topic is empty"),
        ({**SERVERS, "includeHeaders": "maybe"}, "includeHeaders='maybe'; allowed are true and false"),
        ({**SERVERS, "subscribe": "t"}, r"kafka-headrace has no option subscribe\. Known are .*topic"),
        ({**SERVERS, "kafka.transactional.id": "x"}, "a transaction belongs to one producer"),
        ({**SERVERS, "kafka.key.serializer": "x"}, r"kafka\.key\.serializer cannot be used"),
        ({**SERVERS, "kafka.lingr.ms": "5"}, r"did you mean kafka\.linger\.ms"),
    ],
)
def test_a_wrong_option_is_refused_with_the_cure(given: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        SinkOptions.parse(given)


def test_columns_that_are_there_are_used_and_others_passed_over() -> None:
    everything: Fields = [
        ("key", TEXT),
        ("value", DATA),
        ("topic", TEXT),
        ("partition", INT),
        ("headers", HEADERS),
        ("id", LONG),
    ]
    assert columns(everything) == SinkColumns(
        has_key=True, has_topic=True, has_headers=True, has_partition=True
    )
    assert columns([("value", TEXT)], topic="t") == SinkColumns(False, False, False, False)
    assert not columns([("value", TEXT), ("topic", LONG)], topic="t").has_topic, "the option wins"
    assert not columns(everything, includeHeaders="false").has_headers


@pytest.mark.parametrize(
    ("fields", "options", "said"),
    [
        ([("id", LONG), ("name", TEXT)], {}, r"Required attribute 'value' not found in id, name\. .*to_json"),
        (
            [("value", LONG)],
            {},
            r'value attribute type must be a string or binary, and is bigint.*cast\("string"\)',
        ),
        (
            [("value", StructType([StructField("a", INT)]))],
            {},
            r'value attribute type must be .* struct<a:int>.*F\.to_json\("value"\)',
        ),
        (
            [("key", DoubleType()), ("value", TEXT)],
            {},
            "key attribute type must be a string or binary, and is double",
        ),
        ([("value", TEXT), ("value", DATA)], {}, "2 columns named value"),
        ([("value", TEXT)], {"topic": None}, "topic option required when no 'topic' attribute is present"),
        (
            [("value", TEXT), ("topic", INT)],
            {"topic": None},
            r'topic attribute type must be a string.*cast\("string"\)',
        ),
        (
            [("value", TEXT), ("partition", LONG)],
            {},
            r'partition attribute type must be an int.*cast\("int"\)',
        ),
        (
            [("value", TEXT), ("headers", MapType(TEXT, DATA))],
            {},
            "headers attribute type must be an array<struct<",
        ),
        (
            [("value", TEXT)],
            {"includeHeaders": "true"},
            "includeHeaders=true, and the DataFrame has no column",
        ),
    ],
)
def test_a_column_that_cannot_be_written_is_named_with_the_cure(
    fields: Fields, options: dict[str, str | None], said: str
) -> None:
    given = {name: value for name, value in {"topic": "t", **options}.items() if value is not None}
    with pytest.raises(ColumnError, match=said):
        columns(fields, **given)


def test_overwriting_a_topic_is_refused() -> None:
    with pytest.raises(OptionError, match="only ever added to"):
        KafkaSink({**SERVERS, "topic": "t"}).writer(schema([("value", TEXT)]), overwrite=True)


@pytest.mark.parametrize("headers", [[None], [{"key": None, "value": b""}]])
def test_a_header_without_a_name_is_refused(headers: list[object]) -> None:
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    batch = pa.record_batch(
        [pa.array([b"v"]), pa.array([headers], kind)],
        names=["value", "headers"],
    )
    task = _Task(SinkOptions.parse({**SERVERS, "topic": "t"}), SinkColumns(False, False, True, False))
    with pytest.raises(ColumnError, match="null header"):
        list(task._rows(batch))


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()])
def test_text_of_any_arrow_type_is_sent_as_utf_8(kind: pa.DataType) -> None:
    values = (
        ["é", None] if pa.types.is_string(kind) or pa.types.is_large_string(kind) else ["é".encode(), None]
    )
    batch = pa.record_batch([pa.array(values, kind)], names=["value"])
    task = _Task(SinkOptions.parse({**SERVERS, "topic": "t"}), SinkColumns(False, False, False, False))
    assert list(task._rows(batch)) == [("t", "é".encode(), None, (), None), ("t", None, None, (), None)]
