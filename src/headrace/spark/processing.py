"""Outcomes from user code: `process` around foreachBatch, and the sink `kafka-share-ack`.

    def score(batch, batch_id):
        results = f"scored/batch={batch_id}"
        batch.withColumn("score", fraud_score("value")).write.mode("overwrite").parquet(results)
        scored = batch.sparkSession.read.parquet(results)  # what was written: the model does not run again
        return scored.select("topic", "partition", "offset", "deliveryCount",
                             F.when(F.col("score").isNull(), "reject").alias("outcome"),
                             F.lit("no score").alias("reason"))

    process(orders, score).trigger(processingTime="1 second").start()

Rows that are not returned are accepted. Outcomes are durable before Spark commits the micro-batch, and a replay
replaces them. Your own writes must be repeatable for one batch id, as always with foreachBatch.
"""

import logging
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.types import IntegralType, NullType, StringType, StructType

from headrace.client.delivery import AcknowledgeType
from headrace.spark.checkpoint import sources_in
from headrace.spark.errors import OptionError, OutcomeError
from headrace.spark.locations import Location, locate, spark_location
from headrace.spark.matching import match
from headrace.spark.offset import AcquiredOffset
from headrace.spark.options import MODE, OUTCOMES, OUTCOMES_FOLDER
from headrace.spark.outcomes import Outcome, OutcomeLog, join, parse_type, to_runs
from headrace.spark.plan import require_one_group, require_redeliveries_pass, topic_of_two_groups
from headrace.spark.runs import RunSet
from headrace.spark.settle import Acknowledge
from headrace.spark.telling import plainly

logger = logging.getLogger("headrace.spark")
KEYS = ("topic", "partition", "offset", "deliveryCount")
COLUMNS = {
    "topic": (StringType, "string"),
    "partition": (IntegralType, "int"),
    "offset": (IntegralType, "bigint"),
    "deliveryCount": (IntegralType, "int"),
    "outcome": ((StringType, NullType), "string"),
}
"""What outcomes must have, and of which type."""

BLANKS = "".join(filter(str.isspace, map(chr, range(0x3001))))
"""What Python's strip cuts off, for Spark's trim."""

_NOT_ABOUT_RECORDS = re.compile(
    r"SPARK_JOB_CANCELLED|(Job|Stage) \d+ (was )?cancelled|SparkContext (was|has been) (shut ?down|stopped)"
    r"|java\.[\w.]*Interrupt\w*Exception"
    r"|headrace[/\\]spark[/\\](executor|reader)\.py"
)
"""In the text of an error: the query is being stopped, or a task could not read its records."""

BatchFunction = Callable[[DataFrame, int], DataFrame | None]


@dataclass(frozen=True, slots=True)
class OutcomeRules:
    """Where outcomes are logged, and which the source can carry out: its reader tells in the same place."""

    path: Location

    def record(self, batch_id: int, outcomes: Iterable[Outcome]) -> None:
        """Durable when it returns; OutcomeError, and nothing is written, when one of them cannot be carried out."""
        joined = join(outcomes)
        if joined:
            unknown = to_runs(joined)
            brought = brought_offsets(self.path.parent, batch_id)
            said = {each.topic for each in joined}
            unclear = topic_of_two_groups(
                (offset.group, said & offset.topic_ids.keys()) for offset in brought
            )
            if unclear is not None:  # of a view, or of kafka-share-ack, the plan does not tell
                raise OutcomeError(unclear)
            for offset in brought:
                meant, others = match(joined, offset.batch)
                unknown = unknown.within(others)
                if meant:
                    self._require_possible(offset, meant)
            _require_none(unknown, batch_id)
        OutcomeLog(self.path).write(batch_id, joined)

    def fail(self, batch_id: int, error: str) -> None:
        """Counts a failure of the function, for option maxBatchFailures."""
        try:
            OutcomeLog(self.path).add_failure(batch_id, error)
        except (OSError, OutcomeError) as why:
            logger.warning("A failure of micro-batch %d is not counted: %s", batch_id, why)

    def _require_possible(self, offset: AcquiredOffset, outcomes: list[Outcome]) -> None:
        """Not all outcomes are, of records that are accepted by now."""
        mode, dead_letter_topic = OutcomeLog(self.path, reader=offset.member).described()
        if not offset.accepted:
            return
        types = {each.type for each in outcomes}
        if AcknowledgeType.RELEASE in types and mode is Acknowledge.HANDOFF:
            raise OutcomeError(
                "outcome release with acknowledge=handoff: the record was accepted when Spark logged the micro-batch, "
                "so it cannot be given back. Use acknowledge=commit, or reject it into a dead-letter topic."
            )
        if dead_letter_topic is None:
            raise OutcomeError(
                "outcome reject with acknowledge=handoff needs option deadLetterTopic: the record was accepted when "
                "Spark logged the micro-batch, so all that can be done is to copy it there."
            )


