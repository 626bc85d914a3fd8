"""Times as options take them: `2026-11-15T12:30`, `-15m`, milliseconds since 1970. Text in, a datetime out."""

import re
from datetime import UTC, datetime, timedelta

import typer

AGO = re.compile(r"-(\d+)(s|m|h|d)")
SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MS = timedelta(milliseconds=1)


def parse_moment(text: str, option: str) -> datetime:
    """Without a zone it is UTC, as for Apache's tools."""
    try:
        moment = _moment(text)
    except (ValueError, OverflowError):
        raise typer.BadParameter(
            f"{text!r} is not a valid time; expected 2026-11-15T12:30 (UTC), 2026-11-15T12:30+01:00, -15m "
            "(15 minutes ago), or milliseconds since 1970",
            param_hint=option,
        ) from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _moment(text: str) -> datetime:
    ago = AGO.fullmatch(text)
    if ago is not None:
        return datetime.now(UTC) - timedelta(seconds=int(ago[1]) * SECONDS[ago[2]])
    if text.isdecimal() and len(text) > 8:  # 20261115 is a date
        return EPOCH + int(text) * MS
    return datetime.fromisoformat(text)
