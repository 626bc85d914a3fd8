"""What members are subscribed to: topic names, and patterns that the broker resolves to names (KIP-848)."""

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Protocol

from headrace.broker.patterns import Pattern


class NamedTopic(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def id(self) -> bytes: ...

    @property
    def partitions(self) -> Sequence[object]: ...


class TopicsView(Protocol):
    """The topics that exist, as far as groups care."""

    def get(self, name: str) -> NamedTopic | None: ...

    def by_id(self, topic_id: bytes, /) -> NamedTopic | None: ...

    def __iter__(self) -> Iterator[NamedTopic]: ...


@lru_cache(maxsize=256)
def compile_pattern(pattern: str) -> Pattern:
    """Raises KafkaError(INVALID_REGULAR_EXPRESSION)."""
    return Pattern(pattern)


def resolve(pattern: str, topics: TopicsView) -> frozenset[str]:
    """The topics whose whole name matches; the broker's own ones too, as in Kafka."""
    compiled = compile_pattern(pattern)
    return frozenset(topic.name for topic in topics if compiled.matches(topic.name))


def fingerprint(names: Iterable[str], topics: TopicsView) -> int:
    """Changes whenever a topic of these is made, deleted, made again or grows."""
    there = (topics.get(name) for name in set(names))
    return topics_fingerprint(
        (topic.name, topic.id, len(topic.partitions)) for topic in there if topic is not None
    )


def topic_ids(names: Iterable[str], topics: TopicsView) -> frozenset[bytes]:
    """The ids of those that exist."""
    there = (topics.get(name) for name in names)
    return frozenset(topic.id for topic in there if topic is not None)


def subscribed_names(
    names: frozenset[str], pattern: str, resolved: Mapping[str, frozenset[str]]
) -> frozenset[str]:
    """All that one member reads; a pattern that is not resolved stands for nothing."""
    return names | resolved[pattern] if pattern in resolved else names


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
