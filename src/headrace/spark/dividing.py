"""Finding the record that makes a micro-batch fail (option `maxBatchFailures`): by halves, over restarts. Pure.

Theory of operation. Spark replays a logged micro-batch until it is committed, so one record that the function of
`process` always fails on stops the query for good. `process` counts such failures in the checkpoint. When the query
starts again after `maxBatchFailures` of them, only the first half of the micro-batch is run; if that fails too, the
first quarter, and so on, down to one record. When that has failed `maxBatchFailures` times by itself, it is rejected.
When a part succeeds, Spark commits the micro-batch: the part is settled, and the rest is in the next micro-batches (see
`settle.py`), which begin as small as the part and are doubled while they succeed.

What keeps each record to one effect:

- A `Division` is durable before Spark gets the part, and is dropped with the next offset only. Whoever settles the
  micro-batch, in whichever life, knows what was run.
- Every part has the micro-batch's own batch id. So a sink must replace what an earlier attempt wrote under it.
- A part that has succeeded once (its outcomes are written down) is never divided, even if Spark did not commit it and
  its replay fails: a sink may have it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from headrace.client.delivery import AcknowledgeType
from headrace.spark.offset import AcquiredOffset, runs_from_json, runs_to_json
from headrace.spark.outcomes import Failures, Outcome
from headrace.spark.runs import RunSet


@dataclass(frozen=True, slots=True)
class Division:
    """What the next attempt at a micro-batch has: all of it, a part, or nothing but its end."""

    sequence: int
    batch: RunSet
    given: RunSet
    """What is run."""
    rejected: RunSet = field(default_factory=RunSet)
    """The record that failed by itself; then nothing is run."""
    reason: str = ""
    failures: int = 0
    """Those before this attempt."""
    has_succeeded: bool = False

    @classmethod
    def whole(cls, offset: AcquiredOffset) -> "Division":
        return cls(offset.sequence, offset.batch, offset.batch)

    def is_of(self, offset: AcquiredOffset) -> bool:
        return (self.sequence, self.batch) == (offset.sequence, offset.batch)

    @property
    def kept(self) -> RunSet:
        """What the micro-batch ends with; the rest is left to later ones."""
        return self.given.replaced_by(self.rejected)

    def after(self, failures: Failures, failures_max: int, *, is_part: bool) -> "Division":
        """For the next attempt. `is_part`: the micro-batch itself is what is left of one that was divided.

        A part is divided at its first failure, which costs nobody anything.
        """
        if self.has_succeeded or not self.given:
            return self
        size = self.given.record_count
        is_known_to_fail = size > 1 and (is_part or self.given != self.batch)
        if failures.times - self.failures < (1 if is_known_to_fail else failures_max):
            return self
        if size > 1:
            return replace(self, given=self.given.take(records_max=size // 2), failures=failures.times)
        return replace(
            self, given=RunSet(), rejected=self.given, reason=failures.error, failures=failures.times
        )

    def outcomes(self) -> list[Outcome]:
        return [
            Outcome(*place, run.first, run.last, run.delivery_count, AcknowledgeType.REJECT, self.reason)
            for place, run in self.rejected
        ]

    def to_json(self) -> dict[str, Any]:
        return {
            "seq": self.sequence,
            "batch": runs_to_json(self.batch),
            "given": runs_to_json(self.given),
            "rejected": runs_to_json(self.rejected),
            "reason": self.reason,
            "failures": self.failures,
            "succeeded": self.has_succeeded,
        }

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> "Division":
        return cls(
            sequence=int(found["seq"]),
            batch=runs_from_json(found["batch"]),
            given=runs_from_json(found["given"]),
            rejected=runs_from_json(found["rejected"]),
            reason=str(found["reason"]),
            failures=int(found["failures"]),
            has_succeeded=bool(found["succeeded"]),
        )
