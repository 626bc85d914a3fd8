"""How Kafka writes ids as text, and which partition of an internal topic an id lives in."""

import base64
import struct

INT32_MIN = -(1 << 31)


def uuid_text(raw: bytes) -> str:
    """The 22 characters by which Kafka shows a uuid."""
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def java_hash(text: str) -> int:
    """Java's `String.hashCode`: over UTF-16 code units, wrapped to 32 bits with a sign."""
    hashed = 0
    encoded = text.encode("utf-16-be", "surrogatepass")
    for (unit,) in struct.iter_unpack(">H", encoded):
        hashed = (31 * hashed + unit) & 0xFFFFFFFF
    return hashed - (1 << 32) if hashed & 0x80000000 else hashed


def partition_for(key: str, partitions: int) -> int:
    """Where groups (`__consumer_offsets`), transactions and share-partitions (`__share_group_state`) are kept."""
    hashed = java_hash(key)
    return 0 if hashed == INT32_MIN else abs(hashed) % partitions
