"""Marks of acquired offsets: what may follow what, as one mark and as one for each offset."""

import pytest

from headrace.client.core.acquired import (
    ACCEPT,
    DONE,
    GAP,
    LATE,
    LOST,
    OPEN,
    REJECT,
    RELEASE,
    RENEW,
    RENEWING,
    SENT,
    Acquired,
    Span,
)


def acquired(first: int = 10, last: int = 19) -> Acquired:
    return Acquired(
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


def test_a_whole_range_is_decided_without_a_byte_for_each_offset() -> None:
    one = acquired()
    assert one.choose_range(10, 19, ACCEPT)
    assert one.marks is None
    assert one.sweep() == [Span(10, 19, ACCEPT)]
    assert one.finish(10, 19) == 10
    assert one.is_finished
    assert one.marks is None


def test_single_offsets_become_runs() -> None:
    one = acquired()
    for offset in (10, 11, 12):
        assert one.choose(offset, ACCEPT)
    assert one.choose(15, REJECT)
    assert one.open_count == 6
    assert one.sweep() == [Span(10, 12, ACCEPT), Span(15, 15, REJECT)]
    assert list(one.spans()) == [
        Span(10, 12, SENT),
        Span(13, 14, OPEN),
        Span(15, 15, SENT),
        Span(16, 19, OPEN),
    ]


def test_the_last_choice_before_the_sweep_counts() -> None:
    one = acquired(0, 0)
    one.choose(0, ACCEPT)
    one.choose(0, RELEASE)
    assert one.sweep() == [Span(0, 0, RELEASE)]


def test_what_was_sent_cannot_be_chosen_again() -> None:
    one = acquired()
    one.choose_range(10, 19, ACCEPT)
    one.sweep()
    assert not one.choose_range(10, 19, RELEASE)
    assert not one.choose(12, RELEASE)
    assert one.sweep() == []


def test_a_range_is_chosen_as_a_whole_or_not_at_all() -> None:
    one = acquired()
    one.choose(15, ACCEPT)
    one.sweep()
    assert not one.choose_range(14, 16, REJECT)
    assert one.mark_of(14) == OPEN


def test_choosing_what_is_open_leaves_other_choices_alone() -> None:
    one = acquired()
    one.choose(12, RELEASE)
    one.choose_open(ACCEPT)
    assert one.sweep() == [Span(10, 11, ACCEPT), Span(12, 12, RELEASE), Span(13, 19, ACCEPT)]


def test_a_renewed_offset_is_open_again() -> None:
    one = acquired()
    one.choose(10, RENEW)
    one.sweep()
    assert one.mark_of(10) == RENEWING
    assert one.renewed(10, 10) == 1
    assert one.mark_of(10) == OPEN


def test_losing_the_lock_tells_what_it_took_and_leaves_alone_what_is_on_its_way() -> None:
    one = acquired()
    one.choose(10, ACCEPT)
    one.sweep()
    one.choose(11, RELEASE)
    one.choose(12, GAP)
    assert one.lose() == [Span(11, 11, RELEASE), Span(12, 12, GAP), Span(13, 19, OPEN)]
    assert [one.mark_of(offset) for offset in (10, 11, 12, 13)] == [SENT, LATE, DONE, LOST]
    assert one.lose() == []


def test_an_answer_to_a_lost_record_is_reported_once_and_not_sent() -> None:
    one = acquired(0, 1)
    one.lose()
    assert one.choose(0, ACCEPT)
    assert one.sweep() == [Span(0, 0, LATE)]
    assert one.sweep() == []
    assert one.is_finished


def test_part_of_a_range_can_be_lost() -> None:
    one = acquired()
    one.lose(12, 14)
    assert list(one.spans()) == [Span(10, 11, OPEN), Span(12, 14, LOST), Span(15, 19, OPEN)]
    assert one.unsettled_count == 7


def test_a_part_that_was_renewed_outlives_the_rest() -> None:
    one = acquired()
    one.extend(5_000, 12, 13)
    assert one.lock_until_ms_of(12) == 5_000
    assert one.lock_until_ms_of(11) == 1_000
    assert one.expired(1_000) == [(10, 11), (14, 19)]
    assert one.lock_until_ms == 5_000
    assert one.expired(5_000) == [(10, 19)]


def test_renewing_all_that_is_held_renews_the_range() -> None:
    one = acquired()
    one.choose_range(10, 15, ACCEPT)
    one.sweep()
    one.extend(5_000, 16, 19)
    assert one.lock_until_ms == 5_000


@pytest.mark.parametrize("mark", [ACCEPT, OPEN])
def test_held_is_what_no_request_has(mark: int) -> None:
    one = acquired()
    one.choose_range(10, 12, RELEASE)
    one.sweep()
    one.choose(13, mark)
    assert sum(span.last - span.first + 1 for span in one.held()) == 7
