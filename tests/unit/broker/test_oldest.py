"""The oldest record that a group has not settled, from what the group has written."""

import pytest

from headrace.broker.oldest import first_unsettled
from headrace.broker.share.state_store import StoredState
from headrace.share.changes import StateBatch
from headrace.share.states import RecordState


@pytest.mark.parametrize(
    ("batches", "expected"),
    [
        ([], 10),
        ([(10, 14, RecordState.ACKNOWLEDGED), (15, 19, RecordState.ARCHIVED)], 20),
        ([(10, 14, RecordState.ACKNOWLEDGED), (15, 19, RecordState.AVAILABLE)], 15),
        ([(10, 14, RecordState.ACKNOWLEDGED), (16, 19, RecordState.ACKNOWLEDGED)], 15),
        ([(12, 19, RecordState.ACKNOWLEDGED)], 10),
        ([(10, 19, RecordState.ARCHIVING)], 10),
    ],
)
def test_settled_records_right_after_the_written_start_are_not_the_oldest(
    batches: list[tuple[int, int, RecordState]], expected: int
) -> None:
    written = [StateBatch(first, last, state, 1) for first, last, state in batches]
    stored = StoredState(0, 0, 0, 10, 0, 0, 0, written, partition=0, snapshot_at=0)
    assert first_unsettled(stored) == expected
