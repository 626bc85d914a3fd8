"""The buffer and the locks: taken, given back, renewed, released, expired."""

from collections.abc import Callable

import pytest

from headrace.client.core.acknowledgements import Ack
from headrace.client.core.ranges import AcquiredRange, RangeState
from headrace.client.errors import error_for
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.share_acknowledge_request import ShareAcknowledgeRequest
from headrace.wire.messages.share_acknowledge_response import (
    PartitionData,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)
from headrace.wire.messages.share_fetch_response import AcquiredRecords
from headrace.wire.messages.share_fetch_response import PartitionData as FetchedPartition
from tests.unit.client.core.test_member import LOCK_MS, TOPIC_ID, Driver
from tests.unit.work import operations

ACCEPT, RELEASE, RENEW = RangeState.ACCEPT, RangeState.RELEASE, RangeState.RENEW
HANDED, LOST = RangeState.HANDED, RangeState.LOST


def filled(*ranges: tuple[int, int], **settings: object) -> Driver:
    driver = Driver(1, share_acknowledgement_mode="explicit", **settings)
    driver.poll(0)
    driver.answer(
        1,
        *(
            FetchedPartition(
                partition_index=0,
                acquired_records=[AcquiredRecords(first_offset=first, last_offset=last, delivery_count=1)],
            )
            for first, last in ranges
        ),
    )
    driver.stop_asking()
    return driver


def answer(driver: Driver, code: int = 0, *, now_ms: int) -> None:
    part = PartitionData(partition_index=0, error_code=code)
    topic = ShareAcknowledgeTopicResponse(topic_id=TOPIC_ID, partitions=[part])
    response = ShareAcknowledgeResponse(responses=[topic], acquisition_lock_timeout_ms=LOCK_MS)
    driver.core.responded(1, response, now_ms=now_ms)


def test_what_a_broken_poll_has_taken_is_taken_again_in_the_same_order() -> None:
    driver = filled((0, 4), (5, 9))
    hands = driver.core.hands
    taken = hands.take(100, now_ms=0)
    assert hands.buffered == 0
    assert len(taken) == 2
    hands.put_back()
    assert hands.buffered == 10
    assert hands.take(100, now_ms=0) == taken


def test_putting_back_may_be_broken_off_and_done_again() -> None:
    driver = filled((0, 4), (5, 9))
    hands = driver.core.hands
    taken = hands.take(100, now_ms=0)
    hands._buffer.appendleft(taken[1])  # as far as it came
    hands.put_back()
    hands.put_back()
    assert hands.take(100, now_ms=0) == taken
    assert taken[0].acquired[0].taken_ms == 0


def test_records_that_were_lost_in_the_buffer_do_not_keep_polls_from_fetching() -> None:
    driver = filled((0, 4))
    driver.core.failed(1, error_for(ErrorCode.NETWORK_EXCEPTION, about="broker 1"), now_ms=0)
    assert driver.core.take(100, now_ms=5_000) == []
    assert 1 in driver.poll(5_000)


def test_what_waits_of_topics_nobody_wants_any_more_is_released() -> None:
    driver = filled((0, 4))
    driver.core.subscribe(["other"], now_ms=0)
    assert driver.take(100, now_ms=0) == []
    assert [ack.state for ack in driver.core._holdings.lanes[1].all_waiting()] == [RELEASE]


def test_an_unanswered_record_is_lost_when_its_lock_ends_and_told_once() -> None:
    driver = filled((0, 4))
    ((arrival),) = driver.take(100, now_ms=0)
    driver.sends(LOCK_MS)
    driver.sends(LOCK_MS + 1)
    (lost,) = driver.lost
    assert (lost.first, lost.last, lost.error.code) == (0, 4, ErrorCode.INVALID_RECORD_STATE)
    assert arrival.acquired[0].is_all(LOST)


def test_what_expires_in_the_buffer_is_told_to_nobody() -> None:
    driver = filled((0, 4))
    driver.core.sessions[1].reopen()  # no session, so nothing can be renewed or released
    driver.sends(LOCK_MS)
    assert driver.lost == []
    assert driver.core.take(100, now_ms=LOCK_MS) == []


def test_auto_renew_starts_the_lock_anew_from_when_the_renewal_was_sent() -> None:
    driver = filled((0, 4), auto_renew=True)
    ((arrival),) = driver.take(100, now_ms=0)
    (request,) = driver.sends(500).values()
    assert isinstance(request, ShareAcknowledgeRequest)
    answer(driver, now_ms=700)
    assert arrival.acquired[0].lock_until_ms == 500 + LOCK_MS
    assert driver.core.deadline_ms(now_ms=700) == 1_000


