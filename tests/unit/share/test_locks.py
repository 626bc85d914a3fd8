"""Locks: found by deadline and by holder, gone when they hold nothing."""

from headrace.share.holds import Hold
from headrace.share.locks import Lock, Locks


def held(locks: Locks, holder: str, deadline_ms: int, first: int, last: int) -> Lock:
    lock = locks.take(Hold(holder, 0), deadline_ms, first, last)
    lock.held += last - first + 1
    return lock


def test_what_one_member_takes_at_one_instant_shares_a_lock() -> None:
    locks = Locks()
    lock = held(locks, "m1", 100, 0, 4)
    assert locks.take(Hold("m1", 0), 100, 5, 9) is lock
    assert locks.take(Hold("m1", 0), 100, 20, 24) is lock
    assert lock.spans == [(0, 9), (20, 24)]
    assert locks.take(Hold("m2", 0), 100, 30, 34) is not lock
    assert locks.take(Hold("m1", 0), 101, 40, 44) is not lock


def test_what_was_acquired_at_two_instants_shares_no_lock_though_it_is_renewed_at_one() -> None:
    locks = Locks()
    old, new = (locks.take(Hold("m1", since, 1), 100, since, since) for since in (3, 7))
    assert old is not new
    assert list(locks.of("m1")) == list(locks.due(100)) == [old, new]
    locks.drop(old)
    assert list(locks.of("m1")) == list(locks.due(100)) == [new]


def test_the_first_deadline_is_the_one_that_counts() -> None:
    locks = Locks()
    assert locks.deadline_ms() is None
    for deadline_ms in (300, 100, 200):
        held(locks, "m1", deadline_ms, deadline_ms, deadline_ms)
    assert locks.deadline_ms() == 100
    assert {lock.deadline_ms for lock in locks.due(200)} == {100, 200}
    assert list(locks.due(99)) == []


def test_a_dropped_lock_is_no_deadline_and_has_no_holder() -> None:
    locks = Locks()
    first, second = held(locks, "m1", 100, 0, 0), held(locks, "m2", 100, 1, 1)
    locks.drop(first)
    locks.drop(first)
    assert locks.holders() == ["m2"]
    assert list(locks.of("m1")) == []
    assert list(locks.of("m2")) == list(locks.due(100)) == [second]
    locks.drop(second)
    assert locks.deadline_ms() is None


def test_a_deadline_taken_up_again_is_due_once() -> None:
    locks = Locks()
    held(locks, "m0", 50, 9, 9)
    locks.drop(held(locks, "m1", 100, 0, 0))
    again = held(locks, "m1", 100, 0, 0)
    assert [lock for lock in locks.due(100) if lock.holder == "m1"] == [again]


def test_dead_deadlines_do_not_pile_up() -> None:
    locks = Locks()
    keeper = held(locks, "m0", 10**9, 0, 0)
    for deadline_ms in range(10_000):
        locks.drop(held(locks, "m1", deadline_ms, 1, 1))
    assert len(locks._heap) < 100
    assert locks.deadline_ms() == keeper.deadline_ms
