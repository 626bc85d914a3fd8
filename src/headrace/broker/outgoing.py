"""A bound over all connections on response bytes that clients have asked for and do not read.

Theory of operation. A connection whose client does not keep up has its transport's buffer counted here until that is
empty enough again. A fetch may read half of what is left of the bound, so that each further one gets less, and nobody
gets nothing: the first batch of a fetch comes whatever its size. Clients that read get what they ask for.

Other responses may be large, too, and are not made smaller. Where they have come to twice the bound, the client that
leaves most unread is cut off.
"""

import logging
from collections.abc import Callable

logger = logging.getLogger("headrace.broker")

CUT_OFF_BYTES_MIN = 8 << 20
"""A client that leaves no more than this unread is not cut off: it may be one of very many that are a little slow."""


class Outgoing:
    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._congested: dict[int, Callable[[], int]] = {}
        self._cut_off: dict[int, Callable[[], None]] = {}

    def congested(
        self, connection_id: int, unread: Callable[[], int], cut_off: Callable[[], None] = lambda: None
    ) -> None:
        """From now on the bytes that its client has not taken count. `cut_off` frees them, and ends the connection."""
        self._congested[connection_id] = unread
        self._cut_off[connection_id] = cut_off
        while (total := self.unread_bytes()) > 2 * self._bytes_max:
            largest = max(self._congested, key=lambda one: self._congested[one]())
            size = self._congested[largest]()
            if size <= CUT_OFF_BYTES_MIN:
                return
            logger.warning(
                "closing connection %d: its client leaves %d of %d bytes of responses unread "
                "(headrace.unread.response.bytes=%d)", largest, size, total, self._bytes_max,
            )  # fmt: skip
            end = self._cut_off[largest]
            self.relieved(largest)
            end()

    def relieved(self, connection_id: int) -> None:
        self._congested.pop(connection_id, None)
        self._cut_off.pop(connection_id, None)

    def unread_bytes(self) -> int:
        return sum(unread() for unread in self._congested.values())

    def allowance(self) -> int:
        """How many bytes of records one more response may have, beyond its first batch."""
        return max(0, self._bytes_max - self.unread_bytes()) // 2
