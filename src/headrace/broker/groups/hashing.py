"""The fingerprint of the topics a group reads."""

import struct
from collections.abc import Iterable
from hashlib import blake2b


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
