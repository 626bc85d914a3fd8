"""Records released without an acknowledgement, by locks, sessions and the log start.

The rules are under "Locks", "What releases records" and "When the log start moves" in
docs/concepts/share-semantics.md.
"""

from headrace.share.states import RecordState as S
from tests.unit.share.desk import ACCEPT, RELEASE, RENEW, Desk, batches_of


def test_an_expired_lock_makes_the_record_available_again() -> None:
    desk = Desk([(0, 4)])
    assert desk.partition.deadline_ms() is None
    desk.fetch()
    assert desk.partition.deadline_ms() == 30_000
    desk.wait(29_999)
    assert desk.fetch("m2") == []
    desk.wait(1)
    assert desk.partition.deadline_ms() is None
    assert desk.fetch("m2") == [(0, 4, 2)]
    assert desk.written() == [(0, 0, [(0, 4, 0, 1)])]


def test_a_lock_lasts_as_long_as_the_group_said_when_it_was_taken() -> None:
    desk = Desk([(0, 4), (5, 9)])
    desk.fetch(records_max=5)
    desk.limits = Desk([], lock_ms=1_000).limits
    desk.fetch(records_max=5)
    assert desk.partition.deadline_ms() == 1_000
    desk.wait(1_000)
    assert desk.states()[0] == (S.ACQUIRED, 1)
    assert desk.states()[5] == (S.AVAILABLE, 1)
    assert desk.partition.deadline_ms() == 30_000


def test_parts_of_a_split_range_keep_the_time_they_had_left() -> None:
    desk = Desk([(0, 9)])
    desk.fetch()
    desk.wait(20_000)
    desk.acknowledge((4, 5, ACCEPT))
    assert desk.partition.deadline_ms() == 30_000
    desk.wait(10_000)
    assert desk.states()[0] == desk.states()[9] == (S.AVAILABLE, 1)


def test_expiring_at_the_delivery_limit_archives() -> None:
    desk = Desk([(0, 0)], delivery_limit=2)
    desk.fetch()
    desk.wait(30_000)
    desk.fetch()
    desk.wait(30_000)
    assert desk.partition.start_offset == 1
    assert desk.written()[-1] == (0, 1, [(0, 0, 4, 2)])


def test_expired_locks_of_several_members_are_given_back_in_order_of_offset() -> None:
    desk = Desk(batches_of(5, 4))
    for member in ("m2", "m1", "m3", "m2"):
        desk.fetch(member, records_max=5)
    desk.now_ms = 40_000
    changes = desk.partition.expire(desk.now_ms, limits=desk.limits)
    assert [change.first for change in changes] == [0, 5, 10, 15]
    desk.apply(changes)
    assert desk.written() == [(0, 0, [(0, 19, 0, 1)])]
    assert desk.partition.holders == []


def test_closing_a_session_gives_back_what_its_member_holds_and_nothing_else() -> None:
    desk = Desk(batches_of(5, 3))
    desk.fetch("m1", records_max=5)
    desk.fetch("m2", records_max=5)
    desk.now_ms = 10
    desk.fetch("m1", records_max=5)
    assert sorted(desk.partition.holders) == ["m1", "m2"]
    desk.close("m1")
    assert desk.fetch("m3") == [(0, 4, 2), (10, 14, 2)]
    desk.close("nobody")
    assert desk.states()[5] == (S.ACQUIRED, 1)


def test_the_delivery_count_is_not_given_back_with_the_records() -> None:  # count 3, then 4
    desk = Desk([(0, 0)])
    for _ in range(2):
        desk.fetch()
        desk.acknowledge((0, 0, RELEASE))
    assert desk.fetch() == [(0, 0, 3)]
    desk.close("m1")
    assert desk.fetch() == [(0, 0, 4)]


def test_every_part_of_a_batch_that_is_shared_by_members_is_given_back() -> None:
    desk = Desk([(0, 9)])
    desk.fetch("m1")
    desk.acknowledge((2, 3, RELEASE))
    desk.fetch("m2")
    desk.close("m1")
    held = [offset for offset, (state, _) in desk.states().items() if state is S.ACQUIRED]
    assert held == [2, 3]


