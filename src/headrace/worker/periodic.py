"""Tasks that are sent by the clock: what their functions get, and what the forwarder sends."""

from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo

from headrace.worker.bodies import ContentType, Header, write_body
from headrace.worker.cron import Cron, Interval
from headrace.worker.forwarder import Periodic, PeriodicSchedule
from headrace.worker.later import as_datetime


@dataclass(frozen=True, slots=True)
class Firing:
    """The body of a task that is declared with `@queue.every`."""

    name: str
    """The task's."""
    at: datetime
    """The moment for which it was sent, in UTC: the same for every worker, and each only once."""


def schedule_of(when: str | timedelta | float, zone: tzinfo | str) -> PeriodicSchedule:
    return Cron(when, zone) if isinstance(when, str) else Interval(when)


def periodic_of(name: str, topic: str, schedule: PeriodicSchedule, content_type: ContentType) -> Periodic:
    def write(moment_ms: int) -> tuple[bytes | None, tuple[Header, ...]]:
        value, headers = write_body(Firing(name, as_datetime(moment_ms)), content_type)
        return value, tuple(headers)

    return Periodic(name, topic, schedule, write)
