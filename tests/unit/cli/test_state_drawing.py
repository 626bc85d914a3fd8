"""A window is drawn whole and in order: every offset once, the telling sign first, no more lines than asked for."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.cli.state_drawing import Kind, draw, legend, pieces_of, strip
from headrace.share.states import RecordState
from headrace.share.view import SharePartitionState, StateRun, WindowPiece


@pytest.fixture(autouse=True)
def _plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")


def state(
    *runs: StateRun,
    start: int | None = 0,
    next_offset: int | None = None,
    log_end: int = 10,
    is_live: bool = False,
) -> SharePartitionState:
    return SharePartitionState(
        group_id="kitchen",
        topic="orders",
        topic_id="",
        partition=1,
        start_offset=start,
        next_offset=runs[-1].last + 1 if next_offset is None and runs else next_offset,
        state_epoch=0,
        leader_epoch=0,
        snapshot_epoch=0,
        delivery_complete_count=None,
        runs=runs,
        log_start_offset=0,
        log_end_offset=log_end,
        is_live=is_live,
        window_max=2000 if is_live else None,
    )


def test_the_blog_s_record_that_was_given_up_after_five_deliveries() -> None:
    drawn = list(
        draw(
            state(StateRun(366, 366, RecordState.ARCHIVED, 5), start=366, log_end=368),
            lag=1,
            width=80,
        )
    )
    assert drawn == [
        "orders-1  starts at 366 · 1 record left to do · the log ends at 368",
        "  x…",
        "  366  archived      1 record  delivered 5 times",
        "  367  open          1 record",
    ]


def test_the_live_view_names_holder_and_time_left() -> None:
    run = StateRun(4, 9, RecordState.ACQUIRED, 1, "member-1", 12_340)
    drawn = "\n".join(draw(state(run, start=4, is_live=True), lag=6, width=80))
    assert "6 records of at most 2,000 in the window · 6 records left to do" in drawn
    assert "4-9  acquired      6 records  delivered once, by member-1, lock ends in 12.3 s" in drawn


def test_a_partition_that_gave_nothing_yet_says_so() -> None:
    assert list(draw(state(start=None, is_live=True), lag=None, width=80)) == [
        "orders-1  nothing was delivered yet · the log has 0-9"
    ]


def test_without_locks_nobody_knows_whether_a_member_holds_the_first_records() -> None:
    assert list(draw(state(start=None), lag=None, width=80)) == [
        "orders-1  no state is written: nothing was fetched, or nothing is settled · the log has 0-9"
    ]


def test_a_partition_where_nothing_was_answered_for_has_no_strip() -> None:
    assert list(draw(state(start=0), lag=10, width=80)) == [
        "orders-1  starts at 0 · 10 records left to do · the log ends at 10",
        "  0-9  open          10 records",
    ]


def test_an_empty_window_has_no_strip() -> None:
    assert list(draw(state(start=10), lag=0, width=80)) == [
        "orders-1  starts at 10 · nothing left to do · the log ends at 10"
    ]


def test_more_runs_than_asked_for_are_counted() -> None:
    runs = [
        StateRun(n, n, RecordState.ACKNOWLEDGED if n % 2 else RecordState.AVAILABLE, 1) for n in range(10)
    ]
    drawn = list(draw(state(*runs), lag=5, width=80, runs_max=3))
    assert len(drawn) == 2 + 3 + 1
    assert drawn[-1] == "  ... and 7 more runs (--runs 10 shows them all)"


def test_the_legend_explains_what_is_drawn_and_nothing_else() -> None:
    told = legend([state(StateRun(0, 9, RecordState.ACKNOWLEDGED, 1))])
    assert told == "■ acknowledged: done"


def test_a_sign_that_stands_for_several_offsets_shows_what_to_notice_first() -> None:
    pieces = [
        WindowPiece(0, 998, StateRun(0, 998, RecordState.ACKNOWLEDGED, 1)),
        WindowPiece(999, 999, StateRun(999, 999, RecordState.ACQUIRED, 1)),
    ]
    assert strip(pieces, 10) == "■" * 9 + "▒"


RUNS = st.lists(
    st.tuples(st.integers(0, 5), st.integers(1, 50), st.sampled_from(list(RecordState)), st.integers(1, 5)),
    max_size=12,
)


@given(RUNS, st.integers(0, 100), st.integers(0, 100), st.booleans(), st.integers(1, 120))
def test_every_offset_of_the_window_is_in_one_piece(
    given_runs: list[tuple[int, int, RecordState, int]], start: int, behind: int, is_live: bool, width: int
) -> None:
    runs, at = [], start
    for hole, length, what, deliveries in given_runs:
        runs.append(StateRun(at + hole, at + hole + length - 1, what, deliveries))
        at += hole + length
    shown = state(*runs, start=start, next_offset=at, log_end=at + behind, is_live=is_live)
    pieces = pieces_of(shown)
    covered = [offset for piece in pieces for offset in range(piece.first, piece.last + 1)]
    assert covered == list(range(start, at if is_live else at + behind))
    signs = re.sub(r"\x1b\[[0-9;]*m", "", strip(pieces, width))
    assert len(signs) == min(width, len(covered))
    assert set(signs) <= {kind.value.sign for kind in Kind}
