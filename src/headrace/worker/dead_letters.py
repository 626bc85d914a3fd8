"""The copy of a record that a worker gives up: its key, value and headers, and in more headers where it was and why."""

from collections.abc import Iterable
from dataclasses import dataclass

from headrace.wire.dead_letter import Header, kafka_headers, our_headers, own_headers
from headrace.wire.records import NewRecord
from headrace.worker.outcomes import TaskOutcome
from headrace.worker.scheduler import GiveUpCause

TRACEBACK_BYTES_MAX = 4_096
"""Of the header with the traceback."""


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


def build_dead_letter(
    origin: RecordOrigin,
    *,
    key: bytes | None,
    value: bytes | None,
    headers: Iterable[Header],
    cause: GiveUpCause,
    outcome: TaskOutcome | None,
) -> NewRecord:
    facts: dict[str, object] = {
        "cause": cause.value,
        "attempts": origin.attempts,
        "task": origin.task,
        "worker": origin.worker,
        "timestamp": origin.timestamp_ms,
    }
    if outcome is not None and outcome.exception:
        facts["exception"] = f"{outcome.exception}: {outcome.message}"
        facts["traceback.hash"] = outcome.traceback_hash
        if outcome.trace:
            facts["traceback"] = bounded_end(outcome.trace, TRACEBACK_BYTES_MAX)
    of_kafka = kafka_headers(
        origin.topic,
        origin.partition,
        origin.offset,
        origin.group_id,
        origin.delivery_count,
        describe(cause, outcome),
    )
    return NewRecord(key, value, [*own_headers(headers), *of_kafka, *our_headers(facts)])


def bounded_end(text: str, bytes_max: int) -> str:
    """The last lines that fit: the end of a traceback says most."""
    data = text.rstrip().encode(errors="replace")
    if len(data) <= bytes_max:
        return data.decode()
    return "…\n" + data[-bytes_max:].partition(b"\n")[2].decode(errors="replace")


def describe(cause: GiveUpCause, outcome: TaskOutcome | None) -> str:
    """One sentence for people: the header `__dlq.errors.message`, and the log."""
    why = f"{outcome.exception}: {outcome.message}" if outcome is not None and outcome.exception else ""
    match cause:
        case GiveUpCause.REJECTED:
            return f"Rejected by the task: {outcome.message if outcome else ''}"
        case GiveUpCause.UNREADABLE:
            return f"The value could not be decoded: {outcome.message if outcome else ''}"
        case GiveUpCause.EXHAUSTED:
            return f"Retries exhausted: {why}"
        case GiveUpCause.LAST_DELIVERY:
            return (
                "Delivery limit reached without an acknowledgement: earlier workers crashed or lost the lock."
            )
