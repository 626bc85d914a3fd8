"""The offset algebra against sets of single offsets, and the text against itself."""

import json

from hypothesis import given
from hypothesis import strategies as st

from headrace.client.delivery import AcknowledgeType
from headrace.spark.offset import AcquiredOffset, StateId
from headrace.spark.runs import Run, RunSet
from headrace.wire.ids import TopicAndPartition

PLACES = [("orders", 0), ("orders", 10), ("orders", 2), ("emails", 0)]
OUTCOMES = [AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT]

runs = st.builds(
    lambda first, length, deliveries, outcome: Run(first, first + length, deliveries, outcome),
    st.integers(0, 40),
    st.integers(0, 8),
    st.integers(1, 3),
    st.sampled_from(OUTCOMES),
)
placed_runs = st.lists(st.tuples(st.sampled_from(PLACES), runs), max_size=12)

Model = dict[tuple[TopicAndPartition, int], tuple[int, AcknowledgeType]]


def model_of(placed: list[tuple[TopicAndPartition, Run]] | RunSet) -> Model:
    return {
        (place, offset): (run.delivery_count, run.outcome)
        for place, run in placed
        for offset in range(run.first, run.last + 1)
    }


@given(placed_runs)
def test_a_set_holds_each_record_once_as_it_was_last_described(
    placed: list[tuple[TopicAndPartition, Run]],
) -> None:
    found = RunSet.of(placed)
    assert model_of(found) == model_of(placed)
    assert found.record_count == len(model_of(placed))


@given(placed_runs)
def test_equal_records_make_equal_sets_and_equal_text(placed: list[tuple[TopicAndPartition, Run]]) -> None:
    found = RunSet.of(placed)
    one_by_one = RunSet.of(
        (place, Run(offset, offset, *what)) for (place, offset), what in reversed(model_of(placed).items())
    )
    assert found == one_by_one
    assert text(found) == text(one_by_one)


@given(placed_runs, placed_runs)
def test_union_keeps_what_the_other_says(
    left: list[tuple[TopicAndPartition, Run]], right: list[tuple[TopicAndPartition, Run]]
) -> None:
    united = RunSet.of(left).replaced_by(RunSet.of(right))
    assert united == RunSet.of([*left, *right])


@given(placed_runs, placed_runs)
def test_minus_and_within_cut_a_set_in_two(
    left: list[tuple[TopicAndPartition, Run]], right: list[tuple[TopicAndPartition, Run]]
) -> None:
    mine, other = RunSet.of(left), RunSet.of(right)
    theirs = model_of(other)
    assert model_of(mine.within(other)) == {
        key: what for key, what in model_of(mine).items() if key in theirs
    }
    assert model_of(mine.minus(other)) == {
        key: what for key, what in model_of(mine).items() if key not in theirs
    }
    assert mine.minus(other).replaced_by(mine.within(other)) == mine


@given(placed_runs, st.integers(0, 60), st.integers(0, 12))
def test_take_obeys_both_limits_and_takes_from_the_front(
    placed: list[tuple[TopicAndPartition, Run]], records_max: int, runs_max: int
) -> None:
    found = RunSet.of(placed)
    taken = found.take(records_max=records_max, runs_max=runs_max)
    assert taken.record_count <= records_max
    assert taken.run_count <= runs_max
    assert taken.within(found) == taken
    for place in taken.places:
        left = found.minus(taken).at(place)
        assert not left or left[0].first > taken.at(place)[-1].last


@given(placed_runs, st.integers(0, 200))
def test_take_leaves_nothing_that_fits(placed: list[tuple[TopicAndPartition, Run]], records_max: int) -> None:
    found = RunSet.of(placed)
    assert found.take(records_max=records_max).record_count == min(records_max, found.record_count)


@given(placed_runs, placed_runs, st.integers(0, 1 << 40), st.text(max_size=8))
def test_an_offset_survives_its_text(
    batch: list[tuple[TopicAndPartition, Run]],
    processed: list[tuple[TopicAndPartition, Run]],
    sequence: int,
    member: str,
) -> None:
    offset = AcquiredOffset(
        sequence,
        "group",
        member,
        {"orders": "aa", "emails": "bb"},
        RunSet.of(batch),
        RunSet.of(processed),
        {place: StateId(sequence, (run.last, run.first) if run.first else None) for place, run in processed},
    )
    written = json.dumps(offset.to_json())
    again = AcquiredOffset.from_json(json.loads(written))
    assert again == offset
    assert json.dumps(again.to_json()) == written


def text(batch: RunSet) -> str:
    return json.dumps(AcquiredOffset(1, "g", batch=batch).to_json())
