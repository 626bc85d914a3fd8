"""The simple assignor: the examples of docs/concepts/share-semantics.md, and balance over small groups."""

from itertools import product

from headrace.share.assignor import Assignment, assign, by_topic, flatten

T, U, V = (letter * 16 for letter in (b"t", b"u", b"v"))


def sizes(assigned: dict[str, Assignment]) -> list[int]:
    return sorted((len(list(flatten(assignment))) for assignment in assigned.values()), reverse=True)


def members(count: int, *topics: bytes) -> dict[str, list[bytes]]:
    return {f"m{index:03}": list(topics) for index in range(count)}


def test_one_member_gets_everything() -> None:
    assert assign(members(1, T), {T: range(4)}, {}) == {"m000": {T: (0, 1, 2, 3)}}


def test_one_partition_goes_to_everyone() -> None:
    assert assign(members(3, T), {T: range(1)}, {}) == {key: {T: (0,)} for key in members(3)}


def test_three_members_share_two_partitions_two_by_two() -> None:  # scenario 9
    assigned = assign(members(3, T), {T: range(2)}, {})
    assert sizes(assigned) == [2, 1, 1]
    held = [partition for assignment in assigned.values() for partition in flatten(assignment)]
    assert sorted(held) == [(T, 0), (T, 0), (T, 1), (T, 1)]


def test_it_is_balanced_whatever_the_numbers() -> None:
    for count, partitions in product(range(1, 12), range(1, 12)):
        assigned = assign(members(count, T), {T: range(partitions)}, {})
        held = [partition for assignment in assigned.values() for partition in flatten(assignment)]
        sharing = -(-count // partitions)
        assert set(held) == {(T, index) for index in range(partitions)}
        assert max(map(held.count, held)) <= sharing
        assert max(sizes(assigned)) - min(sizes(assigned)) <= 1


def test_members_that_come_and_go_find_every_partition_held() -> None:
    current: dict[str, Assignment] = {}
    for count in (1, 3, 2, 7, 5, 6, 1, 4):
        current = assign(members(count, T, U), {T: range(3), U: range(2)}, current)
        held = {partition for assignment in current.values() for partition in flatten(assignment)}
        assert len(held) == 5
        assert max(sizes(current)) - min(sizes(current)) <= 1


def test_a_member_keeps_what_it_has_when_balance_allows() -> None:
    before = assign(members(2, T), {T: range(4)}, {})
    after = assign(members(4, T), {T: range(4)}, before)
    for member in before:
        (kept,) = after[member][T]
        assert kept in before[member][T]
    assert assign(members(4, T), {T: range(4)}, after) == after


def test_partitions_of_topics_that_nobody_wants_any_more_are_dropped() -> None:
    before = assign(members(2, T), {T: range(4)}, {})
    assert assign(members(2, U), {T: range(4), U: range(2)}, before) == {"m000": {U: (0,)}, "m001": {U: (1,)}}


def test_with_different_subscriptions_each_topic_is_balanced_on_its_own() -> None:
    wanted = {"a": [T, U], "b": [U], "c": [U, V], "d": []}
    assigned = assign(wanted, {T: range(2), U: range(3), V: range(1)}, {})
    assert set(flatten(assigned["a"])) >= {(T, 0), (T, 1)}
    assert assigned["d"] == {}
    for topic, count in ((T, 2), (U, 3), (V, 1)):
        held = sorted(index for assignment in assigned.values() for index in assignment.get(topic, ()))
        assert held == list(range(count))
    assert all(topic in wanted[member] for member, assignment in assigned.items() for topic in assignment)


def test_topics_without_partitions_and_groups_without_members_are_fine() -> None:
    assert assign(members(2, T), {}, {}) == {key: {} for key in members(2)}
    assert assign({}, {T: range(3)}, {}) == {}
    assert by_topic([(T, 3), (U, 0), (T, 1)]) == {T: (1, 3), U: (0,)}
