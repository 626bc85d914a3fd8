"""BlockMap: a sorted map from integers, kept in blocks, for a window of in-flight records.

Theory of operation. Keys lie in ascending order in lists ("blocks") of at most BLOCK_MAX entries, their values in
parallel lists, and the smallest key of each block in one more list. Finding a key is two binary searches in C;
adding or removing one moves at most one block's worth of pointers. With a million entries there are a few thousand
blocks, so the list of blocks moves as cheaply as a block does: the cost of an operation does not notice how much is
in the map. A new largest key opens a new block when the last one is full (instead of halving it), since a window
grows at its end.

A balanced tree would bound the worst case more tightly and lose everywhere else: it chases pointers in Python.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import Generic, TypeVar

V = TypeVar("V")

BLOCK_MAX = 512


class BlockMap(Generic[V]):
    __slots__ = ("_keys", "_mins", "_values", "size")

    def __init__(self) -> None:
        self._mins: list[int] = []
        self._keys: list[list[int]] = []
        self._values: list[list[V]] = []
        self.size = 0

    def first(self) -> V | None:
        return self._values[0][0] if self.size else None

    def last(self) -> V | None:
        return self._values[-1][-1] if self.size else None

    def floor(self, key: int) -> V | None:
        """The value with the largest key that is not above `key`."""
        block = bisect_right(self._mins, key) - 1
        if block < 0:
            return None
        return self._values[block][bisect_right(self._keys[block], key) - 1]

    def ceiling(self, key: int) -> V | None:
        """The value with the smallest key that is not below `key`."""
        block, index = self._position(key)
        return self._values[block][index] if block < len(self._values) else None

    def from_key(self, key: int) -> Iterator[V]:
        """Values in order, from the first key not below `key`. The map must not change meanwhile."""
        block, index = self._position(key)
        while block < len(self._values):
            yield from self._values[block][index:]
            block, index = block + 1, 0

    def __iter__(self) -> Iterator[V]:
        for values in self._values:
            yield from values

    def insert(self, key: int, value: V) -> None:
        """Adds a key that is not there yet."""
        if not self._mins:
            self._add_block(0, [key], [value])
        else:
            block = max(bisect_right(self._mins, key) - 1, 0)
            keys, values = self._keys[block], self._values[block]
            index = bisect_right(keys, key)
            if index == len(keys) >= BLOCK_MAX and block == len(self._mins) - 1:
                self._add_block(block + 1, [key], [value])
            else:
                keys.insert(index, key)
                values.insert(index, value)
                if index == 0:
                    self._mins[block] = key
                if len(keys) > BLOCK_MAX:
                    self._halve(block)
        self.size += 1

    def delete(self, key: int) -> None:
        """Removes a key that is there."""
        block = bisect_right(self._mins, key) - 1
        self._cut(block, bisect_left(self._keys[block], key), 1)

    def delete_between(self, first: int, last: int) -> None:
        """Removes every key in first..last, both included."""
        block, index = self._position(first)
        while block < len(self._mins) and self._keys[block][index] <= last:
            end = bisect_right(self._keys[block], last)
            is_gone = self._cut(block, index, end - index)
            block, index = (block if is_gone else block + 1), 0

    def _position(self, key: int) -> tuple[int, int]:
        """Where the first key not below `key` is; one block past the end if there is none."""
        block = max(bisect_right(self._mins, key) - 1, 0)
        if block == len(self._mins):
            return block, 0
        index = bisect_left(self._keys[block], key)
        return (block, index) if index < len(self._keys[block]) else (block + 1, 0)

    def _cut(self, block: int, index: int, count: int) -> bool:
        """Removes `count` entries of a block; whether the block is gone with them."""
        keys = self._keys[block]
        self.size -= count
        if count == len(keys):
            del self._mins[block], self._keys[block], self._values[block]
            return True
        del keys[index : index + count], self._values[block][index : index + count]
        self._mins[block] = keys[0]
        return False

    def _halve(self, block: int) -> None:
        keys, values = self._keys[block], self._values[block]
        middle = len(keys) // 2
        self._add_block(block + 1, keys[middle:], values[middle:])
        del keys[middle:], values[middle:]

    def _add_block(self, block: int, keys: list[int], values: list[V]) -> None:
        self._mins.insert(block, keys[0])
        self._keys.insert(block, keys)
        self._values.insert(block, values)
