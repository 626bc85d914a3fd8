"""A window is drawn whole: no holes, states and deliveries counted, never too many runs."""

from dataclasses import replace

from headrace.share.states import RecordState
from headrace.share.view import SharePartitionState, StateRun
from headrace.web.windows import run_at, window_of

VIEW = SharePartitionState(
    group_id="g",
    topic="orders",
    topic_id="x",
    partition=0,
    start_offset=10,
    next_offset=20,
    state_epoch=0,
    leader_epoch=0,
    snapshot_epoch=0,
    delivery_complete_count=0,
    runs=(
        StateRun(8, 11, RecordState.AVAILABLE, 0),
        StateRun(12, 14, RecordState.ACQUIRED, 2, "ann", 5_000),
        StateRun(17, 18, RecordState.ARCHIVED, 5),
    ),
    log_start_offset=0,
    log_end_offset=30,
    is_live=True,
    window_max=100,
)


def drawn(view: SharePartitionState, **options: int) -> list[tuple[int, int, str]]:
    return [(run.first, run.last, run.state) for run in window_of(view, lag=None, **options).runs]


def test_holes_are_unknown_and_what_is_below_the_start_is_left_out() -> None:
    assert drawn(VIEW) == [
        (10, 11, "available"),
        (12, 14, "acquired"),
        (15, 16, "unknown"),
        (17, 18, "archived"),
        (19, 19, "unknown"),
    ]


def test_states_and_deliveries_are_counted_by_record() -> None:
    window = window_of(VIEW, lag=7, lock_timeouts=3)
    assert window.states == {"available": 2, "acquired": 3, "unknown": 3, "archived": 2}
    assert window.deliveries == {0: 5, 2: 3, 5: 2}
    assert (window.lag, window.lock_timeouts, window.in_flight, window.behind) == (7, 3, 10, 10)


def test_many_runs_are_gathered_and_show_the_most_telling_state() -> None:
    states = (RecordState.ACKNOWLEDGED, RecordState.ACQUIRED)
    runs = tuple(StateRun(offset, offset, states[offset % 2], offset % 5) for offset in range(1000))
    window = window_of(replace(VIEW, start_offset=0, next_offset=1000, runs=runs), lag=None, runs_max=10)
    assert (len(window.runs), window.runs_total) == (10, 1000)
    assert [(run.first, run.last) for run in window.runs][:2] == [(0, 99), (100, 199)]
    assert {(run.state, run.delivery_count, run.is_mixed) for run in window.runs} == {("acquired", 4, True)}


def test_a_window_that_has_not_begun_is_empty() -> None:
    assert drawn(replace(VIEW, start_offset=None, next_offset=None, runs=())) == []


def test_the_run_of_an_offset_is_found_and_none_outside() -> None:
    run = run_at(VIEW, 13)
    assert run is not None
    assert (run.holder, run.lock_ms_left, run.delivery_count) == ("ann", 5_000, 2)
    assert run_at(VIEW, 9) is None
    assert run_at(VIEW, 20) is None
