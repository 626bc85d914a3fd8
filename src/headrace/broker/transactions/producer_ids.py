"""Producer ids, each given out once for ever.

They are taken from the metadata store in blocks, durably, before the first of a block is used. A restart
begins a new block and leaves the rest of the old one unused: there are 2^63 of them.
"""

from collections.abc import Callable

BLOCK = 1000


class ProducerIds:
    def __init__(self, allocate: Callable[[int], range]) -> None:
        self._allocate = allocate
        self._block = range(0)

    def draw(self) -> int:
        if not self._block:
            self._block = self._allocate(BLOCK)
        first, self._block = self._block[0], self._block[1:]
        return first
