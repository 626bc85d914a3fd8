"""Goal: a member's steps to its target, never two readers of one partition. Method: each state, then random walks."""

from dataclasses import replace

import hypothesis.strategies as st
import pytest
from hypothesis import given

from headrace.broker.groups.consumer_member import ConsumerMember, MemberState
from headrace.broker.groups.reconcile import Goal, reconcile
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.ids import TopicIdPartition

T, U = b"t" * 16, b"u" * 16
P0, P1, P2 = (T, 0), (T, 1), (T, 2)


def goal(
    epoch: int,
    *partitions: TopicIdPartition,
    taken: tuple[TopicIdPartition, ...] = (),
    topics: tuple[bytes, ...] = (T,),
) -> Goal:
    return Goal(
        epoch=epoch,
        partitions=frozenset(partitions),
        topic_ids=frozenset(topics),
        is_owned=lambda one: one in taken,
    )


def member(
    epoch: int, state: MemberState, *held: TopicIdPartition, revoking: tuple[TopicIdPartition, ...] = ()
) -> ConsumerMember:
    return ConsumerMember(
        member_id="m",
        epoch=epoch,
        state=state,
        held=dict.fromkeys(held, epoch),
        revoking=dict.fromkeys(revoking, epoch),
    )


def test_a_new_member_gets_free_partitions_at_once() -> None:
    after = reconcile(member(0, MemberState.STABLE), goal(2, P0, P1), owned=frozenset())
    assert (after.epoch, after.previous_epoch, after.state) == (2, 0, MemberState.STABLE)
    assert after.held == {P0: 2, P1: 2}


def test_a_member_keeps_its_epoch_until_it_has_given_up_what_it_must() -> None:
    after = reconcile(member(2, MemberState.STABLE, P0, P1), goal(3, P0), owned=frozenset({P0, P1}))
    assert (after.epoch, after.state) == (2, MemberState.UNREVOKED)
    assert (after.held, after.revoking) == ({P0: 2}, {P1: 2})


def test_a_member_that_does_not_say_what_it_owns_may_still_own_it() -> None:
    before = member(2, MemberState.UNREVOKED, P0, revoking=(P1,))
    assert reconcile(before, goal(3, P0), owned=None) is before


def test_a_member_that_still_owns_what_it_must_give_up_stays() -> None:
    before = member(2, MemberState.UNREVOKED, P0, revoking=(P1,))
    assert reconcile(before, goal(3, P0), owned=frozenset({P1})) is before


def test_a_member_that_has_given_up_moves_to_the_new_epoch() -> None:
    after = reconcile(
        member(2, MemberState.UNREVOKED, P0, revoking=(P1,)), goal(3, P0, P2), owned=frozenset({P0})
    )
    assert (after.epoch, after.state, after.revoking) == (3, MemberState.STABLE, {})
    assert after.held == {P0: 2, P2: 3}


def test_a_member_waits_in_the_new_epoch_for_partitions_that_others_hold() -> None:
    after = reconcile(member(2, MemberState.STABLE, P0), goal(3, P0, P1, P2, taken=(P1,)), owned=None)
    assert (after.epoch, after.state) == (3, MemberState.UNRELEASED)
    assert after.held == {P0: 2, P2: 3}


def test_a_waiting_member_gets_what_has_become_free() -> None:
    after = reconcile(member(3, MemberState.UNRELEASED, P0), goal(3, P0, P1), owned=None)
    assert (after.epoch, after.state, after.held) == (3, MemberState.STABLE, {P0: 3, P1: 3})


def test_a_waiting_member_may_first_have_to_give_up_something_else() -> None:
    after = reconcile(member(3, MemberState.UNRELEASED, P0), goal(4, P1), owned=frozenset({P0}))
    assert (after.epoch, after.state, after.revoking) == (3, MemberState.UNREVOKED, {P0: 3})


def test_a_member_may_get_back_what_it_was_giving_up() -> None:
    before = member(2, MemberState.UNREVOKED, P0, revoking=(P1,))
    after = reconcile(before, goal(4, P0, P1, taken=(P0, P1)), owned=frozenset({P0}))
    assert (after.state, after.held) == (MemberState.STABLE, {P0: 2, P1: 4})


def test_a_member_at_the_newest_epoch_does_not_move() -> None:
    before = member(3, MemberState.STABLE, P0)
    assert reconcile(before, goal(3, P0), owned=None) is before


def test_a_target_of_a_topic_that_is_no_longer_subscribed_counts_for_nothing() -> None:
    after = reconcile(member(0, MemberState.STABLE), goal(2, P0, (U, 0)), owned=frozenset())
    assert after.held == {P0: 2}


def test_a_changed_subscription_takes_topics_away_before_the_next_assignment() -> None:
    before = member(3, MemberState.STABLE, P0, (U, 0))
    after = reconcile(before, goal(3, P0, (U, 0)), owned=None, has_subscription_changed=True)
    assert (after.epoch, after.state) == (3, MemberState.UNREVOKED)
    assert (after.held, after.revoking) == ({P0: 3}, {(U, 0): 3})


def test_a_changed_subscription_shrinks_at_once_what_is_not_owned_any_more() -> None:
    before = member(3, MemberState.STABLE, P0, (U, 0))
    after = reconcile(before, goal(3, P0), owned=frozenset({P0}), has_subscription_changed=True)
    assert (after.state, after.held, after.revoking) == (MemberState.STABLE, {P0: 3}, {})


def test_a_changed_subscription_that_loses_nothing_changes_nothing() -> None:
    before = member(3, MemberState.STABLE, P0)
    assert reconcile(before, goal(3, P0), owned=None, has_subscription_changed=True) is before


def test_a_member_in_a_state_from_the_future_must_start_anew() -> None:
    with pytest.raises(KafkaError) as refusal:
        reconcile(member(3, MemberState.UNKNOWN, P0), goal(4, P0), owned=None)
    assert refusal.value.code is ErrorCode.FENCED_MEMBER_EPOCH
    assert reconcile(member(3, MemberState.UNKNOWN), goal(4, P0), owned=frozenset()).epoch == 4


PARTITIONS = [(T, index) for index in range(4)]


@given(
    st.lists(st.tuples(st.integers(0, 2), st.booleans(), st.lists(st.integers(0, 2), min_size=4, max_size=4)))
)
def test_no_partition_ever_has_two_readers(steps: list[tuple[int, bool, list[int]]]) -> None:
    """Three members; each step sets a new target or lets one member heartbeat with what it truly reads."""
    members = {number: ConsumerMember(member_id=str(number)) for number in range(3)}
    reads: dict[int, set[TopicIdPartition]] = {number: set() for number in range(3)}
    epoch, target = 1, dict.fromkeys(PARTITIONS, 0)
    for number, is_new_target, owners in steps:
        if is_new_target:
            epoch, target = epoch + 1, dict(zip(PARTITIONS, owners, strict=True))
            continue
        taken = {one for other in members.values() for one in {**other.held, **other.revoking}}
        wanted = Goal(
            epoch=epoch,
            partitions={one for one, owner in target.items() if owner == number},
            topic_ids={T},
            is_owned=taken.__contains__,
        )
        members[number] = reconcile(members[number], wanted, owned=frozenset(reads[number]))
        reads[number] = {*members[number].held}
        everything = [one for held in reads.values() for one in held]
        assert len(everything) == len(set(everything))


def test_holding_is_compared_by_content() -> None:
    assert replace(member(1, MemberState.STABLE), held={}) == member(1, MemberState.STABLE)
