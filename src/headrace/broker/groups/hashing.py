"""Which partition of `__consumer_offsets` a group lives in, and the fingerprint of the topics it reads."""

import struct
from collections.abc import Iterable
from hashlib import blake2b

INT32_MIN = -(1 << 31)


def java_hash(text: str) -> int:
    """Java's `String.hashCode`: over UTF-16 code units, wrapped to 32 bits with a sign."""
    hashed = 0
    encoded = text.encode("utf-16-be", "surrogatepass")
    for (unit,) in struct.iter_unpack(">H", encoded):
        hashed = (31 * hashed + unit) & 0xFFFFFFFF
    return hashed - (1 << 32) if hashed & 0x80000000 else hashed


def partition_for(key: str, partitions: int) -> int:
    hashed = java_hash(key)
    return 0 if hashed == INT32_MIN else abs(hashed) % partitions


def topics_fingerprint(topics: Iterable[tuple[str, bytes, int]]) -> int:
    """A signed 64-bit number that changes when one of the (name, id, partition count) does; 0 for no topics.

    Kafka keeps such a number in its group metadata records too. Only its writer ever compares it, so it need not be
    computed the same way.
    """
    described = sorted(topics)
    if not described:
        return 0
    digest = blake2b(digest_size=8)
    for name, topic_id, partitions in described:
        digest.update(struct.pack(">H", len(name)) + name.encode() + topic_id + struct.pack(">i", partitions))
    (number,) = struct.unpack(">q", digest.digest())
    return int(number)
