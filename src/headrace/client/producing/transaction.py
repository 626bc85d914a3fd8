"""Where a transactional producer stands: one table of states and events."""

from enum import Enum

from headrace.client.errors import IllegalStateError, ProducerFencedError, error_for
from headrace.wire.errors import ErrorCode, KafkaError


class TransactionPhase(Enum):
    READY = "no transaction has begun; call begin() first"
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


TRANSITIONS: dict[tuple[TransactionPhase, Event], TransactionPhase] = {
    (TransactionPhase.READY, Event.BEGIN): TransactionPhase.OPEN,
    (TransactionPhase.OPEN, Event.SEND): TransactionPhase.OPEN,
    (TransactionPhase.OPEN, Event.FAIL): TransactionPhase.FAILED,
    (TransactionPhase.OPEN, Event.COMMIT): TransactionPhase.COMMITTING,
    (TransactionPhase.OPEN, Event.ABORT): TransactionPhase.ABORTING,
    (TransactionPhase.FAILED, Event.FAIL): TransactionPhase.FAILED,
    (TransactionPhase.FAILED, Event.ABORT): TransactionPhase.ABORTING,
    (TransactionPhase.COMMITTING, Event.FAIL): TransactionPhase.FAILED,
    (TransactionPhase.COMMITTING, Event.COMMIT): TransactionPhase.COMMITTING,
    (TransactionPhase.COMMITTING, Event.ENDED): TransactionPhase.READY,
    (TransactionPhase.ABORTING, Event.FAIL): TransactionPhase.ABORTING,
    (TransactionPhase.ABORTING, Event.ABORT): TransactionPhase.ABORTING,
    (TransactionPhase.ABORTING, Event.ENDED): TransactionPhase.READY,
    (TransactionPhase.READY, Event.FENCE): TransactionPhase.FENCED,
    (TransactionPhase.OPEN, Event.FENCE): TransactionPhase.FENCED,
    (TransactionPhase.FAILED, Event.FENCE): TransactionPhase.FENCED,
    (TransactionPhase.COMMITTING, Event.FENCE): TransactionPhase.FENCED,
    (TransactionPhase.ABORTING, Event.FENCE): TransactionPhase.FENCED,
    (TransactionPhase.FENCED, Event.FENCE): TransactionPhase.FENCED,
    (TransactionPhase.FENCED, Event.FAIL): TransactionPhase.FENCED,
}
"""What is not listed is refused, and the state says what to do."""


class Transaction:
    """`error` is why the open transaction has failed."""

    def __init__(self) -> None:
        self.state = TransactionPhase.READY
        self.error: KafkaError | None = None

    @property
    def is_open(self) -> bool:
        return self.state not in (TransactionPhase.READY, TransactionPhase.FENCED)

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
        if self.state is TransactionPhase.FAILED and self.error is not None:
            text = f"the transaction has failed and must be aborted: {self.error}"
            raise error_for(ErrorCode.TRANSACTION_ABORTABLE, text) from self.error
        if self.state is TransactionPhase.FENCED:
            raise error_for(ErrorCode.PRODUCER_FENCED, self.error.text if self.error else None)
        raise IllegalStateError(f"{event.value}() cannot be called now: {self.state.value}")
