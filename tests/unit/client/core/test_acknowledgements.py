"""From answers to batches on the wire, and commits that wait for answers."""

from headrace.client.core.acknowledgements import Ack, Commit, batches_of, by_partition
from headrace.client.core.ranges import RangeState
from headrace.client.errors import error_for
from headrace.wire.errors import ErrorCode
from tests.unit.client.core.test_ranges import acquired

ACCEPT, RELEASE, REJECT, RENEW = (RangeState(number) for number in range(1, 5))
GAP = RangeState.GAP
ONE = acquired(0, 999)


def ack(first: int, last: int, state: int = ACCEPT, number: int = 0, **more: bool) -> Ack:
    return Ack(ONE, first, last, state, number, **more)


def wire(*acks: Ack) -> list[tuple[int, int, list[int]]]:
    return [(one.first_offset, one.last_offset, list(one.acknowledge_types)) for one in batches_of(acks)]


def test_a_range_of_one_type_is_one_batch_with_one_type() -> None:
    assert wire(ack(0, 499)) == [(0, 499, [1])]
    assert wire(ack(3, 5)) == [(3, 5, [1])]


def test_neighbors_of_one_type_are_joined() -> None:
    assert wire(ack(5, 9), ack(0, 4)) == [(0, 9, [1])]


def test_short_runs_share_a_batch_with_a_type_for_each_offset() -> None:
    found = wire(ack(0, 1), ack(2, 2, RELEASE), ack(3, 4, REJECT), ack(5, 5, GAP))
    assert found == [(0, 5, [1, 1, 2, 3, 3, 0])]


def test_a_run_of_more_than_ten_gets_its_own_batch() -> None:
    found = wire(ack(0, 1, RELEASE), ack(2, 12), ack(13, 13, REJECT))
    assert found == [(0, 1, [2]), (2, 12, [1]), (13, 13, [3])]
    assert wire(ack(0, 1, RELEASE), ack(2, 11)) == [(0, 11, [2, 2] + [1] * 10)]


def test_a_hole_ends_a_batch() -> None:
    assert wire(ack(0, 1), ack(3, 4, RELEASE)) == [(0, 1, [1]), (3, 4, [2])]


def test_acknowledgements_are_grouped_by_partition() -> None:
    assert by_partition([ack(0, 1), ack(3, 4)]) == {(ONE.topic_id, 0): [ack(0, 1), ack(3, 4)]}


def test_a_commit_is_done_when_everything_before_it_is_answered() -> None:
    error = error_for(ErrorCode.INVALID_RECORD_STATE)
    first, second, later = ack(0, 1, number=0), ack(2, 3, number=1), ack(4, 5, number=2)
    commit = Commit([first, second, ack(6, 6, RENEW, number=2, is_own=True)])
    commit.settle(later, error)
    assert not commit.is_done
    commit.settle(first, None)
    commit.settle(second, error)
    assert commit.is_done
    assert commit.results == {("t", 0): error}


def test_the_worst_answer_of_a_partition_stays() -> None:
    error = error_for(ErrorCode.INVALID_RECORD_STATE)
    commit = Commit([ack(0, 1, number=0), ack(2, 3, number=1)])
    commit.settle(ack(0, 1, number=0), error)
    commit.settle(ack(2, 3, number=1), None)
    assert commit.results == {("t", 0): error}
