"""States of acquired offsets: what may follow what, as one state and as one for each offset."""

import tracemalloc

import pytest

from headrace.client.core.ranges import (
    FINISHED,
    LENIENT,
    REFUSED,
    STRICT,
    TRANSITIONS,
    UNSENT,
    UNSETTLED,
    AcquiredRange,
    RangeCause,
    RangeState,
    Span,
)

S, C = RangeState, RangeCause


def acquired(first: int = 10, last: int = 19, *, is_handed: bool = True) -> AcquiredRange:
    one = AcquiredRange(
        "t",
        0,
        first=first,
        last=last,
        delivery_count=1,
        topic_id=b"t" * 16,
        node_id=1,
        lock_ms=1_000,
        lock_until_ms=1_000,
    )
    if is_handed:
        one.apply(C.TAKE)
        one.apply(C.HAND_OUT)
    return one


def give(one: AcquiredRange, offset: int, type: int) -> bool:
    return one.answer_all(offset, offset, type)


def test_the_compiled_tables_say_what_the_law_says() -> None:
    for state in S:
        for cause in C:
            lawful = TRANSITIONS.get((state, cause))
            assert LENIENT[cause][state] == (state if lawful is None else lawful)
            if cause <= C.DELAY:
                assert STRICT[cause][state] == (REFUSED if lawful is None else lawful)


def test_answers_have_the_numbers_of_the_wire() -> None:
    assert [(S(n).name, C(n).name) for n in range(1, 5)] == [
        (name, name) for name in ("ACCEPT", "RELEASE", "REJECT", "RENEW")
    ]


def test_every_state_can_be_reached_and_all_but_the_last_can_be_left() -> None:
    reached, more = {S.BUFFERED}, True
    while more:
        found = {after for (before, _), after in TRANSITIONS.items() if before in reached} - reached
        reached, more = reached | found, bool(found)
    assert reached == set(S)
    assert set(S) - {before for before, _ in TRANSITIONS} == {S.DONE}


def test_what_was_sent_is_changed_by_its_response_alone() -> None:
    """So that no acquisition is acknowledged twice."""
    assert {cause for state, cause in TRANSITIONS if state is S.SENT} == {C.CONFIRM, C.REFUSE}


def test_only_what_was_handed_out_can_be_answered() -> None:
    before = {state for state, cause in TRANSITIONS if cause is C.ACCEPT}
    assert not before & {S.BUFFERED, S.TAKEN, S.GAP, S.SENT, S.DONE}


def test_what_is_sent_counts_no_more_and_what_is_finished_counts_nowhere() -> None:
    assert not set(FINISHED) & set(UNSETTLED)
    assert set(UNSENT) < set(UNSETTLED)
    assert S.SENT not in UNSETTLED


def test_a_whole_range_is_decided_without_a_byte_for_each_offset() -> None:
    one = acquired()
    assert one.answer_all(10, 19, S.ACCEPT)
    assert one.is_all(S.ACCEPT)
    assert one.apply(C.SEND) == [Span(10, 19, S.ACCEPT)]
    one.apply(C.CONFIRM)
    assert one.is_finished
    assert one.is_all(S.DONE)


def test_single_offsets_become_runs() -> None:
    one = acquired()
    for offset in (10, 11, 12):
        assert give(one, offset, S.ACCEPT)
    assert give(one, 15, S.REJECT)
    assert one.count_of(bytes([S.HANDED])) == 6
    assert one.apply(C.SEND) == [Span(10, 12, S.ACCEPT), Span(15, 15, S.REJECT)]
    assert list(one.spans()) == [
        Span(10, 12, S.SENT),
        Span(13, 14, S.HANDED),
        Span(15, 15, S.SENT),
        Span(16, 19, S.HANDED),
    ]
    assert list(one.spans(of=bytes([S.SENT]))) == [Span(10, 12, S.SENT), Span(15, 15, S.SENT)]


def test_offsets_that_agree_again_have_one_state() -> None:
    one = acquired()
    for offset in range(10, 20):
        give(one, offset, S.ACCEPT)
    assert one.apply(C.SEND) == [Span(10, 19, S.ACCEPT)]
    assert one.is_all(S.SENT)


def test_the_last_answer_before_it_is_sent_counts() -> None:
    one = acquired(0, 0)
    give(one, 0, S.ACCEPT)
    give(one, 0, S.RELEASE)
    assert one.apply(C.SEND) == [Span(0, 0, S.RELEASE)]


def test_what_was_sent_cannot_be_answered_again() -> None:
    one = acquired()
    one.answer_all(10, 19, S.ACCEPT)
    one.apply(C.SEND)
    assert not one.answer_all(10, 19, S.RELEASE)
    assert not give(one, 12, S.RELEASE)
    assert one.apply(C.SEND) == []