def test_an_answer_takes_its_record_out_of_the_renewal_that_waits() -> None:
    driver = filled((0, 4), auto_renew=True)
    ((arrival),) = driver.take(100, now_ms=0)
    driver.poll(100, wait_ms=10_000)  # a fetch is in flight, so the renewal has to wait
    driver.sends(500)
    driver.answer_range(arrival.acquired[0], 2, 2, ACCEPT)
    driver.sends(500)
    found = {(ack.first, ack.last, ack.state) for ack in driver.core._holdings.lanes[1].all_waiting()}
    assert found == {(0, 1, RENEW), (3, 4, RENEW), (2, 2, ACCEPT)}


def test_acquisitions_that_must_go_alone_take_turns() -> None:
    driver = filled((0, 4), (5, 9))
    driver.take(100, now_ms=0)
    holdings = driver.core._holdings
    one, two = holdings.lanes[1].acquired()
    error = error_for(ErrorCode.INVALID_RECORD_STATE)
    for number, acquired in enumerate((one, two)):
        ack = Ack(acquired, acquired.first, acquired.last, ACCEPT, number, is_alone=True)
        holdings.send_again(ack, error, now_ms=0)
    assert [ack.acquired for ack in holdings.lanes[1].send()] == [one]
    assert [ack.acquired for ack in holdings.lanes[1].responded()] == [one]
    assert [ack.acquired for ack in holdings.lanes[1].send()] == [two]


def test_a_refused_renewal_loses_what_is_in_hand_and_releases_what_waits() -> None:
    in_hand = filled((0, 4), auto_renew=True)
    in_hand.take(100, now_ms=0)
    waiting = filled((0, 4))
    for driver in (in_hand, waiting):
        driver.core.poll_began(now_ms=500)
        driver.sends(500)
        answer(driver, ErrorCode.INVALID_RECORD_STATE, now_ms=600)
    assert [(one.first, one.last) for one in in_hand.lost] == [(0, 4)]
    assert [ack.state for ack in waiting.core._holdings.lanes[1].all_waiting()] == [RELEASE]


def test_where_auto_renew_is_switched_off_a_lock_is_used_to_its_end() -> None:
    driver = filled((0, 4), auto_renew=True)
    driver.core.configure(auto_renew=False)  # the group is known to refuse it
    driver.take(100, now_ms=0)
    assert driver.sends(LOCK_MS - 1) == {}
    assert driver.lost == []
    driver.sends(LOCK_MS)
    assert [(one.first, one.last) for one in driver.lost] == [(0, 4)]


def test_an_acknowledgement_that_could_not_be_written_is_sent_again_while_the_lock_lives() -> None:
    driver = filled((0, 4))
    driver.take(100, now_ms=0)
    driver.accept_all()
    for now_ms in (0, 100, 300):
        assert 1 in driver.sends(now_ms)
        answer(driver, ErrorCode.COORDINATOR_NOT_AVAILABLE, now_ms=now_ms)
        assert driver.settled == []
    driver.sends(950)
    answer(driver, ErrorCode.COORDINATOR_NOT_AVAILABLE, now_ms=LOCK_MS)
    (settled,) = driver.settled
    assert settled.error is not None


def test_what_the_broker_delivers_again_is_lost_to_its_older_lock() -> None:
    driver = filled((0, 9))
    ((arrival),) = driver.take(100, now_ms=0)
    driver.poll(1)
    driver.arrive(1, 0, 3, 5)
    old = arrival.acquired[0]
    assert [(span.first, span.last, span.state) for span in old.spans()] == [
        (0, 2, HANDED),
        (3, 5, LOST),
        (6, 9, HANDED),
    ]


def test_a_renewal_that_is_sent_again_leaves_out_what_was_answered_meanwhile() -> None:
    driver = filled((0, 4), auto_renew=True)
    ((arrival),) = driver.take(100, now_ms=0)
    driver.sends(500)  # the renewal of 0 to 4
    driver.answer_range(arrival.acquired[0], 2, 2, ACCEPT)
    driver.sends(501)
    answer(driver, ErrorCode.COORDINATOR_NOT_AVAILABLE, now_ms=502)
    found = {(ack.first, ack.last, ack.state) for ack in driver.core._holdings.lanes[1].all_waiting()}
    assert found == {(0, 1, RENEW), (3, 4, RENEW), (2, 2, ACCEPT)}


def released_later(due_ms: int, **settings: object) -> tuple[Driver, AcquiredRange]:
    """Offset 2 of 0 to 4 is to be released at that time."""
    driver = filled((0, 4), **settings)
    ((arrival),) = driver.take(100, now_ms=0)
    (acquired,) = arrival.acquired
    assert driver.core.hands.release_later(acquired, 2, due_ms)
    return driver, acquired


