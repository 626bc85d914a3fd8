"""The sink `kafka-headrace`: rows of a DataFrame, batch or streaming, become records in Kafka. No jar is needed.

    (orders.selectExpr("CAST(id AS STRING) AS key", "to_json(struct(*)) AS value")
        .writeStream.format("kafka-headrace")
        .option("kafka.bootstrap.servers", "localhost:9092")
        .option("topic", "scored")
        .option("checkpointLocation", "checkpoints/scored")
        .start())

Columns and options are those of Spark's own Kafka sink. A task is done when every record of it is acknowledged, so
Spark never commits a micro-batch that Kafka does not have. A task or micro-batch that runs again sends its records
again: at least once, as with Spark's own sink. docs/decisions/0013-the-kafka-sink-is-at-least-once.md says why.
"""

import contextlib
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import ArrayType, BinaryType, DataType, IntegerType, StringType, StructType

from headrace.base.settings import ConfigType
from headrace.base.tables import rows
from headrace.client.errors import SomeNotSentError
from headrace.client.producing.future import SendFuture
from headrace.client.producing.sync import Producer
from headrace.client.settings import ProducerSettings
from headrace.spark.errors import ColumnError, OptionError
from headrace.spark.options import kafka_options, option, parse_client, read_option, spell, unknown_option
from headrace.spark.telling import plainly

NAME = "kafka-headrace"
OPTIONS = ("kafka.bootstrap.servers", "topic", "includeHeaders")
_OF_SPARK = {
    "path",
    "checkpointlocation",
    "queryname",
    "asyncprogresstrackingenabled",
    "asyncprogresstrackingcheckpointintervalms",
}
"""Spark's own options for a write, which it also gives to the sink."""
_TRANSACTION = (
    "the tasks of a query run at the same time, and a transaction belongs to one producer. Leave it out; consumers "
    "that must not see a record twice can tell them by a key or a header of yours."
)
_HEADERS = "array<struct<key:string,value:binary>>"


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    client: ProducerSettings
    topic: str | None = None
    """For all rows, whatever their column `topic` says."""
    include_headers: bool | None = option(
        "includeHeaders",
        None,
        "Whether to write the column `headers`; by default if the DataFrame has it.",
        kind=ConfigType.BOOLEAN,
    )

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> "SinkOptions":
        """OptionError, with the cure, for the first thing that is wrong."""
        rest, spelled = spell(given)
        for name in _OF_SPARK:
            rest.pop(name, None)
        topic = rest.pop("topic", None)
        if topic == "":
            raise OptionError("topic is empty. Name a topic, or leave it out and have a column `topic`.")
        headers = rest.pop("includeheaders", None)
        client = _client(rest)
        if rest:
            raise unknown_option(spelled[min(rest)], NAME, OPTIONS)
        row = rows(cls)["include_headers"]
        shown = None if headers is None else read_option(row, row.name, headers)
        return cls(client=client, topic=topic, include_headers=shown)


def _client(rest: dict[str, str]) -> ProducerSettings:
    given = kafka_options(rest)
    if "transactional.id" in given:
        raise OptionError(
            f"kafka.transactional.id={given['transactional.id']!r} cannot be used: {_TRANSACTION}"
        )
    return parse_client(ProducerSettings, given)


class SinkColumns(NamedTuple):
    """Which of the columns that the sink knows a DataFrame has. Others are passed over, as in Spark's own sink."""

    has_key: bool
    has_topic: bool
    has_headers: bool
    has_partition: bool

    @classmethod
    def find(cls, schema: StructType, options: SinkOptions) -> "SinkColumns":
        """ColumnError, in Spark's words and with the cure, for what cannot be written."""
        names = schema.names
        for name in ("key", "value", "topic", "headers", "partition"):
            if names.count(name) > 1:
                raise ColumnError(f"The DataFrame has {names.count(name)} columns named {name}; keep one.")
        if "value" not in names:
            raise ColumnError(
                f"Required attribute 'value' not found in {', '.join(names) or 'no columns'}. Make it, for example "
                'with .selectExpr("CAST(id AS STRING) AS key", "to_json(struct(*)) AS value").'
            )
        for name in ("key", "value"):
            if name in names:
                _require_type(schema, name, (StringType, BinaryType), "string or binary")
        if options.topic is None:
            if "topic" not in names:
                raise ColumnError(
                    "topic option required when no 'topic' attribute is present. Use the 'topic' option for setting a "
                    "topic, or add a column `topic`."
                )
            _require_type(schema, "topic", StringType, "string")
        if "partition" in names:
            _require_type(schema, "partition", IntegerType, "int")
        return cls(
            "key" in names, options.topic is None, _wants_headers(schema, options), "partition" in names
        )


def _wants_headers(schema: StructType, options: SinkOptions) -> bool:
    if options.include_headers is False:
        return False
    if "headers" not in schema.names:
        if options.include_headers:
            raise ColumnError(
                f"includeHeaders=true, and the DataFrame has no column headers. Add one of type {_HEADERS}, or leave "
                "the option out."
            )
        return False
    if not _is_headers(schema["headers"].dataType):
        raise _wrong_type(schema, "headers", _HEADERS)
    return True


def _is_headers(found: DataType) -> bool:
    if not isinstance(found, ArrayType) or not isinstance(found.elementType, StructType):
        return False
    fields = [(field.name, type(field.dataType)) for field in found.elementType]
    return fields == [("key", StringType), ("value", BinaryType)]


