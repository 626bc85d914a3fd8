"""What the consumers' methods are given, checked."""

from collections.abc import Collection
from datetime import timedelta
from numbers import Real

POLL_S = 1.0
"""How long one poll of an iteration waits."""
FOR_EVER_S = 1e9


def seconds(method: str, timeout: float | None) -> float:
    """A timeout as it was given, checked. None and infinity mean no timeout."""
    if timeout is None:
        return FOR_EVER_S
    if isinstance(timeout, bool) or not isinstance(timeout, (float, int, Real)):
        raise TypeError(f"{method}: timeout must be a number of seconds or None, got {timeout!r}")
    if not timeout >= 0:
        raise ValueError(
            f"{method}: timeout must be >= 0 seconds, or None to wait without a limit, got {timeout!r}"
        )
    return min(float(timeout), FOR_EVER_S)


def require_count(max_records: int | None) -> None:
    if max_records is not None and max_records < 1:
        raise ValueError(f"poll: max_records must be >= 1 or None, got {max_records}")


def topic_names(topics: Collection[str]) -> frozenset[str]:
    if isinstance(topics, str):
        raise TypeError(f"subscribe takes a list of topics, got a string; for one topic use [{topics!r}]")
    for topic in topics:
        if not isinstance(topic, str) or not topic.strip():
            raise ValueError(f"invalid topic name {topic!r}: expected a non-empty string")
    return frozenset(topics)


def delay_seconds(after: float | timedelta, longest_s: float) -> float:
    """How long a record is to be kept before it is released, checked."""
    after_s = after.total_seconds() if isinstance(after, timedelta) else after
    if isinstance(after_s, bool) or not isinstance(after_s, (float, int, Real)):
        raise TypeError(f"release: after must be seconds or a timedelta, got {after!r}")
    if not 0 <= after_s <= longest_s:
        raise ValueError(
            f"release: after must be from 0 to {longest_s:g} seconds, got {after!r}. The maximum is "
            "auto.renew.max.ms. A record that is held for longer delays its partition: send it to another topic."
        )
    return float(after_s)
