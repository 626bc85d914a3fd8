"""The algebra of offset ranges does what sets of offsets do; its results are in order, and as few as can be."""

from collections.abc import Iterable
from itertools import pairwise
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from headrace.base.ranges import consecutive, flattened, joined, minus, within


class Labeled(NamedTuple):
    first: int
    last: int
    label: str


@st.composite
def ranges(draw: st.DrawFn) -> list[Labeled]:
    """In order and without overlap, some of them neighbors."""
    found, offset = [], 0
    for gap, size, label in draw(
        st.lists(st.tuples(st.integers(0, 3), st.integers(1, 5), st.sampled_from("ab")), max_size=8)
    ):
        found.append(Labeled(offset + gap, offset + gap + size - 1, label))
        offset += gap + size
    return found


ANY_ORDER = st.lists(
    st.builds(
        lambda first, size, label: Labeled(first, first + size, label),
        st.integers(0, 20),
        st.integers(0, 8),
        st.sampled_from("abc"),
    ),
    max_size=8,
)


def labels(found: Iterable[Labeled]) -> dict[int, str]:
    """Each offset with its label; the last range that has it counts."""
    return {offset: each.label for each in found for offset in range(each.first, each.last + 1)}


def require_order(found: list[Labeled]) -> None:
    assert all(each.first <= each.last for each in found)
    assert all(before.last < after.first for before, after in pairwise(found))


@given(ranges())
def test_joined_ranges_say_the_same_with_as_few_as_can_be(given_ranges: list[Labeled]) -> None:
    found = list(joined(given_ranges))
    require_order(found)
    assert labels(found) == labels(given_ranges)
    assert not any(
        before.last + 1 == after.first and before.label == after.label for before, after in pairwise(found)
    )


@given(ranges())
def test_a_key_decides_what_is_joined(given_ranges: list[Labeled]) -> None:
    found = [(each.first, each.last) for each in joined(given_ranges, key=lambda _: None)]
    assert found == list(consecutive(labels(given_ranges)))


@given(ranges(), ranges())
def test_minus_leaves_what_the_other_does_not_have(mine: list[Labeled], other: list[Labeled]) -> None:
    found = list(minus(mine, other))
    require_order(found)
    taken = labels(other)
    assert labels(found) == {offset: label for offset, label in labels(mine).items() if offset not in taken}


@given(ranges(), ranges())
def test_within_leaves_what_the_other_has_too(mine: list[Labeled], other: list[Labeled]) -> None:
    found = list(within(mine, other))
    require_order(found)
    kept = labels(other)
    assert labels(found) == {offset: label for offset, label in labels(mine).items() if offset in kept}


@given(ANY_ORDER)
def test_of_ranges_that_overlap_the_last_counts(given_ranges: list[Labeled]) -> None:
    found = list(flattened(given_ranges))
    require_order(found)
    assert labels(found) == labels(given_ranges)


@given(st.lists(st.integers(0, 30)))
def test_consecutive_offsets_become_ranges(offsets: list[int]) -> None:
    found = list(consecutive(offsets))
    assert {offset for first, last in found for offset in range(first, last + 1)} == set(offsets)
    assert all(before[1] + 1 < after[0] for before, after in pairwise(found))
