"""Goal: fair, complete, sticky assignments. Method: groups and topics by Hypothesis, and examples one would draw."""

import hypothesis.strategies as st
import pytest
from hypothesis import given

from headrace.broker.groups.assignors import (
    ASSIGNORS,
    Assignment,
    Assignor,
    MemberSpec,
    assign_range,
    assign_uniform,
)

TOPIC_IDS = [bytes(15) + bytes([number]) for number in range(5)]
A, B, *_ = TOPIC_IDS
MEMBER_IDS = st.sampled_from([f"member-{number}" for number in range(8)])
TOPICS = st.dictionaries(st.sampled_from(TOPIC_IDS), st.integers(1, 20))
SUBSCRIPTIONS = st.dictionaries(MEMBER_IDS, st.frozensets(st.sampled_from(TOPIC_IDS)), min_size=1)


def group(
    subscriptions: dict[str, frozenset[bytes]], before: Assignment | None = None
) -> dict[str, MemberSpec]:
    before = before or {}
    return {
        member_id: MemberSpec(topic_ids, before.get(member_id, frozenset()))
        for member_id, topic_ids in subscriptions.items()
    }


def alike(count: int, topic_ids: frozenset[bytes] = frozenset(TOPIC_IDS)) -> dict[str, frozenset[bytes]]:
    return {f"member-{number}": topic_ids for number in range(count)}


def loads(assignment: Assignment) -> list[int]:
    return sorted(len(partitions) for partitions in assignment.values())


def moved(before: Assignment, after: Assignment) -> int:
    """Partitions that one member has lost to another."""
    return sum(len(before[member_id] - after[member_id]) for member_id in before.keys() & after.keys())


@pytest.mark.parametrize("assign", ASSIGNORS.values(), ids=ASSIGNORS.keys())
@given(subscriptions=SUBSCRIPTIONS, topics=TOPICS)
def test_every_partition_that_somebody_reads_has_one_reader_who_is_subscribed(
    assign: Assignor, subscriptions: dict[str, frozenset[bytes]], topics: dict[bytes, int]
) -> None:
    assignment = assign(group(subscriptions), topics)
    given_out = [partition for partitions in assignment.values() for partition in partitions]
    read = {topic_id for topic_ids in subscriptions.values() for topic_id in topic_ids}
    wanted = {(topic_id, index) for topic_id in topics.keys() & read for index in range(topics[topic_id])}
    assert assignment.keys() == subscriptions.keys()
    assert len(given_out) == len(set(given_out))
    assert set(given_out) == wanted
    assert all(
        topic_id in subscriptions[member_id] for member_id, held in assignment.items() for topic_id, _ in held
    )


@given(members=st.integers(1, 8), topics=TOPICS)
def test_uniform_gives_equal_subscribers_equal_numbers_within_one(
    members: int, topics: dict[bytes, int]
) -> None:
    counts = loads(assign_uniform(group(alike(members)), topics))
    assert counts[-1] - counts[0] <= 1


@given(subscriptions=SUBSCRIPTIONS, topics=TOPICS)
def test_uniform_leaves_no_partition_that_a_much_less_loaded_subscriber_could_take(
    subscriptions: dict[str, frozenset[bytes]], topics: dict[bytes, int]
) -> None:
    assignment = assign_uniform(group(subscriptions), topics)
    for holder, held in assignment.items():
        for other, topic_ids in subscriptions.items():
            if any(topic_id in topic_ids for topic_id, _ in held):
                assert len(held) <= len(assignment[other]) + 1, (holder, other)


@given(subscriptions=SUBSCRIPTIONS, topics=TOPICS)
def test_uniform_moves_nothing_when_nothing_has_changed(
    subscriptions: dict[str, frozenset[bytes]], topics: dict[bytes, int]
) -> None:
    before = assign_uniform(group(subscriptions), topics)
    assert assign_uniform(group(subscriptions, before), topics) == before


@given(members=st.integers(2, 8), topics=TOPICS)
def test_uniform_only_adds_when_a_member_leaves(members: int, topics: dict[bytes, int]) -> None:
    before = assign_uniform(group(alike(members)), topics)
    after = assign_uniform(group(alike(members - 1), before), topics)
    assert moved(before, after) == 0


@given(members=st.integers(1, 7), topics=TOPICS)
def test_uniform_moves_only_what_a_new_member_gets(members: int, topics: dict[bytes, int]) -> None:
    before = assign_uniform(group(alike(members)), topics)
    after = assign_uniform(group(alike(members + 1), before), topics)
    assert moved(before, after) == len(after[f"member-{members}"])


@given(members=st.integers(1, 8), topics=TOPICS, added=st.integers(1, 10))
def test_uniform_stays_balanced_when_topics_grow(members: int, topics: dict[bytes, int], added: int) -> None:
    before = assign_uniform(group(alike(members)), topics)
    grown = {topic_id: partitions + added for topic_id, partitions in topics.items()}
    counts = loads(assign_uniform(group(alike(members), before), grown))
    assert counts[-1] - counts[0] <= 1


def test_uniform_takes_away_what_is_no_longer_subscribed_or_there() -> None:
    before = {"member-0": frozenset({(A, 0), (A, 5), (B, 0)})}
    members = group({"member-0": frozenset({A})}, before)
    assert assign_uniform(members, {A: 2, B: 1}) == {"member-0": {(A, 0), (A, 1)}}


def test_uniform_gives_a_partition_that_two_had_to_one_of_them() -> None:
    before = {"member-0": frozenset({(A, 0)}), "member-1": frozenset({(A, 0)})}
    assert loads(assign_uniform(group(alike(2), before), {A: 1})) == [0, 1]


def test_uniform_does_a_large_group_in_a_blink() -> None:
    topics = {number.to_bytes(16, "big"): 100 for number in range(100)}
    members = group({f"member-{number}": frozenset(topics) for number in range(500)})
    assert set(loads(assign_uniform(members, topics))) == {20}


def test_range_gives_consecutive_partitions_the_first_members_one_more() -> None:
    assignment = assign_range(group(alike(3)), {A: 7})
    assert [sorted(index for _, index in assignment[f"member-{number}"]) for number in range(3)] == [
        [0, 1, 2],
        [3, 4],
        [5, 6],
    ]


def test_range_splits_topics_alike_so_that_equal_partitions_meet() -> None:
    assignment = assign_range(group(alike(3)), {A: 7, B: 7})
    for held in assignment.values():
        assert {index for topic_id, index in held if topic_id == A} == {
            index for topic_id, index in held if topic_id == B
        }


def test_range_leaves_members_without_a_partition_when_there_are_too_few() -> None:
    assert loads(assign_range(group(alike(3)), {A: 2})) == [0, 1, 1]


def test_range_puts_static_members_first_by_instance_so_that_they_find_their_range_again() -> None:
    members = {
        "zz": MemberSpec(frozenset({A}), instance_id="1"),
        "aa": MemberSpec(frozenset({A})),
        "mm": MemberSpec(frozenset({A}), instance_id="2"),
    }
    assert assign_range(members, {A: 3}) == {"zz": {(A, 0)}, "mm": {(A, 1)}, "aa": {(A, 2)}}
