"""What consumers note is what the driver reads: every message at least once, each counted once, the rest told."""

import io
from pathlib import Path

import pytest

from bench.queues import deliver
from bench.queues.jobs import work
from bench.queues.journal import NotExact, deliveries_beyond_one, first_deliveries, rate, read
from bench.queues.messages import common
from bench.queues.messages.confirms import Confirms


@pytest.fixture
def shift(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> common.Shift:
    monkeypatch.setenv(work.JOURNAL, str(tmp_path / "journal"))
    return common.Shift()


def test_a_consumer_notes_the_numbers_of_a_batch_at_one_time(shift: common.Shift, tmp_path: Path) -> None:
    shift.note(common.message(number) for number in (7, 3, 2**40))
    shift.note([common.message(1)])
    entries = read(tmp_path / "journal")
    assert [number for number, _ in entries] == [7, 3, 2**40, 1]
    first, second, third, last = (time_ns for _, time_ns in entries)
    assert first == second == third <= last


def test_a_consumer_whose_driver_is_gone_does_not_begin(
    shift: common.Shift, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Ended:
        buffer = io.BufferedReader(io.BytesIO())  # type: ignore[arg-type]

    monkeypatch.setattr("sys.stdin", Ended())
    shift.begin()
    assert shift.is_over
    assert capsys.readouterr().out.strip() == common.READY


def test_every_message_is_in_one_batch_and_none_is_too_large() -> None:
    messages = 2 * common.AT_ONCE + 1
    batches = list(common.batches(messages))
    assert [len(batch) for batch in batches] == [common.AT_ONCE, common.AT_ONCE, 1]
    assert [common.number_of(body) for batch in batches for body in batch] == list(range(messages))
    assert {len(body) for batch in batches for body in batch} == {100}


def test_deliveries_after_the_first_are_counted() -> None:
    assert deliveries_beyond_one([(0, 1), (1, 2)], messages=2) == 0
    assert deliveries_beyond_one([(0, 1), (1, 2), (1, 3), (0, 4), (1, 5)], messages=2) == 3


@pytest.mark.parametrize(
    ("numbers", "complaint"),
    [([0, 2, 2], "1 never came"), ([0, 1, 2, 3], "1 were nobody's"), ([0, 1, -1, 2], "1 were nobody's")],
)
def test_a_message_that_never_came_or_was_never_sent_voids_the_run(
    numbers: list[int], complaint: str
) -> None:
    with pytest.raises(NotExact, match=complaint):
        deliveries_beyond_one([(number, 0) for number in numbers], messages=3)


def test_a_message_that_came_twice_counts_once_and_by_its_first_time() -> None:
    entries = [(1, 2 * 10**9), (0, 10**9), (0, 9 * 10**9), (2, 3 * 10**9)]
    firsts = first_deliveries(entries)
    assert sorted(firsts) == [(0, 10**9), (1, 2 * 10**9), (2, 3 * 10**9)]
    assert rate(firsts, first=0, jobs=3) == 1.0


def test_confirms_come_in_any_order_and_for_many() -> None:
    confirms = Confirms()
    counts = []
    for tag, is_multiple in [
        (2, False),
        (1, False),
        (6, False),
        (4, True),
        (3, False),
        (3, True),
        (5, False),
    ]:
        confirms.add(tag, is_multiple=is_multiple)
        counts.append(confirms.count)
    assert counts == [1, 2, 3, 5, 5, 5, 6]


def test_the_reader_is_told_of_what_came_twice() -> None:
    assert deliver._told({"a": 0, "b": 0}).endswith(": none.")
    assert deliver._told({"a": 0, "b": 3}).endswith(": b: 3.")
