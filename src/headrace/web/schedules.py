"""What the dashboard asks of a group's schedule: the records that a queue sends later.

The task queue keeps it, and `web` does not import `worker`: what starts a dashboard gives it `OpenSchedule`.
"""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import NamedTuple, Protocol


class ScheduledRecord(Protocol):
    @property
    def id(self) -> str: ...
    @property
    def at(self) -> datetime: ...
    @property
    def topic(self) -> str: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...


class ScheduledLook(NamedTuple):
    """What there was when it was looked at."""

    records: Sequence[ScheduledRecord]
    """Those that are due next."""
    total: int
    """All that were read."""
    is_whole: bool
    """How much is read is bounded. False: there are more than were read."""


class GroupSchedule(Protocol):
    @property
    def topic(self) -> str:
        """Where the records wait. It exists from the first one on."""

    def now_ms(self) -> int: ...

    async def look(self, most: int) -> ScheduledLook:
        """With so many records at most."""

    async def cancel(self, id: str) -> bool:
        """False when its time is over, so that it may have been sent. NotThere without such a schedule or record."""


OpenSchedule = Callable[[str], GroupSchedule]
"""The schedule of a group; the cluster is not asked yet."""
