"""Tasks that are sent by the clock: what their functions get, and what the forwarder sends when."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo

from headrace.worker.bodies import ContentType, Header, write_body
from headrace.worker.cron import Cron, Interval
from headrace.worker.later import as_datetime

CLOCK_BACK_MS = 600_000
"""A periodic task that was last sent so far ahead of now was sent by a wrong clock."""


@dataclass(frozen=True, slots=True)
class Periodic:
    """A task that is sent by the clock."""

    name: str
    topic: str
    """By which the group knows it: its name depends on how the program was started (`__main__`)."""
    schedule: Cron | Interval
    write: Callable[[int], tuple[bytes | None, tuple[Header, ...]]]
    """The value and the headers of the record for a moment."""

    def last_ms(self, fired: Mapping[str, int], now_ms: int) -> int | None:
        """When it was last sent. None for a task that is new to the group, or that was sent by a wrong clock."""
        last_ms = fired.get(self.topic)
        return None if last_ms is None or last_ms > now_ms + CLOCK_BACK_MS else last_ms

    def due_ms(self, last_ms: int, now_ms: int) -> int | None:
        """The last of its moments since then, if there is one."""
        following = self.schedule.after(last_ms)
        return self.schedule.latest(now_ms) if following is not None and following <= now_ms else None


@dataclass(frozen=True, slots=True)
class Firing:
    """The body of a task that is declared with `@queue.every`."""

    name: str
    """The task's."""
    at: datetime
    """The moment for which it was sent, in UTC: the same for every worker, and each only once."""


def schedule_of(when: str | timedelta | float, zone: tzinfo | str) -> Cron | Interval:
    return Cron(when, zone) if isinstance(when, str) else Interval(when)


def periodic_of(name: str, topic: str, schedule: Cron | Interval, content_type: ContentType) -> Periodic:
    def write(moment_ms: int) -> tuple[bytes | None, tuple[Header, ...]]:
        value, headers = write_body(Firing(name, as_datetime(moment_ms)), content_type)
        return value, tuple(headers)

    return Periodic(name, topic, schedule, write)
