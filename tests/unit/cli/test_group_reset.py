"""Topics and times of a reset are read as Apache's tool reads them."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
import typer

from headrace.cli.group_reset import parse_datetime, parse_topic


def test_a_topic_may_name_partitions() -> None:
    assert parse_topic("orders") == ["orders"]
    assert parse_topic("orders:0,2") == [("orders", 0), ("orders", 2)]


@pytest.mark.parametrize("wrong", ["orders:", "orders:x", "orders:1,"])
def test_what_is_no_topic_is_named(wrong: str) -> None:
    with pytest.raises(typer.BadParameter, match=wrong):
        parse_topic(wrong)


def test_a_time_without_a_zone_is_utc() -> None:
    assert parse_datetime("2026-11-15T12:30:00.500") == datetime(2026, 11, 15, 12, 30, 0, 500_000, UTC)
    hour_ahead = timezone(timedelta(hours=1))
    assert parse_datetime("2026-11-15T12:30+01:00") == datetime(2026, 11, 15, 12, 30, tzinfo=hour_ahead)


def test_what_is_no_time_is_named_with_an_example() -> None:
    with pytest.raises(typer.BadParameter, match="'tomorrow' is no time; write 2026-"):
        parse_datetime("tomorrow")
