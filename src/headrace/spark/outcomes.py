"""The outcome log: what was decided of single records, durable before Spark commits the micro-batch.

One file for each micro-batch, `<checkpoint>/share-outcomes/<batch id>.json`, put in place whole (`locations.py`). It
holds the exceptions; every record that it does not name is accepted. Entries are keyed by delivery count, so that they
say nothing about a later delivery of the same record.

Who writes: the wrapper around foreachBatch (`process`) or the sink `kafka-share-ack`, on the driver, after the user's
own work and before Spark's commit log; a replayed micro-batch replaces its file. Who reads: the reader, to settle.
It clears the folder when the next micro-batch is durably logged (before any of its tasks run). By then every source of
the query has settled this one, and has written down what it did: `settled-<member id>.json`, since a source without
records in the next micro-batch will settle this one again after a restart.

Beside them, of a micro-batch that fails: `failures-<batch id>.json`, by `process`, until another one is logged; and
`division-<member id>.json`, by the reader, with the part of it that is run (see `dividing.py`).
"""

import json
import logging
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from headrace.base.ranges import joined
from headrace.client.delivery import AcknowledgeType
from headrace.spark.errors import CheckpointError, OutcomeError
from headrace.spark.locations import Location, sync_folders, write_durably
from headrace.spark.offset import runs_to_json
from headrace.spark.runs import Run, RunSet
from headrace.spark.settle import Acknowledge
from headrace.wire.ids import TopicAndPartition

logger = logging.getLogger("headrace.spark")
VERSION = 1
REASON_LENGTH_MAX = 1_000
EXHAUSTED = "released at its last delivery."
"""Begins the reason of a release after which the broker would give up, and which is a reject therefore."""
_NAMES = {
    "accept": AcknowledgeType.ACCEPT,
    "release": AcknowledgeType.RELEASE,
    "reject": AcknowledgeType.REJECT,
}


class Outcome(NamedTuple):
    """What was decided of neighboring records of one delivery, and why."""

    topic: str
    partition: int
    first: int
    last: int
    delivery_count: int
    type: AcknowledgeType
    reason: str = ""

    @property
    def place(self) -> TopicAndPartition:
        return self.topic, self.partition

    @property
    def run(self) -> Run:
        return Run(self.first, self.last, self.delivery_count, self.type)


def parse_type(value: Any) -> AcknowledgeType:
    """ "accept", "release" or "reject" in any case; nothing is "accept"."""
    if value is None:
        return AcknowledgeType.ACCEPT
    found = _NAMES.get(str(value).strip().lower())
    if found is None:
        raise OutcomeError(f"outcome {value!r}; allowed are accept, release and reject.")
    return found


def join(outcomes: Iterable[Outcome]) -> list[Outcome]:
    """Neighbors that are alike become one; accepted ones are left out, being the default."""
    kept = (each for each in sorted(outcomes) if each.type is not AcknowledgeType.ACCEPT)
    return list(joined((each._replace(reason=each.reason[:REASON_LENGTH_MAX]) for each in kept), _alike))


def to_runs(outcomes: Iterable[Outcome]) -> RunSet:
    return RunSet.of((each.place, each.run) for each in outcomes)


class Failures(NamedTuple):
    """How often the function has failed on a micro-batch, and how it did so last."""

    times: int = 0
    error: str = ""


