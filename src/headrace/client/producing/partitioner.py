"""Which partition a record goes to: Kafka's default partitioner.

A record with a key goes where murmur2 of the key says, as with Java's producer, so that clients in both languages
agree. Records without a key stay with one partition until its batch has left or is full, then go to another at random:
batches are large when there is much to send, and all partitions get the same share.
"""

import struct
from collections.abc import Callable

_WORD = struct.Struct("<I")
_MASK = 0xFFFFFFFF
_MULTIPLIER = 0x5BD1E995
_SEED = 0x9747B28C


def partition_of_key(key: bytes, partition_count: int) -> int:
    return (murmur2(key) & 0x7FFFFFFF) % partition_count


def murmur2(data: bytes) -> int:
    """As an unsigned number of 32 bits. Java's `Utils.murmur2` is the same with a sign."""
    length = len(data)
    whole = length & ~3
    hash_ = (_SEED ^ length) & _MASK
    for (word,) in _WORD.iter_unpack(data[:whole] if whole != length else data):
        word = word * _MULTIPLIER & _MASK
        word ^= word >> 24
        hash_ = hash_ * _MULTIPLIER & _MASK ^ word * _MULTIPLIER & _MASK
    if whole != length:
        hash_ = (hash_ ^ int.from_bytes(data[whole:], "little")) * _MULTIPLIER & _MASK
    hash_ = (hash_ ^ hash_ >> 13) * _MULTIPLIER & _MASK
    return hash_ ^ hash_ >> 15


class StickyChoice:
    """The partition for records of one topic that have no key. `random_below(n)` gives a number from 0 to n - 1."""

    __slots__ = ("_bytes", "_bytes_max", "_current", "_random_below")

    def __init__(self, bytes_max: int, random_below: Callable[[int], int]) -> None:
        self._bytes_max = bytes_max
        self._random_below = random_below
        self._current = -1
        self._bytes = 0

    @property
    def current(self) -> int:
        return self._current

    def choose(self, usable: list[int], size: int, *, has_left: bool) -> int:
        """The partition for a record of `size` bytes; `has_left`: the batch that the last one went into is on its way.

        `usable` are partitions that have a leader, or all of them if none has.
        """
        if has_left or self._bytes >= self._bytes_max or self._current not in usable:
            others = [partition for partition in usable if partition != self._current] or usable
            self._current = others[self._random_below(len(others))]
            self._bytes = 0
        self._bytes += size
        return self._current

    def add(self, size: int) -> None:
        """So many bytes more went to the partition that was chosen last."""
        self._bytes += size
