"""What settings cannot say alone: those that must fit together, or the broker does not start."""

from typing import Protocol


class Numbers(Protocol):
    def get_int(self, name: str, /) -> int: ...


def _family(kind: str, name: str) -> tuple[tuple[str, str], tuple[str, str]]:
    """What a broker gives its groups lies between what it lets them set."""
    value = f"group.{kind}.{name}"
    return (f"group.{kind}.min.{name}", value), (value, f"group.{kind}.max.{name}")


# (smaller or equal, larger or equal)
_ORDERED: tuple[tuple[str, str], ...] = (
    ("group.min.session.timeout.ms", "group.max.session.timeout.ms"),
    *_family("consumer", "session.timeout.ms"),
    *_family("consumer", "heartbeat.interval.ms"),
    *_family("consumer", "assignment.interval.ms"),
    *_family("share", "session.timeout.ms"),
    *_family("share", "heartbeat.interval.ms"),
    *_family("share", "assignment.interval.ms"),
    *_family("share", "record.lock.duration.ms"),
    *_family("share", "delivery.count.limit"),
    *_family("share", "partition.max.record.locks"),
    ("group.share.max.size", "group.share.max.share.sessions"),
)
# (smaller, larger)
_APART: tuple[tuple[str, str], ...] = (
    ("group.consumer.heartbeat.interval.ms", "group.consumer.session.timeout.ms"),
    ("group.share.heartbeat.interval.ms", "group.share.session.timeout.ms"),
)


def contradictions(settings: Numbers) -> list[str]:
    """One line for each, with names and values."""
    found = [
        f"{low}={settings.get_int(low)} must not be more than {high}={settings.get_int(high)}"
        for low, high in _ORDERED
        if settings.get_int(low) > settings.get_int(high)
    ]
    found += [
        f"{low}={settings.get_int(low)} must be less than {high}={settings.get_int(high)}"
        for low, high in _APART
        if settings.get_int(low) >= settings.get_int(high)
    ]
    return found
