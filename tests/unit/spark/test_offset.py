"""The offset's text: what it looks like, and what a checkpoint of somebody else gets."""

import json
from dataclasses import replace

import pytest

from headrace.client.delivery import AcknowledgeType
from headrace.spark.errors import CheckpointError
from headrace.spark.offset import AcquiredOffset, StateId
from headrace.spark.runs import Run, RunSet

OFFSET = AcquiredOffset(
    17,
    "g",
    "m",
    {"orders": "0a", "b": "0b"},
    RunSet.of([(("orders", 10), Run(0, 4, 1)), (("orders", 2), Run(7, 7, 2)), (("b", 0), Run(1, 2, 1))]),
    RunSet.of([(("orders", 2), Run(1, 1, 1, AcknowledgeType.REJECT)), (("orders", 2), Run(3, 5, 1))]),
    {("orders", 10): StateId(3, (7, 1_700_000_000_000)), ("orders", 2): StateId(4)},
)


def test_the_text_is_canonical_and_short() -> None:
    assert json.dumps(OFFSET.to_json(), separators=(",", ":")) == (
        '{"v":1,"seq":17,"g":"g","m":"m","t":{"b":"0b","orders":"0a"},'
        '"b":{"b":{"0":[[1,2,1]]},"orders":{"2":[[7,7,2]],"10":[[0,4,1]]}},'
        '"p":{"orders":{"2":[[1,1,1,3],[3,5,1]]}},"e":{"orders":{"2":[4],"10":[3,7,1700000000000]}}}'
    )


def test_a_checkpoint_from_before_state_epochs_were_kept_is_read() -> None:
    found = {key: value for key, value in OFFSET.to_json().items() if key != "e"}
    assert AcquiredOffset.from_json(found) == replace(OFFSET, states={})


def test_a_checkpoint_from_when_only_epochs_were_kept_is_read() -> None:
    found = OFFSET.to_json() | {"e": {"orders": {"2": 4}}}
    assert AcquiredOffset.from_json(found).states == {("orders", 2): StateId(4)}


def test_a_state_that_was_deleted_and_made_again_is_another_one_whatever_its_epoch() -> None:
    before = StateId(4, (2, 1_000))
    assert before.may_continue(before)
    assert before.may_continue(StateId(4)), "an earlier version did not log its snapshot"
    assert StateId(4, (3, 2_000)).may_continue(before), "it goes on"
    assert not StateId(4, (2, 2_000)).may_continue(before)
    assert not StateId(4, (0, 2_000)).may_continue(before)
    assert not StateId(5, (3, 2_000)).may_continue(before)
    assert not StateId(4, (3, 2_000), keeps_time=True).may_continue(before)
    assert StateId(4, (3, 1_000), keeps_time=True).may_continue(before)


def test_a_newer_version_is_refused_with_the_cure() -> None:
    with pytest.raises(CheckpointError, match=r"version 2.*Install"):
        AcquiredOffset.from_json({**OFFSET.to_json(), "v": 2})


@pytest.mark.parametrize(
    "found", [{"orders": {"0": 23}}, {}, {"v": 1, "seq": 2}, {**OFFSET.to_json(), "x": 1}]
)
def test_an_offset_of_another_source_is_refused_with_the_cure(found: dict[str, object]) -> None:
    with pytest.raises(CheckpointError, match="checkpointLocation of its own"):
        AcquiredOffset.from_json(found)


@pytest.mark.parametrize("runs", [[[5, 4, 1]], [[-1, 4, 1]], [[1]], [[1, 2, 1, 9]], [[1, 2, 1, 3, 3]], "x"])
def test_a_damaged_offset_is_refused(runs: object) -> None:
    with pytest.raises(CheckpointError, match="damaged"):
        AcquiredOffset.from_json({**OFFSET.to_json(), "b": {"orders": {"0": runs}}})
