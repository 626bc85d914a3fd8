"""How new records are cut into in-flight batches, by acquire mode."""

from headrace.share.modes import AcquireMode, batch_end, cut_new
from tests.unit.share.desk import batches_of

FIVES = batches_of(5, 4)


def cut(
    first: int, last: int, *, room: int, batch_size: int, strict: bool = False
) -> list[tuple[tuple[int, int], int]]:
    return cut_new(AcquireMode(int(strict)), FIVES, first, last, room=room, batch_size=batch_size)


def test_the_end_of_a_record_batch_is_found_and_a_hole_has_none() -> None:
    batches = [(0, 4), (5, 9), (20, 24)]
    assert [batch_end(batches, offset) for offset in (0, 4, 7, 15, 24, 30)] == [4, 4, 9, 15, 24, 30]
    assert batch_end(batches, -1) == -1


def test_batch_optimized_rounds_up_to_the_end_of_a_record_batch() -> None:
    assert cut(0, 19, room=6, batch_size=100) == [((0, 9), 9)]
    assert cut(0, 19, room=10, batch_size=100) == [((0, 9), 9)]
    assert cut(0, 19, room=11, batch_size=100) == [((0, 14), 14)]


def test_an_in_flight_batch_ends_at_the_first_record_batch_that_begins_far_enough() -> None:
    assert cut(0, 19, room=100, batch_size=2) == [((0, 4), 4), ((5, 9), 9), ((10, 14), 14), ((15, 19), 19)]
    assert cut(0, 19, room=100, batch_size=6) == [((0, 9), 9), ((10, 19), 19)]
    assert cut(0, 19, room=100, batch_size=20) == [((0, 19), 19)]
    assert cut(3, 19, room=100, batch_size=5) == [((3, 9), 9), ((10, 14), 14), ((15, 19), 19)]


def test_a_batch_size_of_nothing_means_one() -> None:
    assert cut(0, 9, room=100, batch_size=0) == [((0, 4), 4), ((5, 9), 9)]


def test_record_limit_takes_no_record_too_many_and_keeps_the_record_batch_together() -> None:
    assert cut(0, 19, room=6, batch_size=2, strict=True) == [((0, 9), 5)]
    assert cut(0, 19, room=20, batch_size=2, strict=True) == [((0, 19), 19)]
    assert cut(0, 19, room=500, batch_size=2, strict=True) == [((0, 19), 19)]


def test_records_that_end_inside_a_record_batch_are_not_exceeded() -> None:
    assert cut(0, 7, room=6, batch_size=100) == [((0, 7), 7)]
    assert cut(0, 7, room=6, batch_size=100, strict=True) == [((0, 7), 5)]
