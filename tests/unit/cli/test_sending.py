"""The figures of `produce --perf` are counted and written as kafka-producer-perf-test.sh does."""

import re

import pytest

from headrace.cli import sending
from headrace.cli.sending import Tally

LINE = re.compile(
    r"(\d+) records sent, [\d.]+ records/sec \([\d.]+ MB/sec\), ([\d.]+) ms avg latency, ([\d.]+) ms max latency"
)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> "list[float]":
    now = [0.0]
    monkeypatch.setattr(sending.time, "perf_counter", lambda: now[0])
    return now


def test_the_line_has_kafka_s_figures(clock: list[float]) -> None:
    tally = Tally(lambda _: None, None)
    tally.begin()
    for latency_ms in range(1, 101):
        clock[0] += 0.01
        tally.done(clock[0] - latency_ms / 1000, 2**20 // 100, None)
    assert tally.line() == (
        "100 records sent, 100.0 records/sec (1.00 MB/sec), 50.5 ms avg latency, 100.0 ms max latency, "
        "51 ms 50th, 96 ms 95th, 100 ms 99th, 100 ms 99.9th."
    )
    figures = tally.figures()
    assert (figures["records"], figures["records_per_second"], figures["latency_max_ms"]) == (
        100,
        100.0,
        100.0,
    )


def test_every_five_seconds_a_line_tells_of_the_time_since_the_last(clock: list[float]) -> None:
    lines: list[str] = []
    tally = Tally(lambda _: None, lines.append)
    tally.begin()
    for _ in range(12):
        clock[0] += 1
        tally.done(clock[0], 10, None)
    assert [LINE.match(line)[1] for line in lines] == ["5", "5"]  # type: ignore[index]


def test_only_what_was_acknowledged_counts_and_the_first_error_is_kept(clock: list[float]) -> None:
    moved: list[int] = []
    tally = Tally(moved.append, None)
    first, second = OSError("first"), OSError("second")
    tally.done(0, 10, None)
    tally.done(0, 10, first)
    tally.done(0, 10, second)
    assert (tally.acknowledged, tally.bytes, tally.error, moved) == (1, 10, first, [1])


def test_percentiles_of_many_records_keep_a_bounded_sample(
    clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sending, "LATENCIES_MAX", 100)
    tally = Tally(lambda _: None, None)
    for number in range(10_000):
        clock[0] = float(number)
        tally.done(clock[0] - number / 10_000, 1, None)
    assert len(tally._latencies) < 100
    assert tally.percentile_ms(0.5) == pytest.approx(500, rel=0.1)
