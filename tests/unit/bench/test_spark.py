"""What a query's micro-batches say: rates with and without the first, and the time of one."""

from dataclasses import replace

import pytest

from bench.spark.run import (
    CASES,
    CONTENDERS,
    TASKS,
    Planner,
    Rounds,
    _turns,
    apache_steps,
    default_window_steps,
    fitting_steps,
)
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
    steps = fitting_steps(CONTENDERS, Rounds(2), CASES)
    assert [(purpose, step.contender) for purpose, step in steps[:3]] == [("warm", who) for who in CONTENDERS]
    slow = {(step.contender, step.tasks) for purpose, step in steps if purpose == "slow"}
    assert slow == {(who, tasks) for who in CONTENDERS for tasks in TASKS}


@pytest.mark.parametrize("planner", [fitting_steps, default_window_steps, apache_steps])
def test_spark_s_source_takes_part_with_a_short_wait_too_where_the_end_of_the_log_is_reached(
    planner: Planner,
) -> None:
    reaching = {"drain", "middle", "partitions", "sizes", "queries", "first-row"}
    steps = planner(CONTENDERS, Rounds(1), CASES)
    by_case = {purpose.removesuffix(" in window"): set[str]() for purpose, _ in steps}
    for purpose, step in steps:
        by_case[purpose.removesuffix(" in window")].add(step.contender)
    assert all(SPARK_SHORT_WAIT in by_case[case] for case in reaching & by_case.keys())
    without_connector = planner((COMMIT, HANDOFF), Rounds(1), CASES)
    assert SPARK_SHORT_WAIT not in {step.contender for _, step in without_connector}


@pytest.mark.parametrize("case", CASES)
def test_a_case_that_is_named_runs_alone_with_all_its_rounds(case: str) -> None:
    settings = [
        steps
        for planner in (fitting_steps, default_window_steps, apache_steps)
        if (steps := planner(CONTENDERS, Rounds(6, is_chosen=True), [case]))
    ]
    assert settings
    for steps in settings:
        measured = [step for purpose, step in steps if purpose != "warm"]
        assert {purpose.removesuffix(" in window") for purpose, _ in steps} == {"warm", case}
        like_the_first = [
            step for step in measured if replace(step, topic="") == replace(measured[0], topic="")
        ]
        assert len(like_the_first) == 6


def test_a_topic_has_one_shape() -> None:
    for planner in (fitting_steps, default_window_steps, apache_steps):
        shapes: dict[str, set[tuple[int, int, int]]] = {}
        for _, step in planner(CONTENDERS, Rounds(2), CASES):
            shapes.setdefault(step.topic, set()).add((step.records, step.partitions, step.record_bytes))
        assert all(len(shape) == 1 for shape in shapes.values())
