"""The records of one `send_many`: where each of them is, or that some are not."""

from collections.abc import Callable

from headrace.client.errors import SomeNotSentError
from headrace.client.producing.record import RecordMetadata


class Many:
    """`on_done` is called once, when no record is outstanding and none will come.

    One thread may add while another settles; `complete` belongs to the latter.
    """

    def __init__(self, on_done: Callable[[], None]) -> None:
        self._on_done = on_done
        self._sent: list[RecordMetadata | None] = []
        self._settled = 0
        self._is_complete = False
        self._error: Exception | None = None
        self._failures = 0

    def add(self) -> int:
        """Counts one more record; the number is its place."""
        self._sent.append(None)
        return len(self._sent) - 1

    def settle(self, place: int, metadata: RecordMetadata | None, error: Exception | None) -> None:
        self.note(place, metadata, error)
        self.check()

    def note(self, place: int, metadata: RecordMetadata | None, error: Exception | None) -> None:
        """`settle` for one record of several; `check` must follow."""
        self._sent[place] = metadata
        if error is not None:
            self._failures += 1
            self._error = self._error or error
        self._settled += 1

    def complete(self) -> None:
        """No more records will be added."""
        self._is_complete = True
        self.check()

    def result(self) -> list[RecordMetadata]:
        if self._error is not None:
            count = len(self._sent)
            raise SomeNotSentError(
                f"{self._failures} of {count} records were not acknowledged; the first: {self._error}",
                self._sent,
            ) from self._error
        return [metadata for metadata in self._sent if metadata is not None]

    def check(self) -> None:
        """Calls `on_done` when all are settled."""
        if self._is_complete and self._settled == len(self._sent):
            self._on_done()
