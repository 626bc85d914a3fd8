"""The buffer and the locks: taken, given back, renewed, released, expired."""

from headrace.client.core.acquired import ACCEPT, LOST, OPEN, RELEASE, RENEW
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.share_acknowledge_request import ShareAcknowledgeRequest
from headrace.wire.messages.share_acknowledge_response import (
    PartitionData,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)
from tests.unit.client.core.test_member import LOCK_MS, TOPIC_ID, Driver


def filled(*ranges: tuple[int, int], **settings: object) -> Driver:
    driver = Driver(1, share_acknowledgement_mode="explicit", **settings)
    for first, last in ranges:
        driver.poll(0)
        driver.arrive(1, 0, first, last)
    driver.core.ask(None)
    return driver


def answer(driver: Driver, code: int = 0, *, now_ms: int) -> None:
    part = PartitionData(partition_index=0, error_code=code)
    topic = ShareAcknowledgeTopicResponse(topic_id=TOPIC_ID, partitions=[part])
    response = ShareAcknowledgeResponse(responses=[topic], acquisition_lock_timeout_ms=LOCK_MS)
    driver.core.answered(1, response, now_ms=now_ms)


def test_what_is_given_back_is_taken_again_in_the_same_order() -> None:
    driver = filled((0, 4))
    holdings = driver.core.holdings
    taken = driver.core.take(100, now_ms=0)
    assert holdings.buffered == 0
    holdings.give_back(taken)
    assert holdings.buffered == 5
    assert driver.core.take(100, now_ms=0) == taken


def test_a_take_that_is_broken_off_leaves_the_buffer_as_it_was() -> None:
    holdings = filled((0, 4)).core.holdings
    before = tuple(holdings.buffer)
    holdings.take(1, now_ms=0)
    holdings.restore(before)
    assert (tuple(holdings.buffer), holdings.buffered) == (before, 5)
    assert before[0].acquired[0].taken_ms is None


def test_what_waits_of_topics_nobody_wants_any_more_is_released() -> None:
    driver = filled((0, 4))
    driver.core.subscribe(["other"], now_ms=0)
    assert driver.core.take(100, now_ms=0) == []
    assert [ack.mark for ack in driver.core.sessions[1].pending] == [RELEASE]


def test_an_unanswered_record_is_lost_when_its_lock_ends_and_told_once() -> None:
    driver = filled((0, 4))
    ((arrival),) = driver.core.take(100, now_ms=0)
    driver.sends(LOCK_MS)
    driver.sends(LOCK_MS + 1)
    (lost,) = driver.core.holdings.lost
    assert (lost.first, lost.last, lost.error.code) == (0, 4, ErrorCode.INVALID_RECORD_STATE)
    assert arrival.acquired[0].uniform == LOST


def test_what_expires_in_the_buffer_is_told_to_nobody() -> None:
    driver = filled((0, 4))
    driver.core.sessions[1].epoch = 0  # no session, so nothing can be renewed or released
    driver.core.sends = lambda *, now_ms: []  # type: ignore[method-assign]
    driver.sends(LOCK_MS)
    assert driver.core.holdings.lost == []
    assert driver.core.take(100, now_ms=LOCK_MS) == []


def test_auto_renew_starts_the_lock_anew_from_when_the_renewal_was_sent() -> None:
    driver = filled((0, 4), auto_renew=True)
    ((arrival),) = driver.core.take(100, now_ms=0)
    (request,) = driver.sends(500).values()
    assert isinstance(request, ShareAcknowledgeRequest)
    answer(driver, now_ms=700)
    assert arrival.acquired[0].lock_until_ms == 500 + LOCK_MS
    assert driver.core.deadline_ms(now_ms=700) == 1_000


def test_an_answer_takes_its_record_out_of_the_renewal_that_waits() -> None:
    driver = filled((0, 4), auto_renew=True)
    ((arrival),) = driver.core.take(100, now_ms=0)
    driver.core.ask(10_000)
    driver.core.sends(now_ms=100)  # a fetch is in flight, so the renewal has to wait
    driver.core.tick(now_ms=500)
    acquired = arrival.acquired[0]
    acquired.choose(2, ACCEPT)
    driver.core.holdings.sweep([acquired])
    found = {(ack.first, ack.last, ack.mark) for ack in driver.core.sessions[1].pending}
    assert found == {(0, 1, RENEW), (3, 4, RENEW), (2, 2, ACCEPT)}


def test_a_refused_renewal_loses_what_is_in_hand_and_releases_what_waits() -> None:
    in_hand = filled((0, 4), auto_renew=True)
    in_hand.core.take(100, now_ms=0)
    waiting = filled((0, 4))
    for driver in (in_hand, waiting):
        driver.sends(500)
        answer(driver, ErrorCode.INVALID_RECORD_STATE, now_ms=600)
    assert [(one.first, one.last) for one in in_hand.core.holdings.lost] == [(0, 4)]
    assert [ack.mark for ack in waiting.core.sessions[1].pending] == [RELEASE]


def test_where_auto_renew_is_switched_off_a_lock_is_used_to_its_end() -> None:
    driver = filled((0, 4), auto_renew=True)
    driver.core.holdings.auto_renew = False  # the group is known to refuse it
    driver.core.take(100, now_ms=0)
    assert driver.sends(LOCK_MS - 1) == {}
    assert driver.core.holdings.lost == []
    driver.sends(LOCK_MS)
    assert [(one.first, one.last) for one in driver.core.holdings.lost] == [(0, 4)]


def test_an_acknowledgement_that_could_not_be_written_is_sent_again_while_the_lock_lives() -> None:
    driver = filled((0, 4))
    driver.core.take(100, now_ms=0)
    driver.accept_all()
    for now_ms in (0, 100, 300):
        assert 1 in driver.sends(now_ms)
        answer(driver, ErrorCode.COORDINATOR_NOT_AVAILABLE, now_ms=now_ms)
        assert driver.core.holdings.settled == []
    driver.sends(950)
    answer(driver, ErrorCode.COORDINATOR_NOT_AVAILABLE, now_ms=LOCK_MS)
    (settled,) = driver.core.holdings.settled
    assert settled.error is not None


def test_what_the_broker_delivers_again_is_lost_to_its_older_lock() -> None:
    driver = filled((0, 9))
    ((arrival),) = driver.core.take(100, now_ms=0)
    driver.poll(1)
    driver.arrive(1, 0, 3, 5)
    old = arrival.acquired[0]
    assert [(span.first, span.last, span.mark) for span in old.spans()] == [
        (0, 2, OPEN),
        (3, 5, LOST),
        (6, 9, OPEN),
    ]
