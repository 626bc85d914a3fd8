"""What a queue raises to the program around it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.worker.outbox import Sent


class QueueError(Exception):
    """A queue cannot do what it was asked; the text says why and what to do."""


class SendError(QueueError):
    """A record was not acknowledged. It may still have been written when the text speaks of time: sending it again may
    write it twice."""


class SomeTasksNotSentError(SendError):
    """Of several records some were not acknowledged. `sent` has the place of each so far, None for those."""

    def __init__(self, text: str, sent: "Sequence[Sent | None]") -> None:
        super().__init__(text)
        self.sent = list(sent)
