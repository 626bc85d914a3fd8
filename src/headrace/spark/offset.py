"""The offset that Spark logs: exactly the records of one micro-batch, and what is still owed to the broker.

Theory of operation. A share group has no position that one could write down: which records a micro-batch holds is
what the broker handed out. So the offset *is* the set of acquired runs. Spark writes it to its offset log before the
micro-batch runs and gives it back after a crash, when the reader's memory is empty; everything that replay needs is
in it:

    {"v":1, "seq":17, "g":"<group>", "m":"<member id>", "t":{"<topic>":"<topic id>"},
     "b":{"<topic>":{"<partition>":[[first,last,deliveries], ...]}},       the records of this micro-batch
     "p":{"<topic>":{"<partition>":[[first,last,deliveries,outcome], ...]}},   processed before, not confirmed yet
     "e":{"<topic>":{"<partition>":[epoch, snapshot, its time]}},          of the group's state, where it is known
     "a":"handoff",                    the records are accepted as soon as this is logged; "ahead": they were before
     "n":1,                            notes in the checkpoint (`outcomes.py`) say what was decided of its records, and
                                       whether only a part of it was run; earlier versions wrote "d" for the latter
     "l":{...as "b"}}                  records of one that was divided, which later micro-batches will have

The outcome is written only where it is not ACCEPT (1). `seq` counts our offsets; Spark's batch id is another number,
because Spark also makes batches without data. Group and topic ids are there because runs mean nothing without them:
records of a topic that was deleted and made again have the same offsets, and must not be taken for processed. Nor must
those of a group that was reset, or deleted and made again (`StateId`).

Spark compares offsets by their text, so equal offsets must have equal text: keys are in this order, topics and
partitions are sorted, runs are joined (see `runs.py`).
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

from headrace.client.delivery import AcknowledgeType
from headrace.spark.errors import CheckpointError
from headrace.spark.runs import Run, RunSet
from headrace.wire.ids import TopicAndPartition

VERSION = 1
_KEYS = {"v", "seq", "g", "m", "t", "b", "p"}
_MORE_KEYS = {"e", "a", "d", "l", "n"}
"""Not in every offset."""


class Accepted(StrEnum):
    """When the records of an offset are accepted."""

    WHEN_COMMITTED = ""
    WHEN_LOGGED = "handoff"
    AHEAD = "ahead"


class StateId(NamedTuple):
    """Which state a group has of a partition: a reset begins another one, with a higher epoch.

    One that was deleted and made again may have the old epoch, but it begins with snapshot 0.
    """

    epoch: int
    snapshot: tuple[int, int] | None = None
    """The number of its last snapshot, and when it was created. None where it is not known: earlier versions did not
    log it."""
    keeps_time: bool = False
    """The time of creation has survived a snapshot. Apache Kafka sets it anew with each. Not logged."""

    def may_continue(self, before: "StateId") -> bool:
        """Whether it may be the same state, perhaps with more snapshots by now."""
        if self.epoch != before.epoch:
            return False
        if self.snapshot is None or before.snapshot is None or self.snapshot == before.snapshot:
            return True
        if self.keeps_time and self.snapshot[1] != before.snapshot[1]:
            return False
        return self.snapshot[0] > before.snapshot[0]


@dataclass(frozen=True, slots=True)
class AcquiredOffset:
    """One entry of Spark's offset log. `topic_ids`, as Kafka shows them, cover every topic of its sets."""

    sequence: int
    group: str
    member: str = ""
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    batch: RunSet = field(default_factory=RunSet)
    processed: RunSet = field(default_factory=RunSet)
    states: Mapping[TopicAndPartition, StateId] = field(default_factory=dict)
    accepted: Accepted = Accepted.WHEN_COMMITTED
    has_notes: bool = False
    later: RunSet = field(default_factory=RunSet)

    def to_json(self) -> dict[str, Any]:
        return {
            "v": VERSION,
            "seq": self.sequence,
            "g": self.group,
            "m": self.member,
            "t": {topic: self.topic_ids[topic] for topic in sorted(self.topic_ids)},
            "b": runs_to_json(self.batch),
            "p": runs_to_json(self.processed),
            "e": _states_to_json(self.states),
            **({"a": str(self.accepted)} if self.accepted else {}),
            **({"n": 1} if self.has_notes else {}),
            **({"l": runs_to_json(self.later)} if self.later else {}),
        }

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> "AcquiredOffset":
        """CheckpointError, with the cure, for what another source or a newer version wrote."""
        version = found.get("v")
        if isinstance(version, int) and version > VERSION:
            raise CheckpointError(
                f"The checkpoint was written by a newer headrace (offset version {version}; this one reads up to "
                f"{VERSION}). Install that version or a later one on the driver and on every executor."
            )
        if version != VERSION or set(found) - _MORE_KEYS != _KEYS:
            raise CheckpointError(
                f"The checkpoint has an offset of another source than kafka-share: {json.dumps(found)[:200]}. A "
                "checkpoint belongs to one kind of source: give this query a checkpointLocation of its own."
            )
        try:
            return cls(
                sequence=int(found["seq"]),
                group=str(found["g"]),
                member=str(found["m"]),
                topic_ids=dict(found["t"]),
                batch=runs_from_json(found["b"]),
                processed=runs_from_json(found["p"]),
                states=_states_from_json(found.get("e", {})),
                accepted=Accepted(found.get("a", "")),
                has_notes=bool(found.get("n", found.get("d", 0))),
                later=runs_from_json(found.get("l", {})),
            )
        except (TypeError, ValueError, AttributeError) as error:
            raise CheckpointError(
                f"The checkpoint's offset is damaged ({error}): {json.dumps(found)[:200]}"
            ) from None


