"""Acknowledging: scenarios 34 to 43 of docs/concepts/share-semantics.md, with Kafka's messages."""

import pytest

from headrace.share.changes import AckBatch
from headrace.share.errors import InvalidRecordState, InvalidRequest, ShareError
from headrace.share.partition import SharePartition
from headrace.share.states import RecordState as S
from tests.unit.share.desk import ACCEPT, REJECT, RELEASE, RENEW, Desk, batches_of


def holding(records: int = 10, **limits: int | bool) -> Desk:
    desk = Desk([(0, records - 1)], **limits)
    desk.fetch()
    return desk


def refused(
    desk: Desk, *batches: tuple[int, int, list[int]], member: str = "m1", renew: bool = False
) -> ShareError:
    """The refusal, after checking that nothing changed."""
    before = desk.partition.snapshot()
    with pytest.raises(ShareError) as refusal:
        desk.acknowledge(*batches, member=member, allows_renew=renew)
    assert desk.partition.snapshot() == before
    return refusal.value


def test_accepting_settles_and_accepting_again_below_the_start_is_ignored() -> None:  # scenario 34
    desk = holding()
    desk.acknowledge((0, 4, ACCEPT))
    assert desk.partition.start_offset == 5
    desk.acknowledge((0, 4, ACCEPT))
    desk.acknowledge((3, 5, ACCEPT))  # a range across the start: what is below is passed over
    assert desk.partition.start_offset == 6
    assert len(desk.writes) == 2


def test_five_answers_in_one_batch() -> None:  # scenario 35
    desk = holding()
    desk.now_ms = 1_000
    desk.acknowledge((5, 9, [1, 2, 3, 0, 4]), allows_renew=True)
    assert desk.written() == [(0, 3, [(5, 5, 2, 1), (6, 6, 0, 1), (7, 8, 4, 1)])]
    assert desk.states()[9] == (S.ACQUIRED, 1)
    assert desk.partition.snapshot().ranges[-1].deadline_ms == 31_000


def test_only_the_holder_may_answer() -> None:  # scenario 36
    desk = holding()
    error = refused(desk, (0, 9, ACCEPT), member="m2")
    assert isinstance(error, InvalidRecordState)
    assert str(error) == "Member is not the owner of batch record"
    desk.acknowledge((0, 4, ACCEPT))
    assert str(refused(desk, (5, 9, ACCEPT), member="m2")) == "Member is not the owner of offset"


def test_an_answer_after_the_lock_ended_is_refused() -> None:  # scenario 36
    desk = holding()
    desk.wait(30_000)
    error = refused(desk, (0, 9, ACCEPT))
    assert isinstance(error, InvalidRecordState)
    assert str(error) == "The batch cannot be acknowledged. The batch is not in the acquired state."


def test_a_settled_record_above_the_start_cannot_be_settled_again() -> None:
    desk = holding()
    desk.acknowledge((5, 6, ACCEPT))
    error = refused(desk, (5, 6, ACCEPT))
    assert isinstance(error, InvalidRecordState)
    assert str(error) == "The offset cannot be acknowledged. The offset is not acquired."


def test_answers_beyond_the_end_are_bad_requests() -> None:  # scenario 36
    desk = holding()
    error = refused(desk, (10, 12, ACCEPT))
    assert isinstance(error, InvalidRequest)
    assert str(error) == "Batch record not found. The first offset in request is past acquired records."
    error = refused(desk, (5, 12, ACCEPT), member="m2")  # found before anyone asks who the holder is
    assert isinstance(error, InvalidRequest)
    assert str(error) == "Batch record not found. The last offset in request is past acquired records."


def test_answers_where_nothing_is_in_flight() -> None:
    desk = Desk(batches_of(5, 2))
    error = refused(desk, (0, 4, ACCEPT))
    assert isinstance(error, InvalidRecordState)
    assert str(error) == "Batch record not found. The request batch offsets are not found in the cache."
    desk.fetch()
    desk.acknowledge((0, 9, ACCEPT))
    desk.acknowledge((0, 9, ACCEPT))
    assert isinstance(refused(desk, (5, 12, ACCEPT)), InvalidRequest)
    assert isinstance(refused(desk, (10, 12, ACCEPT)), InvalidRecordState)


