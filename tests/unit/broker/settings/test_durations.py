"""Durations as java.time.Duration reads them; what it says was seen by running it."""

import pytest

from headrace.broker.settings.durations import duration_ms


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("PT1M", 60_000),
        ("pt1m", 60_000),
        ("PT+1M", 60_000),
        ("P1DT2H", 93_600_000),
        ("PT0.5S", 500),
        ("PT0,5S", 500),
        ("PT1.S", 1000),
        ("PT0S", 0),
        ("PT1M-30S", 30_000),
        ("-PT-1M", 60_000),
        ("PT0.0009S", 0),
    ],
)
def test_a_duration_is_read(text: str, ms: int) -> None:
    assert duration_ms(text) == ms


@pytest.mark.parametrize(
    "text",
    ["", "P", "PT", "P1DT", "1M", "P1M", "P1W", "PT1", "PT-1M", "-PT1M", "PT0.1234567890S", "P1D2H", "PT1M ",
     "PT٣M", "P999999999999999999D", f"PT{'9' * 5000}S", f"P{'9' * 5000}DT1S"],
)  # fmt: skip
def test_what_is_no_duration_or_a_negative_one_is_refused(text: str) -> None:
    assert duration_ms(text) is None
