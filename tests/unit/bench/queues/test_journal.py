"""The journal of jobs: exact, or the run is void; and the rate over its own times."""

from pathlib import Path

import pytest

from bench.queues.jobs import work
from bench.queues.journal import NotExact, jobs_noted, rate, read, require_exact


def test_jobs_note_themselves_once_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "journal"
    monkeypatch.setenv(work.JOURNAL, str(path))
    assert jobs_noted(path) == 0
    journal = work.Journal()
    for number in (2, 0, 1):
        journal.note(number)
    assert jobs_noted(path) == 3
    entries = read(path)
    assert [number for number, _ in entries] == [2, 0, 1]
    assert sorted(time_ns for _, time_ns in entries) == [time_ns for _, time_ns in entries]
    require_exact(entries, jobs=3)


@pytest.mark.parametrize(
    ("numbers", "complaint"),
    [
        ([0, 1], "1 never ran"),
        ([0, 1, 2, 1], "1 ran more than once"),
        ([0, 1, 2, 7], "1 were nobody's"),
    ],
)
def test_a_job_that_ran_twice_never_or_is_unknown_voids_the_run(numbers: list[int], complaint: str) -> None:
    with pytest.raises(NotExact, match=complaint):
        require_exact([(number, 0) for number in numbers], jobs=3)


def test_the_rate_is_over_the_jobs_asked_for_alone() -> None:
    entries = [(0, 0), (1, 10**9), (2, 2 * 10**9), (3, 5 * 10**9), (4, 6 * 10**9)]
    assert rate(entries, first=0, jobs=3) == 1.0
    assert rate(entries, first=3, jobs=2) == 1.0


def test_no_ops_come_before_jobs_that_wait() -> None:
    assert list(work.jobs(2, 1)) == [(0, 0.0), (1, 0.0), (2, work.WAIT_S)]
