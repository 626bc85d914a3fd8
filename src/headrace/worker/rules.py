"""What becomes of a record when its run has ended: the rules of retries, dead letters and held records. Pure."""

from dataclasses import dataclass
from enum import Enum

from headrace.worker.backoff import Backoff
from headrace.worker.jobs import Job
from headrace.worker.outcomes import TaskOutcome, TaskResult

HOLD_ATTEMPTS = 1_000
"""So many attempts have the longest delay of every back-off."""


class GiveUpCause(Enum):
    """Why a record is given up; the value is the header `headrace.dlq.cause`."""

    REJECTED = "rejected"
    UNREADABLE = "unreadable"
    EXHAUSTED = "exhausted"
    LAST_DELIVERY = "last-delivery"


class Verdict(Enum):
    ACCEPT = "accept"
    RETRY = "retry"
    DEFER = "defer"
    """Another try after so long that the record does not keep its lock: it is scheduled."""
    GIVE_UP = "give up"
    RELEASE = "release"
    NOTHING = "nothing"
    """The record is not ours any more."""


@dataclass(frozen=True, slots=True)
class Decision:
    verdict: Verdict
    cause: GiveUpCause | None = None
    """Of a RETRY: the record would be given up if there were a dead-letter topic."""
    delay_ms: int = 0


@dataclass(frozen=True, slots=True)
class Rules:
    """What decides about another try."""

    retries: Backoff | None
    delivery_limit: int
    saves_last_delivery: bool = False
    """The worker itself writes dead letters. A record on its last delivery is then given up without a run: should it
    bring down this worker as well, the broker would archive it and no copy would ever be written."""
    holds: bool = False
    """There are no dead letters. A record that would be one is held and tried again, as rarely as the back-off goes."""
    hold_ms_max: int | None = None
    """Longer waits than this are scheduled."""

    @property
    def attempts_max(self) -> int | None:
        return self.retries.tries if self.retries is not None else 1

    def arrival(self, job: Job) -> GiveUpCause | None:
        is_last = self.saves_last_delivery and job.delivery_count >= self.delivery_limit
        return GiveUpCause.LAST_DELIVERY if is_last else None

    def decide(self, job: Job, outcome: TaskOutcome, chance: float) -> Decision:
        match outcome.result:
            case TaskResult.DONE:
                return Decision(Verdict.ACCEPT)
            case TaskResult.REJECTED:
                return Decision(Verdict.GIVE_UP, GiveUpCause.REJECTED)
            case TaskResult.UNREADABLE:
                return self._hopeless(GiveUpCause.UNREADABLE, chance)
        retries = self.retries
        if retries is None and outcome.result is TaskResult.RETRY_ASKED:
            retries = Backoff()
        if retries is None:
            return Decision(Verdict.GIVE_UP, GiveUpCause.EXHAUSTED)
        if retries.tries is not None and job.attempts >= retries.tries:
            return self._hopeless(GiveUpCause.EXHAUSTED, chance)
        if outcome.retry_after_s is not None:
            delay_ms = round(outcome.retry_after_s * 1000)
        else:
            delay_ms = retries.delay_ms(job.attempts, chance)
        is_long = self.hold_ms_max is not None and delay_ms > self.hold_ms_max
        return Decision(Verdict.DEFER if is_long else Verdict.RETRY, delay_ms=delay_ms)

    def _hopeless(self, cause: GiveUpCause, chance: float) -> Decision:
        if not self.holds:
            return Decision(Verdict.GIVE_UP, cause)
        retries = self.retries or Backoff()
        return Decision(Verdict.RETRY, cause, retries.delay_ms(HOLD_ATTEMPTS, chance))