def _require_none(unknown: RunSet, batch_id: int) -> None:
    for (topic, partition), run in unknown:
        raise OutcomeError(
            f"outcome {run.outcome.name.lower()} for topic {topic!r}, partition {partition}, offset {run.first}, "
            f"deliveryCount {run.delivery_count} (and {unknown.record_count - 1} more): micro-batch {batch_id} has "
            f"no such delivery. Keep {', '.join(KEYS)} as they came, and decide in the micro-batch that brings the "
            "record, before joins and aggregations that hold rows back: when it is committed, they are accepted."
        )


def brought_offsets(checkpoint: Location, batch_id: int) -> list[AcquiredOffset]:
    """The offsets of the kafka-share sources that brought records to a micro-batch.

    Spark's log also names the others: in a micro-batch without data (a watermark's), and where another source of the
    query had some, a source has the offset of the micro-batch before, which is committed and settled.
    """
    before = checkpoint / "offsets" / str(batch_id - 1)
    settled = logged_offsets(checkpoint, batch_id - 1) if before.exists() else []
    return [offset for offset in logged_offsets(checkpoint, batch_id) if offset not in settled]


def logged_offsets(checkpoint: Location, batch_id: int) -> list[AcquiredOffset]:
    """What Spark's offset log says of a micro-batch, for each kafka-share source of the query."""
    path = checkpoint / "offsets" / str(batch_id)
    try:
        sources = sources_in(path)
    except FileNotFoundError:
        raise OutcomeError(
            f"{path}, Spark's log of the micro-batch that outcomes are about, is not there. Give readStream and "
            "writeStream the same checkpointLocation, as an absolute path."
        ) from None
    return [AcquiredOffset.from_json(each) for each in sources if {"seq", "g", "b"} <= each.keys()]


def process(
    df: DataFrame, function: BatchFunction, *, checkpoint_location: str | None = None
) -> DataStreamWriter:
    """A stream writer that runs `function(batch, batch_id)` and records the outcomes it returns.

    The function returns None, or a DataFrame with the columns topic, partition, offset, deliveryCount, outcome
    ("accept", "release" or "reject") and, if you like, reason. If `df` itself has a column `outcome` (as `parse_json`
    adds it), rows that are not accepted there keep that outcome and never reach the function. `checkpoint_location` is
    needed only where `df` no longer has the source's column deliveryCount. With acknowledge=commit, dropDuplicates
    before it must have deliveryCount among its columns.
    """
    rules = find_rules(df.schema, checkpoint_location)
    require_one_group(df)
    if source_metadata(df.schema).get(MODE) != Acknowledge.HANDOFF:
        require_redeliveries_pass(df, OUTCOMES)
    location = spark_location(rules.path.parent)
    return df.writeStream.foreachBatch(_Recording(function, rules)).option("checkpointLocation", location)


def source_metadata(schema: StructType) -> dict[str, str]:
    """What the source left on deliveryCount, where the column is still there."""
    return schema["deliveryCount"].metadata if "deliveryCount" in schema.names else {}


def find_rules(schema: StructType, checkpoint_location: str | None = None) -> OutcomeRules:
    """From what the source left on deliveryCount, or from the checkpoint's place."""
    known = source_metadata(schema).get(OUTCOMES)
    given = None if checkpoint_location is None else str(locate(checkpoint_location) / OUTCOMES_FOLDER)
    if not known and (given is None or known is not None):
        raise OptionError(
            "Outcomes need a place that the source also knows: give readStream the query's checkpoint, "
            '.option("checkpointLocation", ...), and keep the column deliveryCount.'
        )
    if known and given is not None and known != given:
        told, here = (str(locate(each).parent) for each in (known, given))
        raise OptionError(
            f"readStream got the checkpoint {told!r}, and here it is {here!r}; "
            "give both the same absolute path: a relative one depends on the directory of each process."
        )
    return OutcomeRules(locate(known or str(given)))


class _Recording:
    """What foreachBatch calls."""

    def __init__(self, function: BatchFunction, rules: OutcomeRules) -> None:
        self._function = function
        self._rules = rules

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        try:
            found = self._outcomes(batch, batch_id)
        except Exception as error:
            if is_about_records(error):
                self._rules.fail(batch_id, error_text(error))
            raise
        self._rules.record(batch_id, found)

    def _outcomes(self, batch: DataFrame, batch_id: int) -> list[Outcome]:
        found: list[Outcome] = []
        if "outcome" in batch.columns:
            found += collect(batch)
            batch = batch.where(_said() == "accept")
        returned = self._function(batch, batch_id)
        if returned is not None:
            found += collect(returned)
        return found


