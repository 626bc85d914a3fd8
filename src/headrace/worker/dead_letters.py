"""The copy of a record that a worker gives up: its key, value and headers, and in more headers where it was and why."""

from headrace.wire.dead_letter import kafka_headers, our_headers, own_headers
from headrace.wire.records import NewRecord
from headrace.worker.held_job import HeldJob
from headrace.worker.outcomes import TaskOutcome
from headrace.worker.rules import GiveUpCause

TRACEBACK_BYTES_MAX = 4_096
"""Of the header with the traceback."""


class DeadLetterBuilder:
    """Of one task. `topic` is where its dead letters go."""

    def __init__(self, topic: str, group_id: str, worker: str) -> None:
        self.topic = topic
        self._group_id = group_id
        self._worker = worker

    def build(self, held: HeldJob, cause: GiveUpCause, outcome: TaskOutcome | None) -> NewRecord:
        delivery = held.delivery
        facts: dict[str, object] = {
            "cause": cause.value,
            "attempts": held.attempts,
            "task": held.task,
            "worker": self._worker,
            "timestamp": delivery.timestamp,
        }
        if outcome is not None and outcome.exception:
            facts["exception"] = f"{outcome.exception}: {outcome.message}"
            facts["traceback.hash"] = outcome.traceback_hash
            if outcome.trace:
                facts["traceback"] = bounded_end(outcome.trace, TRACEBACK_BYTES_MAX)
        of_kafka = kafka_headers(
            delivery.topic,
            held.partition,
            held.offset,
            self._group_id,
            held.delivery_count,
            describe(cause, outcome),
        )
        headers = [*own_headers(delivery.headers), *of_kafka, *our_headers(facts)]
        return NewRecord(delivery.key, delivery.value, headers)


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