class OutcomeLog:
    """The folder of outcome files of one query. `reader` tells its sources apart, where it has several."""

    def __init__(self, path: Location, *, reader: str = "") -> None:
        self.path = path
        self._settled = path / f"settled-{reader}.json"
        self._source = path / f"source-{reader}.json"
        self._division = path / f"division-{reader}.json"

    def describe(self, mode: Acknowledge, dead_letter_topic: str | None) -> None:
        """Tells whoever writes outcomes what the source can do with them.

        From now on the folder itself is safe from a power cut: a commit of Spark's may outlive one by chance, and the
        outcomes that it rests on must do so, too.
        """
        write_durably(self._source, json.dumps({"acknowledge": mode, "deadLetterTopic": dead_letter_topic}))
        if isinstance(self.path, Path):
            sync_folders(self.path.parent)

    def require(self, *, fails_on_data_loss: bool) -> None:
        """What was decided of the last micro-batch may have been in notes that are gone."""
        if self._source.exists():
            return
        missing = f"{self.path}, where this query kept its notes, is missing or incomplete"
        if fails_on_data_loss:
            raise CheckpointError(
                f"{missing}: it is unknown which records of the last micro-batch were released, rejected or not run. "
                "Restore it, or set failOnDataLoss=false to have all of them accepted."
            )
        logger.warning("%s. Records of the last micro-batch are accepted.", missing)

    def described(self) -> tuple[Acknowledge, str | None]:
        try:
            found = json.loads(self._source.read_text("utf-8"))
        except FileNotFoundError:
            raise OutcomeError(
                f"{self.path} was not created by a kafka-share source, so the outcomes would be ignored. Give "
                "readStream and writeStream the same checkpointLocation, as an absolute path."
            ) from None
        return Acknowledge(found["acknowledge"]), found["deadLetterTopic"]

    def write(self, batch_id: int, outcomes: Iterable[Outcome]) -> None:
        """Replaces what was said of this micro-batch before. Durable when it returns."""
        text = json.dumps({"v": VERSION, "outcomes": [list(each) for each in join(outcomes)]})
        write_durably(self.path / f"{batch_id}.json", text)

    def is_used(self) -> bool:
        """Whether somebody decides about records, if only that all are accepted."""
        return any(self.path.glob("[0-9]*.json"))

    def read(self) -> list[Outcome]:
        """Of all files that are there, the later micro-batches last."""
        paths: list[Location] = [*self.path.glob("[0-9]*.json")]
        paths.sort(key=lambda path: int(path.stem))
        return [each for path in paths for each in self._read(path)[0]]

    @staticmethod
    def _read(path: Location) -> tuple[list[Outcome], dict[str, Any]]:
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            if content["v"] > VERSION:
                raise OutcomeError(
                    f"{path} was written by a newer headrace. Install that version on the driver."
                )
            return [_outcome(*entry) for entry in content["outcomes"]], content
        except (ValueError, KeyError, TypeError, IndexError) as error:
            raise OutcomeError(
                f"{path} is damaged ({error}). Which records of its micro-batch were released or rejected is not "
                "known any more; delete the file to have them all accepted."
            ) from None

    def keep(self, sequence: int, batch: RunSet, outcomes: Iterable[Outcome], *, is_copied: bool) -> None:
        """What this reader carries out of the micro-batch of an offset, and whether the rejected were copied."""
        entries = [list(each) for each in outcomes]
        text = {"v": VERSION, "seq": sequence, "copied": is_copied, "outcomes": entries}
        write_durably(self._settled, json.dumps({**text, "batch": runs_to_json(batch)}))

    def kept(self, sequence: int, batch: RunSet) -> tuple[list[Outcome], bool] | None:
        """What was kept of this offset, if anything: the files may be cleared since, by another source of the query.

        Where Spark's logs were deleted, another micro-batch may have the number that one had before.
        """
        if not self._settled.exists():
            return None
        outcomes, content = self._read(self._settled)
        whose = runs_to_json(batch)
        if content["seq"] != sequence or content.get("batch", whose) != whose:
            return None
        return outcomes, content["copied"]

    def clear(self) -> None:
        """What the files say is in a durable offset by now, or will be written anew."""
        for path in [*self.path.glob("[0-9]*.json"), *self.path.glob(".[0-9]*.tmp")]:
            path.unlink(missing_ok=True)

    # of a micro-batch that fails

    def has(self, batch_id: int) -> bool:
        """Whether outcomes of this micro-batch were written: its function has succeeded."""
        return (self.path / f"{batch_id}.json").exists()

    def add_failure(self, batch_id: int, error: str) -> None:
        """Durable when it returns."""
        count = self.failures(batch_id).times + 1
        text = {"v": VERSION, "count": count, "error": error[:REASON_LENGTH_MAX]}
        write_durably(self._failures(batch_id), json.dumps(text))

    def failures(self, batch_id: int) -> Failures:
        path = self._failures(batch_id)
        if not path.exists():
            return Failures()
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
            return Failures(int(found["count"]), str(found["error"]))
        except (ValueError, KeyError, TypeError) as error:
            raise OutcomeError(
                f"{path} is damaged ({error}). It counts how often a micro-batch has failed; delete the file to count "
                "from 0."
            ) from None

    def clear_failures(self) -> None:
        """Another micro-batch is logged."""
        for path in [*self.path.glob("failures-*.json"), *self.path.glob(".failures-*.tmp")]:
            path.unlink(missing_ok=True)

    def _failures(self, batch_id: int) -> Location:
        return self.path / f"failures-{batch_id}.json"

    def keep_division(self, division: Mapping[str, Any]) -> None:
        """What this reader gives to Spark of a micro-batch. Durable when it returns."""
        write_durably(self._division, json.dumps({"v": VERSION, **division}))

    def kept_division(self) -> dict[str, Any] | None:
        if not self._division.exists():
            return None
        try:
            found: dict[str, Any] = json.loads(self._division.read_text(encoding="utf-8"))
        except ValueError as error:
            raise OutcomeError(
                f"{self._division} is damaged ({error}). It says which records of a micro-batch were run. Restore it "
                "from a backup of the checkpoint."
            ) from None
        return found


def _outcome(
    topic: str, partition: int, first: int, last: int, count: int, type: int, reason: str
) -> Outcome:
    if not all(isinstance(each, int) for each in (partition, first, last, count)):
        raise TypeError(f"partition {partition!r}, offsets {first!r} to {last!r}, deliveryCount {count!r}")
    return Outcome(topic, partition, first, last, count, AcknowledgeType(type), reason)


def _alike(each: Outcome) -> tuple[Any, ...]:
    return each.topic, each.partition, each.delivery_count, each.type, each.reason
