"""Tasks that get several records in one call: how large a batch is, and what the function says about each record.

    @queue.task("emails", batch=Batch(max=32, wait=0.05))
    async def send(emails: list[Email]) -> list[Exception | None]:
        results = await mail_service.send_all(emails)
        return [None if result.ok else Retry(after=30) for result in results]

The function returns one outcome for each record, in the same order, or None if all are done. An outcome is None (done)
or an exception, which counts as if a task for single records had raised it. Anything else that is returned is an error
of the whole call, and so is an exception that the function raises: no record of the call is accepted then. A raised
`Reject` rejects none of several records either, since it does not say which: each of them runs again, alone.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from headrace.client.arguments import is_int
from headrace.worker.outcomes import DONE, TaskOutcome, TaskResult, outcome_of

BATCH_MAX = 10_000
WAIT_S_MAX = 3_600.0


@dataclass(frozen=True, slots=True)
class Batch:
    """At most `max` records in one call. It starts with fewer when the first has waited `wait` seconds for others."""

    max: int = 32
    wait: float = 0.05

    def __post_init__(self) -> None:
        if not is_int(self.max) or not 1 <= self.max <= BATCH_MAX:
            raise ValueError(f"Batch: max must be a whole number from 1 to {BATCH_MAX}, got {self.max!r}")
        if not math.isfinite(self.wait) or not 0 <= self.wait <= WAIT_S_MAX:
            raise ValueError(f"Batch: wait must be from 0 to {WAIT_S_MAX:g} seconds, got {self.wait!r}")


class BatchResultError(TypeError):
    """A function of a task with `batch` returned something else than one outcome for each record, or None."""


def batch_outcome(returned: Any, count: int, name: str) -> TaskOutcome:
    """The outcome of a call for `count` records, with one outcome `each`."""
    if returned is None:
        return DONE
    wanted = f"return a list of {count} outcomes, each None or an exception, or None if all are done"
    if isinstance(returned, (str, bytes)) or not isinstance(returned, Sequence):
        raise BatchResultError(f"{name} returned {_brief(returned)}; {wanted}")
    if len(returned) != count:
        raise BatchResultError(f"{name} returned {len(returned)} outcomes for {count} records; {wanted}")
    for place, each in enumerate(returned):
        if each is not None and not isinstance(each, BaseException):
            raise BatchResultError(f"{name} returned {_brief(each)} as outcome {place}; {wanted}")
    return TaskOutcome(
        TaskResult.DONE, each=tuple(DONE if each is None else outcome_of(each) for each in returned)
    )


def spread(outcome: TaskOutcome, count: int) -> Sequence[TaskOutcome]:
    """The outcome of each record of a call for `count` records."""
    if outcome.each is not None:
        return outcome.each
    if count > 1 and outcome.result is not TaskResult.DONE:
        outcome = replace(outcome, is_shared=True)
        if outcome.result is TaskResult.REJECTED:  # of which record? Each runs again, alone, and will say
            outcome = replace(outcome, result=TaskResult.RETRY_ASKED, retry_after_s=0.0)
    return (outcome,) * count


def _brief(value: object) -> str:
    try:
        text = repr(value)
    except Exception:
        text = f"an object of type {type(value).__qualname__}"
    return text if len(text) <= 100 else f"{text[:99]}…"
