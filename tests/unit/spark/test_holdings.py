"""Who holds an offset, against a dict of single offsets."""

from hypothesis import given
from hypothesis import strategies as st

from headrace.spark.holdings import HeldSegments

PLACE = ("orders", 0)
stretches = st.tuples(st.booleans(), st.integers(0, 30), st.integers(0, 10))


@given(st.lists(stretches, max_size=30))
def test_the_last_holder_of_an_offset_is_found_and_taken_once(steps: list[tuple[bool, int, int]]) -> None:
    holdings: HeldSegments[int] = HeldSegments()
    model: dict[int, int] = {}
    for number, (is_put, first, length) in enumerate(steps):
        last = first + length
        if is_put:
            holdings.put(PLACE, first, last, number)
            model.update(dict.fromkeys(range(first, last + 1), number))
        else:
            taken = {
                at: held
                for low, high, held in holdings.take(PLACE, first, last)
                for at in range(low, high + 1)
            }
            assert taken == {at: model.pop(at) for at in range(first, last + 1) if at in model}
        left = {at: held for _, (low, high, held) in holdings for at in range(low, high + 1)}
        assert left == model


def test_partitions_are_apart_and_a_topic_can_be_forgotten() -> None:
    holdings: HeldSegments[str] = HeldSegments()
    holdings.put(("a", 0), 0, 9, "x")
    holdings.put(("a", 1), 0, 9, "y")
    holdings.put(("b", 0), 0, 9, "z")
    assert holdings.take(("a", 1), 5, 20) == [(5, 9, "y")]
    holdings.forget("a")
    assert [place for place, _ in holdings] == [("b", 0)]
