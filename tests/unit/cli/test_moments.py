"""A time is written in the same ways in every option that takes one."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
import typer

from headrace.cli.moments import parse_moment
from headrace.cli.starting_points import StartingPoint, parse_start


def test_a_time_without_a_zone_is_utc() -> None:
    assert parse_moment("2026-11-15T12:30:00.500", "--at") == datetime(2026, 11, 15, 12, 30, 0, 500_000, UTC)
    hour_ahead = timezone(timedelta(hours=1))
    assert parse_moment("2026-11-15T12:30+01:00", "--at") == datetime(2026, 11, 15, 12, 30, tzinfo=hour_ahead)


def test_milliseconds_and_dates_are_told_apart() -> None:
    assert parse_moment("1795032809591", "--at") == datetime(2026, 11, 18, 20, 13, 29, 591_000, UTC)
    assert parse_moment("20261115", "--at") == datetime(2026, 11, 15, tzinfo=UTC)


@pytest.mark.parametrize(("text", "seconds"), [("-90s", 90), ("-15m", 900), ("-2h", 7_200), ("-3d", 259_200)])
def test_a_time_may_be_so_long_ago(text: str, seconds: int) -> None:
    before = datetime.now(UTC)
    moment = parse_moment(text, "--at")
    assert before <= moment + timedelta(seconds=seconds) <= datetime.now(UTC)


@pytest.mark.parametrize("wrong", ["tomorrow", "-5", "-5w", "-99999999999999d", "9" * 30, "2026-13-01"])
def test_what_is_no_time_is_named_with_an_example(wrong: str) -> None:
    with pytest.raises(typer.BadParameter, match=f"'{wrong}' is not a valid time; expected 2026-") as refused:
        parse_moment(wrong, "--at")
    assert refused.value.param_hint == "--at"


def test_a_start_is_exact_to_the_millisecond() -> None:
    assert parse_start("@1795032809591") == StartingPoint(time_ms=1795032809591)
    assert parse_start("@1970-01-01T00:00:01") == StartingPoint(time_ms=1_000)