def runs_to_json(runs: RunSet) -> dict[str, dict[str, list[list[int]]]]:
    written: dict[str, dict[str, list[list[int]]]] = {}
    for (topic, partition), run in runs:
        entry = [run.first, run.last, run.delivery_count]
        if run.outcome is not AcknowledgeType.ACCEPT:
            entry.append(int(run.outcome))
        written.setdefault(topic, {}).setdefault(str(partition), []).append(entry)
    return written


def runs_from_json(found: Mapping[str, Mapping[str, list[list[int]]]]) -> RunSet:
    return RunSet.of(
        ((topic, int(partition)), _run_from_json(entry))
        for topic, partitions in found.items()
        for partition, entries in partitions.items()
        for entry in entries
    )


def _run_from_json(entry: list[int]) -> Run:
    first, last, delivery_count, *outcome = entry
    if not 0 <= first <= last or len(outcome) > 1:
        raise ValueError(f"{entry} is not a range")
    return Run(
        first, last, delivery_count, AcknowledgeType(outcome[0]) if outcome else AcknowledgeType.ACCEPT
    )


def _states_to_json(states: Mapping[TopicAndPartition, StateId]) -> dict[str, dict[str, list[int]]]:
    written: dict[str, dict[str, list[int]]] = {}
    for topic, partition in sorted(states):
        epoch, snapshot, _ = states[topic, partition]
        written.setdefault(topic, {})[str(partition)] = [epoch, *(snapshot or ())]
    return written


def _states_from_json(
    found: Mapping[str, Mapping[str, int | list[int]]],
) -> dict[TopicAndPartition, StateId]:
    return {
        (topic, int(partition)): _state_from_json(state)
        for topic, partitions in found.items()
        for partition, state in partitions.items()
    }


def _state_from_json(state: int | list[int]) -> StateId:
    """Earlier versions wrote the epoch alone."""
    if not isinstance(state, list):
        return StateId(int(state))
    epoch, *snapshot = state
    if not snapshot:
        return StateId(epoch)
    number, written_ms = snapshot
    return StateId(epoch, (number, written_ms))