def sent_types(driver: Driver, now_ms: int) -> list[tuple[int, int, int]]:
    driver.sends(now_ms)
    return [(ack.first, ack.last, ack.state) for ack in driver.core._holdings.lanes[1].in_flight]


def test_a_record_that_is_released_later_is_kept_and_renewed_until_then_without_auto_renew() -> None:
    driver, acquired = released_later(2_000)
    assert driver.core.deadline_ms(now_ms=0) == LOCK_MS // 2
    assert sent_types(driver, 500) == [(2, 2, RENEW)]
    answer(driver, now_ms=510)
    assert acquired.lock_until_ms_of(2) == 1_500
    driver.sends(1_000)  # the lock of the others ends
    assert [(one.first, one.last) for one in driver.lost] == [(0, 1), (3, 4)]
    assert acquired.state_of(2) is RangeState.DELAYED
    answer(driver, now_ms=1_010)
    assert acquired.lock_until_ms_of(2) == 2_000
    assert sent_types(driver, 1_500) == [(2, 2, RENEW)]
    answer(driver, now_ms=1_510)
    assert driver.core.deadline_ms(now_ms=1_510) == 2_000
    assert sent_types(driver, 2_000) == [(2, 2, RELEASE)]
    answer(driver, now_ms=2_010)
    assert acquired.state_of(2) is RangeState.DONE
    assert driver.core._holdings.outstanding == 0


def test_a_release_that_falls_due_sends_no_other_answer_early() -> None:
    driver, acquired = released_later(100)
    driver.core.hands.answer_all(acquired, 0, 1, ACCEPT)
    driver.core.hands.answer_all(acquired, 3, 4, ACCEPT)
    assert sent_types(driver, 100) == [(2, 2, RELEASE)]
    assert acquired.state_of(0) is ACCEPT


def test_another_answer_replaces_a_release_that_is_not_due_and_its_time_means_nothing() -> None:
    driver, acquired = released_later(100)
    driver.core.hands.answer_all(acquired, 0, 4, ACCEPT)
    driver.core.send_answers()
    assert sent_types(driver, 100) == [(0, 4, ACCEPT)]


def test_a_second_delay_replaces_the_first() -> None:
    driver, acquired = released_later(100)
    driver.core.hands.release_later(acquired, 2, 300)
    assert sent_types(driver, 100) == []
    assert sent_types(driver, 300) == [(2, 2, RELEASE)]


def test_a_delay_during_a_renewal_waits_for_it() -> None:
    driver = filled((0, 0))
    ((arrival),) = driver.take(100, now_ms=0)
    (acquired,) = arrival.acquired
    hands = driver.core.hands
    hands.renew(acquired, 0)
    driver.core.send_answers()
    assert sent_types(driver, 10) == [(0, 0, RENEW)]
    assert hands.release_later(acquired, 0, 400)
    answer(driver, now_ms=20)
    assert sent_types(driver, 30) == []
    assert sent_types(driver, 400) == [(0, 0, RELEASE)]


def test_a_delayed_release_whose_lock_is_lost_is_reported_as_an_answer_that_came_too_late() -> None:
    driver, acquired = released_later(2_000)
    error = error_for(ErrorCode.NETWORK_EXCEPTION)
    driver.core.failed(1, error, now_ms=10)
    driver.core.send_answers()
    driver.sends(10)
    assert [(one.first, one.last, one.type) for one in driver.settled] == [(2, 2, -1)]
    assert [(one.first, one.last) for one in driver.lost] == [(0, 1), (3, 4)]
    assert acquired.is_finished


def test_where_renewals_are_refused_a_delayed_release_is_made_at_once() -> None:
    driver, _ = released_later(2_000)
    assert sent_types(driver, 500) == [(2, 2, RENEW)]
    answer(driver, ErrorCode.INVALID_RECORD_STATE, now_ms=510)
    assert sent_types(driver, 510) == [(2, 2, RELEASE)]


def test_a_broker_without_renewals_gets_a_delayed_record_back_before_the_lock_ends() -> None:
    driver, _ = released_later(2_000)
    driver.core.connected(1, is_old=True)
    assert sent_types(driver, 500) == []
    assert driver.core.deadline_ms(now_ms=500) == LOCK_MS - LOCK_MS // 10
    assert sent_types(driver, 900) == [(2, 2, RELEASE)]


def test_closing_releases_what_was_to_be_released_later() -> None:
    driver, _ = released_later(2_000)
    driver.core.close(10_000, now_ms=10)
    assert sent_types(driver, 10) == [(2, 2, RELEASE)]


