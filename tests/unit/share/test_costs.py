"""What an operation costs must not depend on how much is in flight: counted in executed lines, not in time.

Method: windows of 1 thousand and of 10 thousand records, all held or every other one available, are built from one
acquisition and one acknowledgement; then the same fetch and the same answers are traced line by line.
"""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from headrace.share.modes import AcquireMode
from tests.unit.share.desk import ACCEPT, RELEASE, Desk, batches_of


def lines(action: Callable[[], object]) -> int:
    """How many lines of Python the action runs."""
    count = 0

    def trace(frame: FrameType, event: str, arg: object) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        action()
    finally:
        sys.settrace(before)
    return count


def in_flight(records: int, *, batch: int, is_alternating: bool) -> Desk:
    desk = Desk(batches_of(batch, records // batch), window_max=10**9)
    desk.fetch("holder", records_max=records, batch_size=batch)
    if is_alternating:
        desk.acknowledge((1, records - 2, [1, 2] * (records // 2 - 1)), member="holder")
    return desk


@pytest.mark.parametrize("batch", [1, 500])
@pytest.mark.parametrize("is_alternating", [False, True])
def test_fetching_and_answering_cost_the_same_however_much_is_in_flight(
    batch: int, is_alternating: bool
) -> None:
    costs = []
    for records in (1_000, 10_000):
        desk = in_flight(records, batch=batch, is_alternating=is_alternating)
        offset = desk.partition.next_fetch_offset()
        desk.log = batches_of(1, 500, offset)
        acquired: list[tuple[int, int, int]] = []

        def fetch(desk: Desk = desk, acquired: list[tuple[int, int, int]] = acquired) -> None:
            acquired += desk.fetch(records_max=250, mode=AcquireMode.RECORD_LIMIT)

        def answer(desk: Desk = desk, acquired: list[tuple[int, int, int]] = acquired) -> None:
            desk.acknowledge(*((first, last, ACCEPT) for first, last, _ in acquired[:100]))
            desk.acknowledge(*((first, last, RELEASE) for first, last, _ in acquired[100:]))

        costs.append((lines(fetch), lines(answer), lines(desk.partition.deadline_ms)))
        assert len(acquired) == (250 if is_alternating else 1)
    small, large = costs
    assert all(after <= 1.1 * before + 20 for before, after in zip(small, large, strict=True)), costs


def test_one_members_end_costs_what_it_holds() -> None:
    costs = []
    for records in (1_000, 10_000):
        desk = in_flight(records, batch=1, is_alternating=True)
        desk.now_ms = 1
        desk.fetch("m1", records_max=100, mode=AcquireMode.RECORD_LIMIT)
        costs.append(lines(lambda desk=desk: desk.close("m1")))
    assert costs[1] <= 1.1 * costs[0] + 20, costs
