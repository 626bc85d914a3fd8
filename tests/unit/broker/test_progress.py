"""A start that takes long says what it is doing."""

import logging

import pytest

from headrace.broker.progress import Progress


class Clock:
    def __init__(self) -> None:
        self.now_ms = 0

    def monotonic_ms(self) -> int:
        return self.now_ms

    def wall_ms(self) -> int:
        return self.now_ms


def test_a_start_of_more_than_two_seconds_says_what_it_does_and_how_far_it_is(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    clock = Clock()
    progress = Progress(clock)
    for number in range(1, 101):
        clock.now_ms += 50
        progress.note("checking the logs", number, "partitions", of=100)
    assert [record.getMessage() for record in caplog.records] == [
        "starting since 2 s: checking the logs, 40 of 100 partitions",
        "starting since 4 s: checking the logs, 80 of 100 partitions",
    ]


def test_a_quick_start_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    clock = Clock()
    progress = Progress(clock)
    for number in range(100):
        clock.now_ms += 19
        progress.note("reading a journal", number, "records")
    assert not caplog.records
