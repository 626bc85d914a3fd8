"""Where a transactional producer stands: one table of states and events."""

from enum import Enum

from headrace.client.errors import IllegalStateError, ProducerFencedError, error_for
from headrace.wire.errors import ErrorCode, KafkaError


class State(Enum):
    READY = "there is no transaction; call begin() first"
    OPEN = "a transaction is open; commit() or abort() it first"
    FAILED = "the transaction has failed; call abort()"
    COMMITTING = "the outcome of commit() is not known; call commit() again"
    ABORTING = "the outcome of abort() is not known; call abort() again"
    FENCED = "another producer uses the same transactional.id; close this one"


class Event(Enum):
    BEGIN = "begin"
    SEND = "send"
    FAIL = "fail"
    COMMIT = "commit"
    ABORT = "abort"
    ENDED = "ended"
    FENCE = "fence"


TRANSITIONS: dict[tuple[State, Event], State] = {
    (State.READY, Event.BEGIN): State.OPEN,
    (State.OPEN, Event.SEND): State.OPEN,
    (State.OPEN, Event.FAIL): State.FAILED,
    (State.OPEN, Event.COMMIT): State.COMMITTING,
    (State.OPEN, Event.ABORT): State.ABORTING,
    (State.FAILED, Event.FAIL): State.FAILED,
    (State.FAILED, Event.ABORT): State.ABORTING,
    (State.COMMITTING, Event.FAIL): State.FAILED,
    (State.COMMITTING, Event.COMMIT): State.COMMITTING,
    (State.COMMITTING, Event.ENDED): State.READY,
    (State.ABORTING, Event.FAIL): State.ABORTING,
    (State.ABORTING, Event.ABORT): State.ABORTING,
    (State.ABORTING, Event.ENDED): State.READY,
    (State.READY, Event.FENCE): State.FENCED,
    (State.OPEN, Event.FENCE): State.FENCED,
    (State.FAILED, Event.FENCE): State.FENCED,
    (State.COMMITTING, Event.FENCE): State.FENCED,
    (State.ABORTING, Event.FENCE): State.FENCED,
    (State.FENCED, Event.FENCE): State.FENCED,
    (State.FENCED, Event.FAIL): State.FENCED,
}
"""What is not listed is refused, and the state says what to do."""


class Transaction:
    """`error` is why the open transaction has failed."""

    def __init__(self) -> None:
        self.state = State.READY
        self.error: KafkaError | None = None

    @property
    def is_open(self) -> bool:
        return self.state not in (State.READY, State.FENCED)

    def move(self, event: Event) -> None:
        """IllegalStateError, or the error that the transaction has failed with, when the event does not fit."""
        new = TRANSITIONS.get((self.state, event))
        if new is None:
            self._refuse(event)
        else:
            self.state = new
        if event is Event.ENDED:
            self.error = None

    def fail(self, error: KafkaError) -> None:
        """A record or a request of the transaction has failed."""
        if self.error is None:
            self.error = error
        if isinstance(error, ProducerFencedError):
            self.move(Event.FENCE)
        elif self.is_open:
            self.move(Event.FAIL)

    def _refuse(self, event: Event) -> None:
        if self.state is State.FAILED and self.error is not None:
            text = f"the transaction has failed and must be aborted: {self.error}"
            raise error_for(ErrorCode.TRANSACTION_ABORTABLE, text) from self.error
        if self.state is State.FENCED:
            raise error_for(ErrorCode.PRODUCER_FENCED, self.error.text if self.error else None)
        raise IllegalStateError(f"{event.value}() is not possible now: {self.state.value}")
