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


def is_int(value: object) -> bool:
    """True and False are integers to Python, and not to whoever gives them."""
    return isinstance(value, int) and not isinstance(value, bool)


def require_count(max_records: int | None) -> None:
    require_limit("poll: max_records", max_records)


def require_limit(name: str, value: int | None) -> None:
    """An argument that is a number of things, or None."""
    if value is not None and (not is_int(value) or value < 1):
        raise ValueError(f"{name} must be an int >= 1 or None, got {value!r}")


def require_offset(place: tuple[str, int], offset: int) -> None:
    if not is_int(offset) or offset < 0:
        raise ValueError(f"{place[0]}-{place[1]}: an offset must be an int >= 0, got {offset!r}")


def require_int(name: str, value: int) -> None:
    """For numbers whose range the brokers know."""
    if not is_int(value):
        raise ValueError(f"{name} must be an int, got {value!r}")


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