def is_about_records(error: BaseException) -> bool:
    """Whether records may be the reason of a failure: not where the query was stopped, or could not read them."""
    if type(error).__name__ == "Py4JNetworkError":
        return False  # Spark's JVM is gone
    before = error.__cause__ or error.__context__
    return not _NOT_ABOUT_RECORDS.search(str(error)) and (before is None or is_about_records(before))


def error_text(error: BaseException) -> str:
    """What went wrong, in a line: of an error that Spark brings from a Python task, what was raised there."""
    text = str(error)
    _, found, trace = text.partition("Traceback (most recent call last):\n")
    raised = next((line for line in trace.splitlines() if line and not line[0].isspace()), "")
    if found and raised:
        return raised.strip()
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if len(lines) > 1 and lines[1].startswith(
        ": "
    ):  # py4j names what was called first, then Java's exception
        return lines[1].removeprefix(": ")
    return ": ".join([type(error).__name__, *lines[:1]])


def collect(outcomes: DataFrame) -> list[Outcome]:
    """The outcomes of a DataFrame that differ from accept, on the driver."""
    if not isinstance(outcomes, DataFrame):
        raise OutcomeError(
            f"the function returned {type(outcomes).__name__}; return None, or a DataFrame with the columns "
            f"{', '.join(KEYS)} and outcome."
        )
    _require_columns(outcomes.schema)
    reason = F.col("reason").cast("string") if "reason" in outcomes.columns else F.lit("")
    rows = outcomes.where(_said() != "accept").select(*KEYS, "outcome", reason.alias("reason")).toArrow()
    return list(_from_arrow(rows.to_batches()))


def _said() -> Column:
    """The column `outcome` as `parse_type` reads it: a row must not be open to the one and accepted by the other."""
    return F.lower(F.trim(F.coalesce("outcome", F.lit("accept")), F.lit(BLANKS)))


def _require_columns(schema: StructType) -> None:
    missing = [name for name in COLUMNS if name not in schema.names]
    if missing:
        raise OutcomeError(
            f"outcomes lack the columns {', '.join(missing)}; keep {', '.join(KEYS)} of the source, which say which "
            "delivery is meant, and add outcome."
        )
    for name, (kinds, wanted) in COLUMNS.items():
        found = schema[name].dataType
        if not isinstance(found, kinds):
            raise OutcomeError(
                f"column {name} of the outcomes is {found.simpleString()}, and must be {wanted}. Keep it as the source "
                f'gives it, or cast it back: .withColumn("{name}", F.col("{name}").cast("{wanted}"))'
            )


def _from_arrow(batches: Iterable[pa.RecordBatch]) -> Iterator[Outcome]:
    for batch in batches:
        columns = batch.to_pydict()
        reasons = columns.get("reason") or [None] * batch.num_rows
        for outcome, reason, *key in zip(
            columns["outcome"], reasons, *(columns[name] for name in KEYS), strict=True
        ):
            type = parse_type(outcome)
            if type is AcknowledgeType.ACCEPT:
                continue
            if None in key:
                said = ", ".join(f"{name}={value!r}" for name, value in zip(KEYS, key, strict=True))
                raise OutcomeError(
                    f"column {KEYS[key.index(None)]} of the outcomes is null where outcome is {outcome!r} ({said}), so "
                    "the delivery cannot be identified. Keep the columns of the source; an outer join adds nulls."
                )
            topic, partition, offset, count = key
            yield Outcome(
                topic, partition, offset, offset, count, type, "" if reason is None else str(reason)
            )


@dataclass(frozen=True)
class _Decided(WriterCommitMessage):  # type: ignore[misc]
    outcomes: tuple[Outcome, ...]


class _AckWriter(DataSourceStreamArrowWriter):  # type: ignore[misc]
    """Tasks send their outcomes to the driver, which logs them just before Spark commits."""

    def __init__(self, rules: OutcomeRules) -> None:
        self._rules = rules

    @plainly
    def write(self, iterator: Iterator[pa.RecordBatch]) -> _Decided:
        return _Decided(tuple(join(_from_arrow(iterator))))

    @plainly
    def commit(self, messages: list[Any], batchId: int) -> None:  # noqa: N803
        decided = [outcome for message in messages if message is not None for outcome in message.outcomes]
        self._rules.record(batchId, decided)

    def abort(self, messages: list[Any], batchId: int) -> None:  # noqa: N803
        """Nothing was logged, and the replay will log anew."""


class KafkaShareAckSink(DataSource):  # type: ignore[misc]
    """`writeStream.format("kafka-share-ack")`: rows say what becomes of records."""

    @classmethod
    def name(cls) -> str:
        return "kafka-share-ack"

    @plainly
    def streamWriter(self, schema: StructType, overwrite: bool) -> _AckWriter:  # noqa: N802
        _require_columns(schema)
        return _AckWriter(find_rules(schema, self.options.get("checkpointLocation")))
