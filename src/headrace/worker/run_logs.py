"""What a worker logs about failed runs: a retry, a record without a dead-letter topic, a paused or resumed task."""

import logging
from typing import Any

from headrace.worker.circuit import Circuit
from headrace.worker.dead_letters import describe
from headrace.worker.held_job import HeldJob
from headrace.worker.outcomes import TaskOutcome
from headrace.worker.rules import Decision, GiveUpCause, Rules
from headrace.worker.task import Task

logger = logging.getLogger("headrace.worker")


def log_retry(held: HeldJob, rules: Rules, decision: Decision, outcome: TaskOutcome) -> None:
    if decision.cause is not None:
        logger.error(
            "%s: %s is held after %d attempts, because the task has no dead_letter topic; again in %.0f s. %s",
            held.task, held, held.attempts, decision.delay_ms / 1000, describe(decision.cause, outcome),
        )  # fmt: skip
        return
    most = rules.attempts_max
    logger.warning(
        "%s: %s failed (attempt %d%s), again in %.1f s: %s: %s",
        held.task, held, held.attempts, f" of {most}" if most is not None else "",
        decision.delay_ms / 1000, outcome.exception, outcome.message,
    )  # fmt: skip
    if outcome.trace:
        logger.debug("%s: %s\n%s", held.task, held, outcome.trace)


def log_given_up(held: HeldJob, cause: GiveUpCause, outcome: TaskOutcome | None) -> None:
    trace = f"\n{outcome.trace.rstrip()}" if outcome is not None and outcome.trace else ""
    times = "1 attempt" if held.attempts == 1 else f"{held.attempts} attempts"
    logger.error(
        "%s: giving up on %s after %s. %s%s", held.task, held, times, describe(cause, outcome), trace
    )


def log_circuit(task: Task[Any, Any, Any], circuit: Circuit, outcome: TaskOutcome) -> None:
    breaker = task.options.breaker
    if not circuit.is_open or breaker is None:
        logger.warning("%s: a record has succeeded; the task is resumed", task.name)
        return
    logger.error(
        "%s: paused, because the last %d records have failed. One record at a time is tried, the first in %.1f s. "
        "The last failure: %s: %s",
        task.name, breaker.failures, circuit.wait_s, outcome.exception, outcome.message,
    )  # fmt: skip