def test_records_taken_released_and_taken_again_at_one_instant_are_given_back_once() -> None:
    desk = Desk([(0, 9)])
    desk.fetch()
    desk.acknowledge((0, 4, RELEASE))
    desk.fetch()
    desk.acknowledge((5, 9, RENEW), allows_renew=True)
    changes = desk.partition.expire(30_000, limits=desk.limits)
    assert [(change.first, change.last) for change in changes] == [(0, 4), (5, 9)]


class TestMovesOfTheLogsStart:
    def moved(self) -> Desk:
        """0-4 held by m1, 5-9 available; the log now begins at 7."""
        desk = Desk([(0, 4), (5, 9)])
        desk.fetch(batch_size=5)
        desk.acknowledge((5, 9, RELEASE))
        desk.log = [(5, 9)]
        desk.apply(desk.partition.archive_before(7))
        return desk

    def test_what_could_be_acquired_below_is_archived_and_what_is_above_is_delivered(
        self,
    ) -> None:  # scenario 51
        desk = self.moved()
        assert desk.partition.start_offset == 7
        assert desk.fetch() == [(7, 9, 2)]
        desk.acknowledge((0, 4, ACCEPT))
        desk.acknowledge((3, 8, ACCEPT))
        assert desk.partition.start_offset == 9
        assert desk.written()[1:] == [(7, 2, [(7, 8, 2, 2)])]

    def test_what_is_held_below_is_archived_when_its_lock_ends(self) -> None:
        desk = self.moved()
        assert desk.partition.holders == ["m1"]
        desk.wait(30_000)
        assert desk.partition.holders == []
        assert sorted(desk.states()) == [7, 8, 9]
        assert len(desk.writes) == 1  # nothing at or above the start to write

    def test_a_held_range_across_the_new_start_is_cut_there(self) -> None:
        desk = Desk([(0, 9)])
        desk.fetch()
        desk.apply(desk.partition.archive_before(6))
        desk.acknowledge((4, 7, ACCEPT))
        assert desk.partition.start_offset == 8
        desk.close("m1")
        assert desk.states() == {8: (S.AVAILABLE, 1), 9: (S.AVAILABLE, 1)}
        assert desk.written()[-1] == (8, 0, [(8, 9, 0, 1)])

    def test_a_start_beyond_everything_empties_the_window(self) -> None:
        desk = Desk([(0, 9)])
        desk.fetch()
        desk.apply(desk.partition.archive_before(15))
        assert desk.partition.next_fetch_offset() == 15
        assert (desk.partition.start_offset, desk.partition.end_offset, desk.partition.window_size) == (
            15,
            15,
            0,
        )
        desk.log = [(10, 19)]
        assert desk.fetch("m2") == [(15, 19, 1)]
        desk.acknowledge((15, 19, ACCEPT), member="m2")
        assert desk.partition.start_offset == 20
        desk.wait(30_000)
        assert desk.states() == {}

    def test_settled_records_below_are_no_longer_counted(self) -> None:
        desk = Desk([(0, 9)])
        desk.fetch()
        desk.acknowledge((2, 7, ACCEPT))
        desk.apply(desk.partition.archive_before(5))
        assert desk.partition.delivery_complete_count == 0
        assert desk.partition.start_offset == 8

    def test_a_start_that_is_not_ahead_changes_nothing(self) -> None:
        desk = self.moved()
        assert desk.partition.archive_before(7) == []
        assert desk.partition.archive_before(3) == []

    def test_an_empty_window_follows(self) -> None:
        desk = Desk([])
        assert desk.apply(desk.partition.archive_before(100))
        assert desk.partition.next_fetch_offset() == 100

    def test_a_dead_letter_below_the_start_is_forgotten_once_copied(self) -> None:
        desk = Desk([(0, 9)], dead_letters=True)
        desk.fetch()
        desk.acknowledge((0, 9, [3]))
        desk.apply(desk.partition.archive_before(6))
        desk.apply(desk.partition.dead_lettered(0, 9))
        assert desk.states() == {}
        assert desk.partition.start_offset == 10
