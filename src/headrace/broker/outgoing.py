"""A bound over all connections on response bytes that clients have asked for and do not read.

Theory of operation. A connection whose client does not keep up has its transport's buffer counted here until that is
empty enough again. A fetch may read half of what is left of the bound, so that each further one gets less, and nobody
gets nothing: the first batch of a fetch comes whatever its size. Clients that read get what they ask for.
"""

from collections.abc import Callable


class Outgoing:
    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._congested: dict[int, Callable[[], int]] = {}

    def congested(self, connection_id: int, unread: Callable[[], int]) -> None:
        """From now on the bytes that its client has not taken count."""
        self._congested[connection_id] = unread

    def relieved(self, connection_id: int) -> None:
        self._congested.pop(connection_id, None)

    def unread_bytes(self) -> int:
        return sum(unread() for unread in self._congested.values())

    def allowance(self) -> int:
        """How many bytes of records one more response may have, beyond its first batch."""
        return max(0, self._bytes_max - self.unread_bytes()) // 2
