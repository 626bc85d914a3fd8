"""The copy of a record that is given up: its key, value and headers, and in more headers where it was and why.

The first six headers are those of KIP-1191, in its order and with its names, so that tools for a broker's own dead
letters read ours too. `headrace.dlq.*` say what a broker cannot know. Headers of an earlier death (a record that was
sent back and died again) are replaced, not repeated.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from headrace.worker.bodies import Header
from headrace.worker.outcomes import TaskOutcome
from headrace.worker.scheduler import GiveUpCause

KAFKA_PREFIX = "__dlq.errors."
OUR_PREFIX = "headrace.dlq."
NOTE_COPIED = OUR_PREFIX + "copied"


@dataclass(frozen=True, slots=True)
class RecordOrigin:
    """Where a record was, and who gave it up."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    group_id: str
    delivery_count: int
    attempts: int
    task: str
    worker: str


@dataclass(frozen=True, slots=True)
class DeadLetterRecord:
    """What is sent to the dead-letter topic."""

    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]


def build_dead_letter(
    origin: RecordOrigin,
    *,
    key: bytes | None,
    value: bytes | None,
    headers: Iterable[Header],
    cause: GiveUpCause,
    outcome: TaskOutcome | None,
    copies_value: bool = True,
) -> DeadLetterRecord:
    """`copies_value=False` leaves out the value and the record's headers: the topic does not take so much."""
    facts: dict[str, object] = {
        KAFKA_PREFIX + "topic": origin.topic,
        KAFKA_PREFIX + "partition": origin.partition,
        KAFKA_PREFIX + "offset": origin.offset,
        KAFKA_PREFIX + "group": origin.group_id,
        KAFKA_PREFIX + "delivery.count": origin.delivery_count,
        KAFKA_PREFIX + "message": describe(cause, outcome),
        OUR_PREFIX + "cause": cause.value,
        OUR_PREFIX + "attempts": origin.attempts,
        OUR_PREFIX + "task": origin.task,
        OUR_PREFIX + "worker": origin.worker,
        OUR_PREFIX + "timestamp": origin.timestamp_ms,
    }
    if outcome is not None and outcome.exception:
        facts[OUR_PREFIX + "exception"] = f"{outcome.exception}: {outcome.message}"
        facts[OUR_PREFIX + "traceback.hash"] = outcome.traceback_hash
    if not copies_value:
        facts[NOTE_COPIED] = "false"
    own = tuple(header for header in headers if not _is_of_a_death(header[0])) if copies_value else ()
    written = tuple((name, str(fact).encode()) for name, fact in facts.items())
    return DeadLetterRecord(key, value if copies_value else None, own + written)


def describe(cause: GiveUpCause, outcome: TaskOutcome | None) -> str:
    """One sentence for people: the header `__dlq.errors.message`, and the log."""
    why = f"{outcome.exception}: {outcome.message}" if outcome is not None and outcome.exception else ""
    match cause:
        case GiveUpCause.REJECTED:
            return f"Rejected by the task: {outcome.message if outcome else ''}"
        case GiveUpCause.UNREADABLE:
            return f"Not readable as the task's body: {outcome.message if outcome else ''}"
        case GiveUpCause.EXHAUSTED:
            return f"Failed as often as it may: {why}"
        case GiveUpCause.LAST_DELIVERY:
            return "Delivered as often as it may, and never settled: its workers died or lost its lock."


def _is_of_a_death(name: str) -> bool:
    return name.startswith((KAFKA_PREFIX, OUR_PREFIX))
