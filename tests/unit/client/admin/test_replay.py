"""Goal: what is read from the state topic is what the broker itself would load.

Method: small histories with known ends, and any history at all held against the broker's own replay.
"""

from hypothesis import given
from hypothesis import strategies as st

from headrace.broker.share.state_store import ShareStateStore, StoredState
from headrace.client.admin.replay import Replay
from headrace.share.changes import StateBatch
from headrace.share.states import RecordState
from headrace.wire.share_state import ShareKey, Snapshot, Update

KEY, OTHER = ShareKey("g", bytes(16), 0), ShareKey("g", bytes(16), 1)
AVAILABLE, ACKNOWLEDGED, ARCHIVED = RecordState.AVAILABLE, RecordState.ACKNOWLEDGED, RecordState.ARCHIVED


def snapshot(start_offset: int = 0, *batches: StateBatch, epoch: int = 0, complete: int = 0) -> Snapshot:
    return Snapshot(epoch, 1, 0, start_offset, complete, 1_000, 1_000, batches)


def update(start_offset: int, *batches: StateBatch, leader: int = -1, complete: int = 0) -> Update:
    return Update(0, leader, start_offset, complete, batches)


def played(*records: Snapshot | Update | None) -> Replay:
    replay = Replay()
    for record in records:
        replay.feed(KEY, record)
    return replay


def test_an_update_is_merged_into_its_snapshot() -> None:
    state = played(
        snapshot(0, StateBatch(0, 9, AVAILABLE, 1)),
        update(2, StateBatch(4, 5, ACKNOWLEDGED, 2), leader=3, complete=2),
    ).states[KEY]
    assert state.batches() == [
        StateBatch(2, 3, AVAILABLE, 1),
        StateBatch(4, 5, ACKNOWLEDGED, 2),
        StateBatch(6, 9, AVAILABLE, 1),
    ]
    assert (state.start_offset, state.leader_epoch, state.complete_count) == (2, 3, 2)


def test_what_an_update_does_not_say_stays() -> None:
    state = played(snapshot(5), update(-1, StateBatch(6, 6, ARCHIVED, 1), complete=1)).states[KEY]
    assert (state.start_offset, state.leader_epoch) == (5, 0)


def test_a_snapshot_replaces_all_that_came_before() -> None:
    state = played(
        snapshot(0), update(0, StateBatch(0, 9, AVAILABLE, 9)), snapshot(4, epoch=1, complete=-1)
    ).states[KEY]
    assert (state.start_offset, state.batches(), state.snapshot_epoch, state.complete_count) == (4, [], 1, -1)


def test_a_tombstone_ends_it() -> None:
    assert played(snapshot(0), None).states == {}
    assert played(None).states == {}


def test_an_update_without_its_snapshot_is_passed_over() -> None:
    assert played(update(3)).states == {}


def test_share_partitions_do_not_touch_each_other() -> None:
    replay = played(snapshot(1))
    replay.feed(OTHER, snapshot(2))
    replay.feed(OTHER, update(7))
    assert {key: state.start_offset for key, state in replay.states.items()} == {KEY: 1, OTHER: 7}


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
def test_any_history_ends_as_it_does_in_the_broker(history: list[Snapshot | Update]) -> None:
    stored: StoredState | None = None
    for record in [snapshot(-1), *history]:
        if isinstance(record, Snapshot):
            stored = ShareStateStore._from_snapshot(KEY, record, 0, 0)
        elif stored is not None:
            stored.apply(record)
    assert stored is not None
    replayed = played(snapshot(-1), *history).states[KEY]
    assert replayed.batches() == list(stored.merged())
    assert (replayed.start_offset, replayed.leader_epoch) == (stored.start_offset, stored.leader_epoch)
