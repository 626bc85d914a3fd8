"""The exceptions that a queue raises."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.worker.outbox import Sent


class QueueError(Exception):
    """A queue cannot carry out a call. The message says why and what to do."""


class SendError(QueueError):
    """A record was not acknowledged. After a timeout it may still be written, so sending it again may duplicate it."""


class SomeTasksNotSentError(SendError):
    """Some of several records were not acknowledged. `sent` has the position of each record, or None."""

    def __init__(self, text: str, sent: "Sequence[Sent | None]") -> None:
        super().__init__(text)
        self.sent = list(sent)
