"""How one run of a task's function ended, as data that can cross a process's border.

`Retry` and `Reject` are what a function raises to say what shall become of its record. Any other exception means
"again later". `outcome_of` turns an exception into an Outcome: its class, its text and a hash of where it came from,
so that dead letters of one cause can be counted together.
"""

import hashlib
import traceback
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from pathlib import PurePath

TEXT_MAX = 1_000
TRACE_MAX = 16_000
AFTER_S_MAX = 3660 * 86_400


class Retry(Exception):
    """Raise it in a task to run the record again after `after`, seconds or a timedelta (None: the task's Backoff).

        raise Retry(after=30, reason="the mail server is down")

    It counts as an attempt, but with `after` not as a failure for the task's breaker. The record keeps its lock for at
    most `Queue(hold_max=...)` seconds; for longer delays, a copy of it is scheduled (docs/how-to/schedule.md).
    """

    def __init__(self, after: float | timedelta | None = None, reason: str | None = None) -> None:
        seconds = after.total_seconds() if isinstance(after, timedelta) else after
        is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
        if seconds is not None and not (is_number and 0 <= seconds <= AFTER_S_MAX):
            raise ValueError(
                f"Retry: after must be seconds or a timedelta, from 0 to ten years, or None, got {after!r}"
            )
        super().__init__(reason or "asked for another try")
        self.after = seconds


class Reject(Exception):
    """Raise it in a task when the record can never be processed. The record is dead-lettered without a retry.

        raise Reject("no such account")

    The reason is stored in the headers of the dead letter.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)


class AlreadyDoneError(Exception):
    """A task with `once=` was not run, because its record was finished before: it is only accepted."""


class BodyError(ValueError):
    """The value of a record cannot be decoded as the body of its task. The record is dead-lettered without a retry."""


class TaskResult(Enum):
    DONE = "done"
    FAILED = "failed"
    RETRY_ASKED = "retry asked"
    REJECTED = "rejected"
    UNREADABLE = "unreadable"


@dataclass(frozen=True, slots=True)
class TaskOutcome:
    result: TaskResult
    message: str = ""
    exception: str = ""
    """The exception's class with its module; empty where none was raised."""
    traceback_hash: str = ""
    """The same for all failures of one class that came by the same way through the code, whatever the line numbers."""
    trace: str = ""
    retry_after_s: float | None = None
    each: "tuple[TaskOutcome, ...] | None" = None
    """Of a batch: the outcome of each record, where the function returned them."""
    is_shared: bool = False
    """Of a batch that failed as a whole: which of its records is the cause is not known."""

    @property
    def is_failure(self) -> bool:
        """Something did not work. A function that says when to try again has decided that, and nothing has failed."""
        return self.result is TaskResult.FAILED or (
            self.result is TaskResult.RETRY_ASKED and self.retry_after_s is None
        )


DONE = TaskOutcome(TaskResult.DONE)
RESULTS: dict[type[BaseException], TaskResult] = {
    AlreadyDoneError: TaskResult.DONE,
    Retry: TaskResult.RETRY_ASKED,
    Reject: TaskResult.REJECTED,
    BodyError: TaskResult.UNREADABLE,
}


def outcome_of(error: BaseException) -> TaskOutcome:
    kind = type(error)
    result = next(
        (result for known, result in RESULTS.items() if isinstance(error, known)), TaskResult.FAILED
    )
    trace = "".join(traceback.format_exception(error)) if result is TaskResult.FAILED else ""
    return TaskOutcome(
        result=result,
        message=_text_of(error),
        exception=f"{kind.__module__}.{kind.__qualname__}"
        if kind.__module__ != "builtins"
        else kind.__qualname__,
        traceback_hash=_hash(error),
        trace=trace[-TRACE_MAX:],
        retry_after_s=error.after if isinstance(error, Retry) else None,
    )


def ended_with(returned: object) -> TaskOutcome:
    """The outcome of a call that returned: what it returned if that is one, else DONE."""
    return returned if isinstance(returned, TaskOutcome) else DONE


def timed_out(seconds: float) -> TaskOutcome:
    return TaskOutcome(
        TaskResult.FAILED, message=f"took longer than its timeout of {seconds:g} s", exception="TimeoutError"
    )


def _text_of(error: BaseException) -> str:
    """The error's own words, cut to a size that fits a header; a broken __str__ must not break the worker."""
    try:
        text = str(error)
    except Exception:
        text = "(its text could not be read)"
    return text if len(text) <= TEXT_MAX else text[: TEXT_MAX - 1] + "…"


def _hash(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__, limit=64)
    # Without line numbers: an edit elsewhere in the file does not make a new cause of an old one.
    way = [type(error).__qualname__, *(f"{PurePath(frame.filename).name}:{frame.name}" for frame in frames)]
    return hashlib.sha256("\n".join(way).encode()).hexdigest()[:16]