def test_holes_in_a_range_do_not_matter_but_its_ends_do() -> None:
    desk = Desk([(0, 4)])
    desk.fetch()
    desk.log = [(10, 14)]
    desk.fetch()
    assert isinstance(refused(desk, (2, 7, ACCEPT)), InvalidRequest)
    assert isinstance(refused(desk, (6, 8, ACCEPT)), InvalidRequest)
    desk.acknowledge((2, 14, ACCEPT))
    desk.acknowledge((0, 1, ACCEPT))
    assert desk.partition.start_offset == 15


@pytest.mark.parametrize(
    ("batches", "renew"),
    [
        ([(5, 4, ACCEPT)], False),
        ([(5, 8, ACCEPT), (7, 9, ACCEPT)], False),
        ([(5, 8, ACCEPT), (0, 4, ACCEPT)], False),
        ([(0, 4, [])], False),
        ([(0, 4, [1, 1])], False),
        ([(0, 4, [1, 1, 1, 1, 1, 1])], False),
        ([(0, 4, [5])], True),
        ([(0, 4, [-1])], True),
        ([(0, 4, RENEW)], False),
        ([(0, 4, [1, 1, 4, 1, 1])], False),
        ([(-5, 4, ACCEPT)], False),
    ],
)
def test_batches_that_contradict_the_protocol_are_bad_requests(
    batches: list[tuple[int, int, list[int]]], renew: bool
) -> None:  # scenario 37
    assert isinstance(refused(holding(), *batches, renew=renew), InvalidRequest)


def test_one_bad_batch_refuses_them_all_and_the_good_ones_can_be_sent_again() -> None:  # scenario 38
    desk = holding()
    desk.acknowledge((5, 5, ACCEPT))
    refused(desk, (0, 4, ACCEPT), (5, 5, ACCEPT))
    desk.acknowledge((0, 4, ACCEPT))
    assert desk.partition.start_offset == 6


def test_an_offset_at_the_seam_of_two_batches_is_answered_twice_and_so_refused() -> (
    None
):  # "Acknowledgement batches"
    desk = holding()
    assert isinstance(refused(desk, (0, 4, ACCEPT), (4, 9, ACCEPT)), InvalidRecordState)
    desk.acknowledge((0, 4, ACCEPT))
    desk.acknowledge((0, 4, ACCEPT), (4, 9, ACCEPT))  # below the start nobody minds
    assert desk.partition.start_offset == 10


def test_renewing_at_the_seam_leaves_the_record_to_the_next_batch() -> None:
    desk = holding()
    desk.acknowledge((0, 4, RENEW), (4, 9, ACCEPT), allows_renew=True)
    assert desk.states()[4] == (S.ACKNOWLEDGED, 1)
    assert desk.states()[3] == (S.ACQUIRED, 1)


def test_a_rejected_record_is_never_delivered_again() -> None:  # scenario 39
    desk = holding()
    desk.acknowledge((0, 9, REJECT))
    assert desk.written() == [(0, 10, [(0, 9, 4, 1)])]
    assert desk.fetch() == []


def test_releasing_at_the_delivery_limit_archives() -> None:  # scenario 40
    desk = Desk([(0, 0)])
    for count in range(1, 6):
        assert desk.fetch() == [(0, 0, count)]
        desk.acknowledge((0, 0, RELEASE))
    assert desk.fetch() == []
    assert desk.written()[-1] == (0, 1, [(0, 0, 4, 5)])
    assert desk.partition.start_offset == 1


def test_renewing_extends_the_lock_by_its_full_length_and_writes_nothing() -> None:  # scenario 43
    desk = holding()
    desk.wait(20_000)
    desk.acknowledge((0, 4, RENEW), allows_renew=True)
    assert desk.partition.deadline_ms() == 30_000
    desk.wait(10_000)
    assert desk.states()[4] == (S.ACQUIRED, 1)
    assert desk.states()[5] == (S.AVAILABLE, 1)
    assert desk.partition.deadline_ms() == 50_000
    assert len(desk.writes) == 1
    desk.wait(20_000)
    assert isinstance(refused(desk, (0, 4, RENEW), renew=True), InvalidRecordState)


