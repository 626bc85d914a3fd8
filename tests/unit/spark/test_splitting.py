"""Cutting a micro-batch into tasks: every record in one task, tasks of equal size, few of them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.spark.runs import Run, RunSet
from headrace.spark.splitting import BYTES_PER_TASK, ROWS_PER_TASK, Piece, SplitHints, hulls, split

IDS = {"a": "id-a", "b": "id-b"}


def rows(task: tuple[Piece, ...]) -> int:
    return sum(run.size for piece in task for run in piece.runs)


def one_run(count: int) -> RunSet:
    return RunSet.of([(("a", 0), Run(0, count - 1, 1))])


def test_nothing_makes_no_task() -> None:
    assert split(RunSet(), IDS, SplitHints()) == []


def test_a_small_micro_batch_is_one_task_however_many_cores_there_are() -> None:
    assert len(split(one_run(100), IDS, SplitHints(cores=16))) == 1


def test_a_large_one_is_cut_for_the_cores_there_are() -> None:
    assert [rows(task) for task in split(one_run(4 * ROWS_PER_TASK), IDS, SplitHints(cores=2))] == [
        2 * ROWS_PER_TASK
    ] * 2


def test_a_few_large_records_are_cut_as_many_small_ones_are() -> None:
    large = BYTES_PER_TASK / 1_000
    assert [
        rows(task) for task in split(one_run(4_000), IDS, SplitHints(cores=2, bytes_per_record=large))
    ] == [2_000] * 2
    assert len(split(one_run(1_000), IDS, SplitHints(cores=2, bytes_per_record=large))) == 1
    assert len(split(one_run(1), IDS, SplitHints(cores=2, bytes_per_record=1e12))) == 1


def test_one_partition_can_be_cut_into_many_tasks() -> None:
    tasks = split(one_run(100), IDS, SplitHints(partitions_min=8))
    assert len(tasks) == 8
    assert max(map(rows, tasks)) == 13


@pytest.mark.parametrize(("count", "least"), [(20, 16), (100, 64), (10, 8), (10_001, 10_000)])
def test_there_are_at_least_as_many_tasks_as_wanted(count: int, least: int) -> None:
    assert len(split(one_run(count), IDS, SplitHints(partitions_min=least))) == least


def test_with_fewer_records_than_wanted_tasks_each_task_has_one() -> None:
    assert [rows(task) for task in split(one_run(3), IDS, SplitHints(partitions_min=8))] == [1, 1, 1]


def test_no_task_has_more_records_than_allowed() -> None:
    tasks = split(one_run(100), IDS, SplitHints(partitions_min=2, records_per_partition=30))
    assert [rows(task) for task in tasks] == [25, 25, 25, 25]


def test_small_partitions_share_a_task() -> None:
    runs = RunSet.of((("a", partition), Run(0, 9, 1)) for partition in range(20))
    (task,) = split(runs, IDS, SplitHints(cores=4))
    assert [piece.partition for piece in task] == list(range(20))


@given(
    st.lists(
        st.tuples(
            st.sampled_from([("a", 0), ("a", 1), ("b", 0)]),
            st.integers(0, 500),
            st.integers(0, 60),
            st.integers(1, 2),
        ),
        max_size=12,
    ),
    st.integers(1, 9),
    st.none() | st.integers(1, 40),
)
def test_every_record_is_in_exactly_one_task(
    given_runs: list[tuple[tuple[str, int], int, int, int]], partitions_min: int, records_max: int | None
) -> None:
    runs = RunSet.of((place, Run(first, first + more, count)) for place, first, more, count in given_runs)
    tasks = split(runs, IDS, SplitHints(partitions_min, records_max))
    pieces = [piece for task in tasks for piece in task]
    found = RunSet.of(((piece.topic, piece.partition), run) for piece in pieces for run in piece.runs)
    assert found == runs
    assert sum(map(rows, tasks)) == runs.record_count
    assert all(map(rows, tasks))
    assert len(tasks) >= min(partitions_min, runs.record_count)
    assert not tasks or max(map(rows, tasks)) - min(map(rows, tasks)) <= 1
    assert all(rows(task) <= (records_max or runs.record_count) for task in tasks)
    assert all(piece.topic_id == IDS[piece.topic] for piece in pieces)


def test_runs_with_little_between_them_are_read_in_one_go() -> None:
    runs = (Run(0, 9, 1), Run(15, 20, 2), Run(22, 22, 1), Run(40, 50, 1))
    assert list(hulls(runs, gap_max=5)) == [runs[:3], runs[3:]]
    assert list(hulls(runs, gap_max=100)) == [runs]
    assert list(hulls((), gap_max=5)) == []
