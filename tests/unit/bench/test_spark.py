"""What a query's micro-batches say: rates with and without the first, and the time of one."""

import pytest

from bench.spark.run import CONTENDERS, TASKS, _fitting_steps, _turns
from bench.spark.steps import COMMIT, HANDOFF, SPARK_SHORT_WAIT, Ran

RAN = Ran.from_json(
    {
        "batches": [[100, 2_000, 400], [100, 500, 200], [50, 100, 60], [50, 300, 60], [100, 100, 80]],
        "wall_s": 4.0,
    }
)


def test_a_rate_counts_every_trigger_and_a_steady_one_not_the_first() -> None:
    assert RAN.rate == pytest.approx(400 / 3.0)
    assert RAN.steady_rate == pytest.approx(300 / 1.0)


def test_the_rate_within_a_backlog_leaves_out_the_first_and_the_last() -> None:
    assert RAN.middle_rate == pytest.approx(200 / 0.9)


def test_the_tasks_have_a_rate_of_their_own() -> None:
    assert RAN.tasks_rate == pytest.approx(400 / 0.8)


def test_the_time_of_a_micro_batch_is_the_median_of_the_warm_ones() -> None:
    assert RAN.trigger_ms == 100


def test_every_second_round_goes_the_other_way() -> None:
    assert _turns(["a", "b"], 3) == ["a", "b", "b", "a", "a", "b"]


def test_every_contender_is_warmed_before_it_is_measured_and_does_the_slow_work_with_all_tasks() -> None:
    steps = _fitting_steps(CONTENDERS, rounds=2)
    assert [(purpose, step.contender) for purpose, step in steps[:3]] == [("warm", who) for who in CONTENDERS]
    slow = {(step.contender, step.tasks) for purpose, step in steps if purpose == "slow"}
    assert slow == {(who, tasks) for who in CONTENDERS for tasks in TASKS}


def test_spark_s_source_takes_part_with_a_short_wait_too_where_the_end_of_the_log_is_reached() -> None:
    steps = _fitting_steps(CONTENDERS, rounds=1)
    for wanted in ("drain", "middle"):
        assert SPARK_SHORT_WAIT in {step.contender for purpose, step in steps if purpose == wanted}
    without_connector = _fitting_steps((COMMIT, HANDOFF), rounds=1)
    assert SPARK_SHORT_WAIT not in {step.contender for _, step in without_connector}
