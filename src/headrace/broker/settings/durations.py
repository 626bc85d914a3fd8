"""Durations as Kafka writes them, in ISO 8601: `PT1M`, `P1DT2H`, `PT0.5S` (`share.auto.offset.reset`)."""

import re

from headrace.base.settings import LONG_MAX, bounded_int

_NUMBER = r"([-+]?[0-9]+)"
_PATTERN = re.compile(
    rf"([-+]?)P(?:{_NUMBER}D)?(T(?:{_NUMBER}H)?(?:{_NUMBER}M)?(?:{_NUMBER}(?:[.,]([0-9]{{0,9}}))?S)?)?",
    re.IGNORECASE | re.ASCII,
)
_SECONDS = (86_400, 3_600, 60, 1)


def duration_ms(text: str) -> int | None:
    """As java.time.Duration reads it, in whole milliseconds; None for what it refuses, and for negative ones."""
    match = _PATTERN.fullmatch(text)
    if match is None:
        return None
    sign, days, times, hours, minutes, seconds, fraction = match.groups()
    parts = (days, hours, minutes, seconds)
    if times in ("T", "t") or all(part is None for part in parts):
        return None
    if any(bounded_int(part.lstrip("+-")) is None for part in parts if part):
        return None
    nanos = int((fraction or "").ljust(9, "0"))
    total = sum(int(part) * unit for part, unit in zip(parts, _SECONDS, strict=True) if part) * 10**9
    total += -nanos if (seconds or "").startswith("-") else nanos
    ms = (-total if sign == "-" else total) // 1_000_000
    return ms if 0 <= ms <= LONG_MAX else None
