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

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.types import StructType

from headrace.client.delivery import AcknowledgeType
from headrace.spark.errors import OptionError, OutcomeError
from headrace.spark.options import OUTCOMES_FOLDER, local_path
from headrace.spark.outcomes import Outcome, OutcomeLog, join, parse_type
from headrace.spark.settle import Acknowledge

OUTCOMES = "headrace.outcomes"
"""Metadata that the source leaves on the column deliveryCount: where outcomes go, or nothing if it was not told."""

KEYS = ("topic", "partition", "offset", "deliveryCount")
BatchFunction = Callable[[DataFrame, int], DataFrame | None]


@dataclass(frozen=True, slots=True)
class OutcomeRules:
    """Where outcomes are logged, and which the source can carry out: its reader tells in the same place."""

    path: Path

    def require(self, outcomes: Iterable[Outcome]) -> list[Outcome]:
        """Joined, and checked against the mode."""
        joined = join(outcomes)
        mode, dead_letter_topic = OutcomeLog(self.path).described()
        if mode is Acknowledge.COMMIT:
            return joined
        types = {each.type for each in joined}
        if AcknowledgeType.RELEASE in types:
            raise OutcomeError(
                "outcome release with acknowledge=handoff: the record was accepted when Spark logged the micro-batch, "
                "so it cannot be given back. Use acknowledge=commit, or reject it into a dead-letter topic."
            )
        if AcknowledgeType.REJECT in types and dead_letter_topic is None:
            raise OutcomeError(
                "outcome reject with acknowledge=handoff needs option deadLetterTopic: the record was accepted when "
                "Spark logged the micro-batch, so all that can be done is to copy it there."
            )
        return joined


def process(
    df: DataFrame, function: BatchFunction, *, checkpoint_location: str | None = None
) -> DataStreamWriter:
    """A stream writer that runs `function(batch, batch_id)` and records the outcomes it returns.

    The function returns None, or a DataFrame with the columns topic, partition, offset, deliveryCount, outcome
    ("accept", "release" or "reject") and, if you like, reason. If `df` itself has a column `outcome` (as `parse_json`
    adds it), rows that are not accepted there keep that outcome and never reach the function. `checkpoint_location` is
    needed only where `df` no longer has the source's column deliveryCount.
    """
    rules = find_rules(df.schema, checkpoint_location)
    return df.writeStream.foreachBatch(_Recording(function, rules)).option(
        "checkpointLocation", str(rules.path.parent)
    )


def find_rules(schema: StructType, checkpoint_location: str | None = None) -> OutcomeRules:
    """From what the source left on deliveryCount, or from the checkpoint's place."""
    metadata = schema["deliveryCount"].metadata if "deliveryCount" in schema.names else {}
    known = metadata.get(OUTCOMES)
    given = None if checkpoint_location is None else str(local_path(checkpoint_location) / OUTCOMES_FOLDER)
    if not known and (given is None or known is not None):
        raise OptionError(
            "Outcomes need a place that the source also knows: give readStream the query's checkpoint, "
            '.option("checkpointLocation", ...), and keep the column deliveryCount.'
        )
    if known and given is not None and known != given:
        raise OptionError(
            f"readStream got the checkpoint {str(Path(known).parent)!r}, and writeStream {checkpoint_location!r}; "
            "give both the same."
        )
    return OutcomeRules(Path(known or str(given)))


class _Recording:
    """What foreachBatch calls."""

    def __init__(self, function: BatchFunction, rules: OutcomeRules) -> None:
        self._function = function
        self._rules = rules

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        found: list[Outcome] = []
        if "outcome" in batch.columns:
            is_open = F.lower(F.coalesce("outcome", F.lit("accept"))) == "accept"
            found += collect(batch.where(~is_open))
            batch = batch.where(is_open)
        returned = self._function(batch, batch_id)
        if returned is not None:
            found += collect(returned)
        OutcomeLog(self._rules.path).write(batch_id, self._rules.require(found))


def collect(outcomes: DataFrame) -> list[Outcome]:
    """The outcomes of a DataFrame that differ from accept, on the driver."""
    if not isinstance(outcomes, DataFrame):
        raise OutcomeError(
            f"the function returned {type(outcomes).__name__}; return None, or a DataFrame with the columns "
            f"{', '.join(KEYS)} and outcome."
        )
    _require_columns(outcomes.columns)
    reason = F.col("reason").cast("string") if "reason" in outcomes.columns else F.lit("")
    rows = (
        outcomes.where(F.lower("outcome") != "accept")
        .select(*KEYS, "outcome", F.coalesce(reason, F.lit("")).alias("reason"))
        .toArrow()
    )
    return list(_from_arrow(rows.to_batches()))


def _require_columns(columns: Sequence[str]) -> None:
    missing = [name for name in (*KEYS, "outcome") if name not in columns]
    if missing:
        raise OutcomeError(
            f"outcomes lack the columns {', '.join(missing)}; keep {', '.join(KEYS)} of the source, which say which "
            "delivery is meant, and add outcome."
        )


def _from_arrow(batches: Iterable[pa.RecordBatch]) -> Iterator[Outcome]:
    for batch in batches:
        columns = batch.to_pydict()
        reasons = columns.get("reason") or [""] * batch.num_rows
        for topic, partition, offset, count, outcome, reason in zip(
            *(columns[name] for name in KEYS), columns["outcome"], reasons, strict=True
        ):
            yield Outcome(topic, partition, offset, offset, count, parse_type(outcome), reason or "")


@dataclass(frozen=True)
class _Decided(WriterCommitMessage):  # type: ignore[misc]
    outcomes: tuple[Outcome, ...]


class _AckWriter(DataSourceStreamArrowWriter):  # type: ignore[misc]
    """Tasks send their outcomes to the driver, which logs them just before Spark commits."""

    def __init__(self, rules: OutcomeRules) -> None:
        self._rules = rules

    def write(self, iterator: Iterator[pa.RecordBatch]) -> _Decided:
        return _Decided(tuple(join(_from_arrow(iterator))))

    def commit(self, messages: list[Any], batchId: int) -> None:  # noqa: N803
        decided = [outcome for message in messages if message is not None for outcome in message.outcomes]
        OutcomeLog(self._rules.path).write(batchId, self._rules.require(decided))

    def abort(self, messages: list[Any], batchId: int) -> None:  # noqa: N803
        """Nothing was logged, and the replay will log anew."""


class KafkaShareAckSink(DataSource):  # type: ignore[misc]
    """`writeStream.format("kafka-share-ack")`: rows say what becomes of records."""

    @classmethod
    def name(cls) -> str:
        return "kafka-share-ack"

    def streamWriter(self, schema: StructType, overwrite: bool) -> _AckWriter:  # noqa: N802
        _require_columns(schema.names)
        return _AckWriter(find_rules(schema, self.options.get("checkpointLocation")))
