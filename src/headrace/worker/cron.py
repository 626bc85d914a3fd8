"""When a periodic task is due: five cron fields, or a fixed interval. Pure.

`Cron("*/5 9-17 * * mon-fri")` has minute, hour, day of month, month and day of week (0 and 7 are Sunday); lists,
ranges, steps, and names of months and days. As in Vixie cron, a day matches if either field of days does when both are
restricted. Times are of a time zone. A time that the clocks skip in spring comes right after the gap; one that they
repeat in autumn comes once, unless the expression is for every hour: then it comes in both hours, so that a task of
every five minutes does not stand still for an hour.
"""

from bisect import bisect_right
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

MONTHS = {
    name: number
    for number, name in enumerate(
        ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"), 1
    )
}
DAYS = {name: n for n, name in enumerate(["sun", "mon", "tue", "wed", "thu", "fri", "sat"])}
SHORTCUTS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
FIELDS: tuple[tuple[str, int, int, dict[str, int]], ...] = (
    ("minute", 0, 59, {}),
    ("hour", 0, 23, {}),
    ("day of month", 1, 31, {}),
    ("month", 1, 12, MONTHS),
    ("day of week", 0, 7, DAYS),
)
ONE_DAY = timedelta(days=1)
YEARS_MAX = 9
"""The longest time between two matches: February 29, around 2100."""
DAYS_KEPT = 8
"""Days whose moments are not computed again: those around now."""


class Cron:
    def __init__(self, expression: str, zone: tzinfo | str = UTC) -> None:
        self.expression = expression
        self._zone = _zone_of(zone)
        parts = SHORTCUTS.get(expression.strip().lower(), expression).split()
        if len(parts) != 5:
            raise ValueError(
                f"{expression!r} is not a cron expression: expected five fields (minute, hour, day of month, month, "
                "day of week), such as '*/5 * * * *'"
            )
        minutes, hours, days, months, weekdays = (
            _values(part, *field, expression) for part, field in zip(parts, FIELDS, strict=True)
        )
        self._times = [(hour, minute) for hour in sorted(hours) for minute in sorted(minutes)]
        self._days, self._months = days, months
        self._weekdays = {weekday % 7 for weekday in weekdays}
        self._is_hourly = len(hours) == 24
        self._moments: dict[date, list[int]] = {}
        self._is_either = not parts[2].startswith("*") and not parts[4].startswith("*")
        if self.after(0) is None:
            raise ValueError(f"{expression!r} never matches: there is no such day")

    def after(self, moment_ms: int) -> int | None:
        """The first match after this moment (ms since 1970)."""
        found: list[int] = []
        # From the day before: clocks may have gone back over midnight.
        for day in self._days_from(self._day_of(moment_ms) - ONE_DAY):
            moments = self._moments_of(day)
            if (place := bisect_right(moments, moment_ms)) < len(moments):
                found.append(moments[place])
            if len(found) == 2:  # for the same reason: of two days, the later may come first
                break
        return min(found, default=None)

    def latest(self, now_ms: int) -> int | None:
        """The last match up to this moment."""
        found: list[int] = []
        for day in self._days_back(self._day_of(now_ms) + ONE_DAY):
            moments = self._moments_of(day)
            if place := bisect_right(moments, now_ms):
                found.append(moments[place - 1])
            if len(found) == 2:
                break
        return max(found, default=None)

    def _day_of(self, moment_ms: int) -> date:
        return datetime.fromtimestamp(moment_ms / 1000, self._zone).date()

    def _moments_of(self, day: date) -> list[int]:
        """The matches of a day that matches, in order."""
        if day not in self._moments:
            if len(self._moments) >= DAYS_KEPT:
                self._moments.clear()
            self._moments[day] = sorted(set(self._compute(day)))
        return self._moments[day]

    def _compute(self, day: date) -> Iterator[int]:
        for hour, minute in self._times:
            first = datetime(day.year, day.month, day.day, hour, minute, tzinfo=self._zone)
            first_ms = round(first.timestamp() * 1000)
            yield first_ms
            if self._is_hourly:
                again_ms = round(first.replace(fold=1).timestamp() * 1000)
                if again_ms > first_ms:  # else it does not come twice
                    yield again_ms

    def _days_from(self, day: date) -> Iterator[date]:
        end = day.replace(year=day.year + YEARS_MAX, day=1)
        while day <= end:
            if day.month not in self._months:
                day = (day.replace(day=1) + timedelta(days=32)).replace(day=1)
                continue
            if self._matches(day):
                yield day
            day += ONE_DAY

    def _days_back(self, day: date) -> Iterator[date]:
        end = day.replace(year=day.year - YEARS_MAX, day=1)
        while day >= end:
            if day.month not in self._months:
                day = day.replace(day=1) - ONE_DAY
                continue
            if self._matches(day):
                yield day
            day -= ONE_DAY

    def _matches(self, day: date) -> bool:
        of_month, of_week = day.day in self._days, day.isoweekday() % 7 in self._weekdays
        return of_month or of_week if self._is_either else of_month and of_week


class Interval:
    """Every so many seconds, counted from 1970: the same moments for every worker."""

    def __init__(self, interval: timedelta | float) -> None:
        seconds = interval.total_seconds() if isinstance(interval, timedelta) else interval
        is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
        if not is_number or not 1 <= seconds <= 366 * 86_400:
            raise ValueError(f"every() needs an interval from 1 second to a year, got {interval!r}")
        self._step_ms = round(seconds * 1000)

    def after(self, moment_ms: int) -> int:
        return (moment_ms // self._step_ms + 1) * self._step_ms

    def latest(self, now_ms: int) -> int:
        return now_ms // self._step_ms * self._step_ms


def _zone_of(zone: tzinfo | str) -> tzinfo:
    """None would be the time of the machine: other workers may have another one."""
    try:
        found = ZoneInfo(zone) if isinstance(zone, str) else zone
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ValueError(f"the time zone {zone!r} is not available: {error}") from error
    if not isinstance(found, tzinfo):
        raise ValueError(f"timezone must be a name such as 'Europe/Berlin' or a tzinfo, got {zone!r}")
    return found


def _values(part: str, name: str, low: int, high: int, names: dict[str, int], whole: str) -> set[int]:
    found: set[int] = set()
    for piece in part.lower().split(","):
        base, slash, step_text = piece.partition("/")
        first, dash, last = base.partition("-")
        try:
            step = _number(step_text, {}) if slash else 1
            begin = low if base == "*" else _number(first, names)
            end = high if base == "*" or (slash and not dash) else _number(last, names) if dash else begin
        except ValueError:
            raise ValueError(f"{whole!r} is not a cron expression: {piece!r} is not a {name}") from None
        if not (low <= begin <= end <= high and step >= 1):
            raise ValueError(
                f"{whole!r} is not a cron expression: {piece!r} is not a {name} from {low} to {high}"
            )
        found.update(range(begin, end + 1, step))
    return found


def _number(text: str, names: dict[str, int]) -> int:
    if text in names:
        return names[text]
    if not (text.isascii() and text.isdigit()):  # int() takes more: +1, 1_0, digits of other scripts
        raise ValueError(text)
    return int(text)
