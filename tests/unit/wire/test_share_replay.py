"""Replaying the state topic: small histories with known ends, and any history held against merging at every step.

tests/unit/broker/share/test_state_store.py compares a broker that loads a topic with a client that reads it.
"""

from hypothesis import given
from hypothesis import strategies as st

from headrace.share.changes import StateBatch
from headrace.share.merge import merge
from headrace.share.states import RecordState
from headrace.wire.share_replay import ReplayedState, replay
from headrace.wire.share_state import Snapshot, Update

AVAILABLE, ACKNOWLEDGED, ARCHIVED = RecordState.AVAILABLE, RecordState.ACKNOWLEDGED, RecordState.ARCHIVED


def snapshot(start_offset: int = 0, *batches: StateBatch, epoch: int = 0, complete: int = 0) -> Snapshot:
    return Snapshot(epoch, 1, 0, start_offset, complete, 1_000, 1_000, batches)


def update(start_offset: int, *batches: StateBatch, leader: int = -1, complete: int = 0) -> Update:
    return Update(0, leader, start_offset, complete, batches)


def played(*records: Snapshot | Update | None) -> ReplayedState | None:
    state: ReplayedState | None = None
    for record in records:
        state = replay(state, record, ReplayedState.of)
    return state


def ended(*records: Snapshot | Update | None) -> ReplayedState:
    state = played(*records)
    assert state is not None
    return state


def test_an_update_is_merged_into_its_snapshot() -> None:
    state = ended(
        snapshot(0, StateBatch(0, 9, AVAILABLE, 1)),
        update(2, StateBatch(4, 5, ACKNOWLEDGED, 2), leader=3, complete=2),
    )
    assert list(state.merged()) == [
        StateBatch(2, 3, AVAILABLE, 1),
        StateBatch(4, 5, ACKNOWLEDGED, 2),
        StateBatch(6, 9, AVAILABLE, 1),
    ]
    assert (state.start_offset, state.leader_epoch, state.complete_count) == (2, 3, 2)


def test_what_an_update_does_not_say_stays() -> None:
    state = ended(snapshot(5), update(-1, StateBatch(6, 6, ARCHIVED, 1), complete=1))
    assert (state.start_offset, state.leader_epoch) == (5, 0)


def test_a_snapshot_replaces_all_that_came_before() -> None:
    state = ended(snapshot(0), update(0, StateBatch(0, 9, AVAILABLE, 9)), snapshot(4, epoch=1, complete=-1))
    assert (state.start_offset, list(state.merged()), state.snapshot_epoch, state.complete_count) == (
        4,
        [],
        1,
        -1,
    )


def test_a_tombstone_ends_it() -> None:
    assert played(snapshot(0), None) is None
    assert played(None) is None


def test_an_update_without_its_snapshot_is_passed_over() -> None:
    assert played(update(3)) is None


batches = st.lists(
    st.builds(
        lambda first, size, state, count: StateBatch(first, first + size, state, count),
        st.integers(0, 40),
        st.integers(0, 10),
        st.sampled_from([AVAILABLE, ACKNOWLEDGED, RecordState.ARCHIVING, ARCHIVED]),
        st.integers(1, 5),
    ),
    max_size=4,
)
starts = st.integers(-1, 40)
histories = st.lists(
    st.one_of(
        st.builds(lambda start, some: snapshot(start, *some), starts, st.just([])),
        st.builds(
            lambda start, some, leader: update(start, *some, leader=leader),
            starts,
            batches,
            st.integers(-1, 3),
        ),
    ),
    max_size=12,
)


@given(history=histories)
def test_any_history_ends_as_if_it_were_merged_at_every_step(history: list[Snapshot | Update]) -> None:
    start, leader, kept = -1, 0, list[StateBatch]()
    for record in history:
        if isinstance(record, Snapshot):
            start, leader, kept = record.start_offset, record.leader_epoch, list(record.batches)
            continue
        start = start if record.start_offset == -1 else record.start_offset
        leader = leader if record.leader_epoch == -1 else record.leader_epoch
        kept = merge([*kept, *record.batches], start_offset=start)
    state = ended(snapshot(-1), *history)
    assert (state.start_offset, state.leader_epoch, list(state.merged())) == (start, leader, kept)
