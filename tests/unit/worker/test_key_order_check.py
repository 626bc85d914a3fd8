"""The check of the order of keys finds what it is for."""

import pytest

from tests.key_order import RunEvent, done_of, violations


def events(*lines: str) -> list[RunEvent]:
    return [RunEvent.parse(line) for line in lines]


RIGHT = ["1 7 begin 0 0", "2 7 end 0 0", "3 8 begin 0 1", "4 8 end 0 1"]


def test_one_after_another_is_right():
    assert violations(events(*RIGHT)) == []
    assert done_of(events(*RIGHT)) == {(0, 0), (0, 1)}


def test_what_a_killed_worker_did_may_be_run_again_in_order():
    again = ["5 9 begin 0 0", "6 9 end 0 0", "7 9 begin 0 1", "8 9 end 0 1", "9 9 begin 0 2"]
    assert violations(events(*RIGHT, *again)) == []
    assert violations(events("1 7 begin 0 0", "3 8 begin 0 0"), killed={7: 2.0}) == []


@pytest.mark.parametrize(
    "lines",
    [
        ["1 7 begin 0 0", "2 8 begin 0 0"],
        ["1 7 begin 0 0", "2 8 begin 0 1", "3 7 end 0 0"],
        ["1 7 begin 0 1"],
        [*RIGHT, "5 9 begin 0 3"],
        [
            "1 7 begin 0 0",
            "2 7 end 0 0",
            "3 7 begin 0 1",
            "4 7 end 0 1",
            "5 8 begin 0 0",
            "6 8 end 0 0",
            "7 8 begin 0 2",
        ],
    ],
)
def test_what_is_out_of_order_is_found(lines):
    assert violations(events(*lines)), lines


def test_a_run_that_began_before_the_other_worker_was_gone_is_found():
    assert violations(events("1 7 begin 0 0", "3 8 begin 0 0"), killed={7: 4.0})