def test_a_record_that_is_released_later_counts_as_held() -> None:
    driver, acquired = released_later(2_000)
    driver.core.hands.answer_all(acquired, 0, 1, ACCEPT)
    driver.core.hands.answer_all(acquired, 3, 4, ACCEPT)
    driver.core.send_answers()
    driver.sends(10)
    assert driver.core._holdings.outstanding == 1


def every_other_row_released_later(rows: int) -> None:
    driver = filled((0, rows - 1), auto_renew=True)
    ((arrival),) = driver.take(rows, now_ms=0)
    (acquired,) = arrival.acquired
    hands = driver.core.hands
    odd, even = bytes([0, 1]) * (rows // 2), bytes([1, 0]) * (rows // 2)
    assert hands.release_some_later([(acquired, 0, odd)], 700)
    driver.sends(500)  # renews all
    answer(driver, now_ms=510)
    assert hands.answer_some([(acquired, 0, even)], ACCEPT)
    assert len(sent_types(driver, 700)) == rows // 2
    answer(driver, now_ms=710)
    driver.core.send_answers()
    assert len(sent_types(driver, 720)) == rows // 2
    answer(driver, now_ms=730)
    assert acquired.is_finished


def all_answered_while_their_renewals_wait(rows: int) -> None:
    driver = filled((0, rows - 1), auto_renew=True)
    ((arrival),) = driver.take(rows, now_ms=0)
    (acquired,) = arrival.acquired
    hands, holdings = driver.core.hands, driver.core._holdings
    assert hands.answer_some([(acquired, 0, bytes([1, 0]) * (rows // 2))], ACCEPT)
    driver.core._locks.check(is_out=False, polled_ms=0, now_ms=500)
    assert len(holdings.lanes[1].all_waiting()) == rows
    driver.core.send_answers()
    assert len(holdings.lanes[1].all_waiting()) == rows
    driver.sends(510)
    answer(driver, now_ms=520)
    assert acquired.lock_until_ms == 510 + LOCK_MS


@pytest.mark.parametrize("scenario", [every_other_row_released_later, all_answered_while_their_renewals_wait])
def test_answers_for_many_rows_of_a_range_cost_no_more_for_each_than_those_for_few(
    scenario: Callable[[int], None],
) -> None:
    few, many = operations(lambda: scenario(40)), operations(lambda: scenario(160))
    assert many < 6 * few


def single_records(records: int) -> tuple[Driver, list[AcquiredRange]]:
    """As many ranges as records: the broker had released each of them alone."""
    driver = filled(auto_renew=True)
    driver.poll(0)
    driver.answer(1, singles(records))
    driver.stop_asking()
    (arrival,) = driver.take(records, now_ms=0)
    return driver, list(arrival.acquired)


def singles(records: int, delivery_count: int = 1) -> FetchedPartition:
    return FetchedPartition(
        partition_index=0,
        acquired_records=[
            AcquiredRecords(first_offset=offset, last_offset=offset, delivery_count=delivery_count)
            for offset in range(0, 2 * records, 2)
        ],
    )


def many_ranges_are_renewed_and_answered_one_by_one(records: int) -> None:
    driver, ranges = single_records(records)
    driver.core._locks.check(is_out=False, polled_ms=0, now_ms=500)
    for acquired in ranges[: records // 2]:  # while their renewals wait
        assert driver.core.hands.answer(acquired, acquired.first, ACCEPT)
        driver.core._holdings.send_answers()
    driver.sends(510)
    answer(driver, now_ms=520)
    for acquired in ranges[records // 2 :]:
        assert driver.core.hands.answer(acquired, acquired.first, ACCEPT)
        driver.core._holdings.send_answers()
    driver.sends(530)
    answer(driver, now_ms=540)
    assert all(acquired.is_finished for acquired in ranges)
    assert list(driver.core._holdings.lanes[1].acquired()) == []


def many_ranges_are_delivered_again(records: int) -> None:
    driver, ranges = single_records(records)
    driver.core._locks.check(is_out=False, polled_ms=0, now_ms=500)  # renewals wait for all of them
    again = singles(records, delivery_count=2)
    driver.core._holdings.arrive(1, (TOPIC_ID, 0), again, topic="t", lock_ms=LOCK_MS, sent_ms=500, now_ms=510)
    assert all(acquired.is_finished for acquired in ranges)
    assert len(driver.lost) == records
    assert driver.core._holdings.lanes[1].all_waiting() == []


@pytest.mark.parametrize(
    "scenario", [many_ranges_are_renewed_and_answered_one_by_one, many_ranges_are_delivered_again]
)
def test_each_of_many_ranges_costs_no_more_than_each_of_few(scenario: Callable[[int], None]) -> None:
    few, many = operations(lambda: scenario(40)), operations(lambda: scenario(320))
    assert many < 9 * few
