"""The keys of partitions, how Kafka writes ids as text, and which partition of an internal topic an id lives in."""

import base64
import struct

TopicAndPartition = tuple[str, int]
"""A topic's name and a partition of it. The client's `TopicPartition` is equal to such a pair."""
TopicIdPartition = tuple[bytes, int]
INT32_MIN = -(1 << 31)
_UNITS_AT_ONCE = 64
"""Wrapping the sum after each one takes longer than letting it grow a little."""


def uuid_text(raw: bytes) -> str:
    """The 22 characters by which Kafka shows a uuid."""
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def parse_uuid(text: str) -> bytes:
    """ValueError if it is none."""
    raw = base64.urlsafe_b64decode(text + "==")
    if uuid_text(raw) != text or len(raw) != 16:
        raise ValueError(f"not a uuid as Kafka shows it: {text!r}")
    return raw


def _utf16_units(text: str) -> list[int]:
    encoded = text.encode("utf-16-be", "surrogatepass")
    return [unit for (unit,) in struct.iter_unpack(">H", encoded)]


def java_hash(text: str, begun: int = 0) -> int:
    """Java's `String.hashCode`: over UTF-16 code units, wrapped to 32 bits with a sign.

    `begun` is the hash of what stands before this text.
    """
    hashed = begun
    units = text.encode() if text.isascii() else _utf16_units(text)
    for begin in range(0, len(units), _UNITS_AT_ONCE):
        for unit in units[begin : begin + _UNITS_AT_ONCE]:
            hashed = 31 * hashed + unit
        hashed &= 0xFFFFFFFF
    return hashed - (1 << 32) if hashed & 0x80000000 else hashed


def partition_for(key: str, partitions: int) -> int:
    """Where groups (`__consumer_offsets`), transactions and share-partitions (`__share_group_state`) are kept."""
    return partition_of_hash(java_hash(key), partitions)


def partition_of_hash(hashed: int, partitions: int) -> int:
    return 0 if hashed == INT32_MIN else abs(hashed) % partitions