def test_a_range_is_answered_as_a_whole_or_not_at_all() -> None:
    one = acquired()
    give(one, 15, S.ACCEPT)
    one.apply(C.SEND)
    assert not one.answer_all(14, 16, S.REJECT)
    assert one.state_of(14) is S.HANDED


def test_a_renewed_offset_is_in_hand_again() -> None:
    one = acquired()
    give(one, 10, S.RENEW)
    one.apply(C.SEND)
    assert one.state_of(10) is S.RENEWING
    one.apply(C.CONFIRM, 10, 10)
    assert one.state_of(10) is S.HANDED


@pytest.mark.parametrize("answer", [S.ACCEPT, S.RELEASE, S.REJECT])
def test_an_answer_during_a_renewal_waits_for_it(answer: RangeState) -> None:
    one = acquired()
    give(one, 10, S.RENEW)
    one.apply(C.SEND)
    assert give(one, 10, S.REJECT)
    assert give(one, 10, answer)
    assert one.apply(C.SEND) == []
    one.apply(C.CONFIRM, 10, 10)
    assert one.apply(C.SEND) == [Span(10, 10, answer)]


def test_losing_the_lock_tells_what_it_took_and_leaves_alone_what_is_on_its_way() -> None:
    one = acquired(is_handed=False)
    one.apply(C.TAKE)
    one.apply(C.MISS, 12, 12)
    one.apply(C.HAND_OUT)
    give(one, 10, S.ACCEPT)
    one.apply(C.SEND, 10, 10)
    give(one, 11, S.RELEASE)
    assert one.apply(C.LOSE) == [Span(11, 11, S.RELEASE), Span(12, 12, S.GAP), Span(13, 19, S.HANDED)]
    states = [one.state_of(offset) for offset in (10, 11, 12, 13)]
    assert states == [S.SENT, S.LATE, S.DONE, S.LOST]
    assert one.apply(C.LOSE) == []


def test_an_answer_to_a_lost_record_is_reported_once_and_not_sent() -> None:
    one = acquired(0, 1)
    one.apply(C.LOSE)
    assert give(one, 0, S.ACCEPT)
    assert one.apply(C.SEND) == [Span(0, 0, S.LATE)]
    assert one.apply(C.SEND) == []
    assert one.is_finished


def test_part_of_a_range_can_be_lost() -> None:
    one = acquired()
    one.apply(C.LOSE, 12, 14)
    assert list(one.spans()) == [Span(10, 11, S.HANDED), Span(12, 14, S.LOST), Span(15, 19, S.HANDED)]
    assert one.count_of(UNSETTLED) == 7


def test_a_part_that_was_renewed_outlives_the_rest() -> None:
    one = acquired()
    one.extend(5_000, [Span(12, 13, S.HANDED)])
    assert one.lock_until_ms_of(12) == 5_000
    assert one.lock_until_ms_of(11) == 1_000
    assert [lost[:2] for lost in one.expire(1_000)] == [(10, 11), (14, 19)]
    assert one.lock_until_ms == 5_000
    assert [lost[:2] for lost in one.expire(5_000)] == [(10, 19)]


def test_renewing_all_that_is_held_renews_the_range() -> None:
    one = acquired()
    one.answer_all(10, 15, S.ACCEPT)
    one.apply(C.SEND)
    one.extend(5_000, [Span(16, 19, S.HANDED)])
    assert one.lock_until_ms == 5_000


def test_renewing_the_parts_one_by_one_renews_the_range() -> None:
    one = acquired()
    one.extend(5_000, [Span(10, 14, S.HANDED)])
    assert one.lock_until_ms == 1_000
    one.extend(6_000, [Span(15, 19, S.HANDED)])
    assert one.lock_until_ms == 5_000
    assert one.lock_until_ms_of(15) == 6_000
    one.extend(7_000, [Span(13, 16, S.HANDED)])
    assert [one.lock_until_ms_of(offset) for offset in (12, 13, 16, 17)] == [5_000, 7_000, 7_000, 6_000]
    assert [lost[:2] for lost in one.expire(5_000)] == [(10, 12)]


def test_a_small_piece_of_a_large_range_costs_no_copy_of_the_range() -> None:
    """Spark answers for thousands of pieces of one range: copies would be quadratic work."""
    one = acquired(0, 999_999)
    give(one, 0, C.ACCEPT)
    tracemalloc.start()
    try:
        for offset in range(1, 200):
            assert give(one, offset, C.ACCEPT if offset % 2 else C.RELEASE)
            assert not one.is_finished
        assert list(one.spans(199, 201)) == [Span(199, 199, S.ACCEPT), Span(200, 201, S.HANDED)]
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 100_000
