"""What the consumers' methods are given, checked."""

from collections.abc import Collection
from datetime import timedelta
from numbers import Real

POLL_S = 1.0
"""How long one poll of an iteration waits."""
FOR_EVER_S = 1e9


def seconds(method: str, timeout: float | None) -> float:
    """A timeout as it was given, checked; None and infinity are so long that nobody lives to see its end."""
    if timeout is None:
        return FOR_EVER_S
    if isinstance(timeout, bool) or not isinstance(timeout, (float, int, Real)):
        raise TypeError(f"{method}(timeout={timeout!r}) is not possible; give seconds, as a number")
    if not timeout >= 0:
        raise ValueError(
            f"{method}(timeout={timeout!r}) is not possible; give seconds, 0 or more, or None to wait without end"
        )
    return min(float(timeout), FOR_EVER_S)


def require_count(max_records: int | None) -> None:
    if max_records is not None and max_records < 1:
        raise ValueError(f"poll(max_records={max_records}) is not possible; ask for 1 or more, or None")


def topic_names(topics: Collection[str]) -> frozenset[str]:
    if isinstance(topics, str):
        raise TypeError(f"subscribe takes a list of topics; for one topic write [{topics!r}]")
    for topic in topics:
        if not isinstance(topic, str) or not topic.strip():
            raise ValueError(f"{topic!r} is no topic name; topics are text and not empty")
    return frozenset(topics)


def delay_seconds(after: float | timedelta, longest_s: float) -> float:
    """How long a record is to be kept before it is released, checked."""
    after_s = after.total_seconds() if isinstance(after, timedelta) else after
    if isinstance(after_s, bool) or not isinstance(after_s, (float, int, Real)):
        raise TypeError(f"release(after={after!r}) is not possible; give seconds, as a number or a timedelta")
    if not 0 <= after_s <= longest_s:
        raise ValueError(
            f"release(after={after!r}) is not possible; give 0 to {longest_s:g} seconds. The upper end is "
            "auto.renew.max.ms: a record that is kept for longer holds up its partition; send it to a topic of its own."
        )
    return float(after_s)