def test_renewing_can_be_switched_off_for_a_group() -> None:  # scenario 43
    desk = holding(renew_enabled=False)
    error = refused(desk, (0, 4, ACCEPT), (5, 9, RENEW), renew=True)
    assert isinstance(error, InvalidRecordState)
    assert str(error) == "Renewing acquisition locks is not enabled for the group."


def test_renewing_twice_at_one_instant_is_renewing_once() -> None:
    desk = holding()
    for _ in range(2):
        desk.acknowledge((0, 9, RENEW), allows_renew=True)
    assert desk.partition.deadline_ms() == 30_000
    desk.wait(30_000)
    assert desk.states() == dict.fromkeys(range(10), (S.AVAILABLE, 1))


def test_an_empty_list_of_batches_changes_nothing() -> None:
    assert SharePartition(0).acknowledge("m1", [], limits=Desk([]).limits, now_ms=0) == []


def test_answers_across_several_in_flight_batches_are_one_change_each_and_one_range_to_write() -> None:
    desk = Desk(batches_of(5, 4))
    desk.fetch(batch_size=5)
    answer = [AckBatch(0, 19, (1,))]
    changes = desk.partition.acknowledge("m1", answer, limits=desk.limits, now_ms=0)
    assert [(change.first, change.last) for change in changes] == batches_of(5, 4)
    desk.apply(changes)
    assert desk.written() == [(0, 20, [(0, 19, 2, 1)])]


def test_types_for_each_offset_are_cut_at_in_flight_batches_and_at_changes_of_type() -> None:
    desk = Desk(batches_of(3, 2))
    desk.fetch(batch_size=3)
    desk.acknowledge((0, 5, [1, 1, 2, 2, 1, 1]))
    assert desk.written() == [(0, 4, [(0, 1, 2, 1), (2, 3, 0, 1), (4, 5, 2, 1)])]


class TestDeadLetters:
    def test_rejected_and_exhausted_records_wait_for_their_copy(self) -> None:
        desk = holding(4, dead_letters=True, delivery_limit=2)
        desk.acknowledge((0, 0, REJECT), (1, 3, RELEASE))
        desk.fetch()
        desk.acknowledge((1, 1, RELEASE), (2, 2, ACCEPT))
        assert [state for state, _ in desk.states().values()] == [
            S.ARCHIVING,
            S.ARCHIVING,
            S.ACKNOWLEDGED,
            S.ACQUIRED,
        ]
        assert desk.partition.start_offset == 0
        assert desk.partition.delivery_complete_count == 1
        assert [(batch.first, batch.last, batch.delivery_count) for batch in desk.partition.archiving()] == [
            (0, 0, 1),
            (1, 1, 2),
        ]
        assert desk.written()[0] == (0, 0, [(0, 0, 3, 1), (1, 3, 0, 1)])

    def test_once_copied_they_are_archived_and_the_start_moves(self) -> None:
        desk = holding(5, dead_letters=True)
        desk.acknowledge((0, 3, REJECT))
        desk.apply(desk.partition.dead_lettered(0, 1))
        assert desk.partition.start_offset == 2
        desk.apply(desk.partition.dead_lettered(0, 9))
        assert desk.partition.start_offset == 4
        assert desk.states() == {4: (S.ACQUIRED, 1)}
        assert desk.written()[1:] == [(0, 2, [(0, 1, 4, 1)]), (2, 2, [(2, 3, 4, 1)])]
        assert desk.partition.archiving() == []

    def test_nobody_else_gets_them_meanwhile_and_no_lock_is_left(self) -> None:
        desk = holding(4, dead_letters=True)
        desk.acknowledge((0, 3, REJECT))
        assert desk.partition.deadline_ms() is None
        assert desk.fetch("m2") == []
        assert isinstance(refused(desk, (0, 3, ACCEPT)), InvalidRecordState)

    def test_gaps_have_nothing_to_copy(self) -> None:
        desk = holding(4, dead_letters=True)
        desk.acknowledge((0, 3, [0]))
        assert desk.partition.start_offset == 4