def _require_type(schema: StructType, name: str, kinds: Any, wanted: str) -> None:
    if not isinstance(schema[name].dataType, kinds):
        raise _wrong_type(schema, name, wanted)


def _wrong_type(schema: StructType, name: str, wanted: str) -> ColumnError:
    found = schema[name].dataType
    cast = f'.withColumn("{name}", F.col("{name}").cast("{"string" if "string or" in wanted else wanted}"))'
    if "string or" in wanted and found.typeName() in ("struct", "map", "array"):
        cast = f'.withColumn("{name}", F.to_json("{name}"))'
    article = "an" if wanted[0] in "aeiou" else "a"
    return ColumnError(
        f"{name} attribute type must be {article} {wanted}, and is {found.simpleString()}. Convert it: {cast}"
    )


@dataclass(frozen=True)
class Written(WriterCommitMessage):  # type: ignore[misc]
    """What a task reports: how many records Kafka has acknowledged."""

    records: int


@dataclass(frozen=True)
class _Task:
    """What a task does; the same for a batch and for a micro-batch."""

    options: SinkOptions
    columns: SinkColumns

    @plainly
    def write(self, batches: Iterator[pa.RecordBatch]) -> Written:
        """Returns when all records are acknowledged; the error of the first one that is not."""
        producer = _kept_producer(self.options.client)
        records = 0
        before: list[SendFuture] = []
        try:
            for batch in batches:
                sent = [
                    producer.send(topic, value, key=key, headers=headers, partition=partition)
                    for topic, value, key, headers, partition in self._rows(batch)
                ]
                for future in before:
                    if future.done():
                        future.result()  # no need to send the rest if this one has failed
                before = sent
                records += len(sent)
            producer.flush()
        except BaseException:
            _drop_producer()  # what it still has would count for the next task
            raise
        return Written(records)

    def _rows(
        self, batch: pa.RecordBatch
    ) -> Iterator[tuple[str, bytes | None, bytes | None, Any, int | None]]:
        has_key, has_topic, has_headers, has_partition = self.columns
        nothing: Sequence[None] = [None] * batch.num_rows
        topics: Sequence[str] = [self.options.topic or ""] * batch.num_rows
        if has_topic:
            topics = batch.column("topic").to_pylist()
            if None in topics:
                raise ColumnError(
                    "null topic present in the data. Use the 'topic' option for setting a topic, or fill the column: "
                    'F.coalesce("topic", F.lit("orders"))'
                )
        return zip(
            topics,
            _bytes(batch.column("value")),
            _bytes(batch.column("key")) if has_key else nothing,
            map(_headers, batch.column("headers").to_pylist()) if has_headers else [()] * batch.num_rows,
            batch.column("partition").to_pylist() if has_partition else nothing,
            strict=True,
        )


def _bytes(column: pa.Array) -> list[bytes | None]:
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        column = column.cast(pa.large_binary() if pa.types.is_large_string(kind) else pa.binary())
    found: list[bytes | None] = column.to_pylist()
    return found


def _headers(found: "list[dict[str, Any]] | None") -> list[tuple[str, bytes | None]]:
    if not found:
        return []
    pairs = [(each["key"], each["value"]) for each in found if each is not None]
    if len(pairs) < len(found) or any(name is None for name, _ in pairs):
        raise ColumnError("null header, or header with a null key, in the column headers. Filter them out.")
    return pairs


_kept = threading.local()
"""The producer of this thread: a Python worker of Spark runs one task after the other."""


def _kept_producer(settings: ProducerSettings) -> Producer:
    found: tuple[int, Producer] | None = getattr(_kept, "producer", None)
    if found is not None:
        pid, producer = found
        if pid == os.getpid() and producer.settings == settings:
            return producer
        if pid == os.getpid():
            _drop_producer()
    producer = Producer.of(settings)
    _kept.producer = os.getpid(), producer
    return producer


def _drop_producer() -> None:
    _, producer = _kept.producer
    _kept.producer = None
    with contextlib.suppress(SomeNotSentError, TimeoutError):
        producer.close(0)


class _Writer(DataSourceArrowWriter):  # type: ignore[misc]
    def __init__(self, task: _Task) -> None:
        self._task = task

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return self._task.write(iterator)


class _StreamWriter(DataSourceStreamArrowWriter):  # type: ignore[misc]
    def __init__(self, task: _Task) -> None:
        self._task = task

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return self._task.write(iterator)


class KafkaSink(DataSource):  # type: ignore[misc]
    """`df.write.format("kafka-headrace")` and `df.writeStream.format("kafka-headrace")`."""

    @classmethod
    def name(cls) -> str:
        return NAME

    @plainly
    def writer(self, schema: StructType, overwrite: bool) -> _Writer:
        if overwrite:
            raise OptionError(
                f'mode("overwrite") cannot be used with {NAME}: a topic is only ever added to. Use mode("append").'
            )
        return _Writer(self._task(schema))

    @plainly
    def streamWriter(self, schema: StructType, overwrite: bool) -> _StreamWriter:  # noqa: N802
        """`overwrite` is output mode complete: every micro-batch sends all rows, as with Spark's own sink."""
        return _StreamWriter(self._task(schema))

    def _task(self, schema: StructType) -> _Task:
        options = SinkOptions.parse(self.options)
        return _Task(options, SinkColumns.find(schema, options))
