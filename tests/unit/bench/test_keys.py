"""The judge of the contest of order by key: what counts, and what makes a run void."""

import threading
import time
from pathlib import Path

import pytest

from bench.keys.journal import (
    Journal,
    KeyRun,
    OutOfOrder,
    most_at_once,
    noted,
    rate,
    read,
    require_order,
)
from bench.keys.run import KEYS, keys
from bench.queues.journal import NotExact

KEY_OF = [0, 1, 0]


def test_records_of_a_key_one_after_another_and_others_beside_them_are_in_order() -> None:
    require_order([KeyRun(1, 0, 100), KeyRun(2, 20, 30), KeyRun(0, 10, 20)], KEY_OF)


@pytest.mark.parametrize("began_ns", [19, 5])
def test_a_record_that_begins_before_the_one_before_it_has_ended_voids_the_run(began_ns: int) -> None:
    with pytest.raises(OutOfOrder, match=r"record 2 of key 0 began .* before record 0 of that key had ended"):
        require_order([KeyRun(0, 10, 20), KeyRun(1, 0, 1), KeyRun(2, began_ns, 30)], KEY_OF)


def test_records_of_a_key_in_the_wrong_order_void_the_run() -> None:
    with pytest.raises(OutOfOrder):
        require_order([KeyRun(2, 0, 10), KeyRun(0, 10, 20), KeyRun(1, 0, 1)], KEY_OF)


@pytest.mark.parametrize("numbers", [[0, 1], [0, 1, 2, 2], [0, 1, 2, 3]])
def test_a_record_that_did_not_run_once_voids_the_run(numbers: list[int]) -> None:
    with pytest.raises(NotExact):
        require_order([KeyRun(number, place, place) for place, number in enumerate(numbers)], KEY_OF)


def test_the_rate_leaves_out_the_first_records() -> None:
    slow_at_first = [KeyRun(number, 0, second * 10**9) for number, second in enumerate((0, 50, 60, 61, 62))]
    assert rate(slow_at_first, warm=0.4) == 1.0


def test_runs_at_the_same_time_are_counted() -> None:
    assert most_at_once([KeyRun(0, 0, 10), KeyRun(1, 5, 15), KeyRun(2, 10, 20)]) == 2


def test_what_threads_note_is_read_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    assert noted(path) == 0
    journal = Journal(str(path))
    before_ns = time.monotonic_ns()
    threads = [threading.Thread(target=journal.note, args=(number, number)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    runs = read(path)
    assert noted(path) == len(runs) == 20
    assert sorted((run.number, run.began_ns) for run in runs) == [(number, number) for number in range(20)]
    assert all(before_ns <= run.ended_ns <= time.monotonic_ns() for run in runs)


def test_every_run_has_the_same_keys_and_many_of_them() -> None:
    assert keys(5_000) == keys(5_000)
    assert len(set(keys(20_000))) == KEYS
