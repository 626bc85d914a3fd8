"""When the core fetches, how much, from whom, and what it makes of answers: policy that the model test leaves open."""

from typing import Any

import pytest

from headrace.base.backoff import Jitter
from headrace.client.core.acknowledgements import Lost, Settled
from headrace.client.core.holdings import Arrival
from headrace.client.core.member import LeaderHint, MemberCore
from headrace.client.core.placement import TopicView
from headrace.client.core.ranges import AcquiredRange, RangeState
from headrace.client.errors import InvalidShareSessionEpochError, error_for
from headrace.client.settings import ShareSettings
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages.share_acknowledge_request import ShareAcknowledgeRequest
from headrace.wire.messages.share_acknowledge_response import PartitionData as AcknowledgedPartition
from headrace.wire.messages.share_acknowledge_response import (
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)
from headrace.wire.messages.share_fetch_request import ShareFetchRequest
from headrace.wire.messages.share_fetch_response import (
    AcquiredRecords,
    LeaderIdAndEpoch,
    PartitionData,
    ShareFetchableTopicResponse,
    ShareFetchResponse,
)
from headrace.wire.messages.share_group_heartbeat_response import (
    Assignment,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)

TOPIC_ID = b"t" * 16
LOCK_MS = 1_000
E = ErrorCode
ACCEPT, REJECT, RENEW = RangeState.ACCEPT, RangeState.REJECT, RangeState.RENEW


class Half(Jitter):
    """No jitter at all."""

    def __init__(self) -> None:
        super().__init__(0)

    def fraction(self) -> float:
        return 0.5


class Driver:
    """A core with its assignment: partition n is led by broker `leaders[n]`."""

    def __init__(
        self,
        *leaders: int,
        capacity: int = 0,
        is_ahead: bool = False,
        acquire_only: bool = False,
        **settings: Any,
    ) -> None:
        given = {"bootstrap_servers": "x:1", "group_id": "g", "max_poll_records": 10, **settings}
        self.core = MemberCore(
            ShareSettings.parse(given),
            "m",
            capacity=capacity,
            is_ahead=is_ahead,
            acquire_only=acquire_only,
            jitter=Half(),
        )
        self._settled: list[Settled] = []
        self._lost: list[Lost] = []
        self.hints: list[LeaderHint] = []
        self.wants_metadata = False
        self.core.subscribe(["t"], now_ms=0)
        self.sends(0)
        assigned = TopicPartitions(topic_id=TOPIC_ID, partitions=list(range(len(leaders))))
        self.core.heartbeat_responded(
            ShareGroupHeartbeatResponse(
                member_epoch=2,
                heartbeat_interval_ms=5_000,
                assignment=Assignment(topic_partitions=[assigned]),
            ),
            now_ms=0,
        )
        self.core.learn({TOPIC_ID: TopicView("t", dict(enumerate(leaders)))}, now_ms=0)

    def sends(self, now_ms: int) -> dict[int | None, Any]:
        commands = self.core.commands(now_ms=now_ms)
        self._settled += commands.settled
        self._lost += commands.lost
        self.hints += commands.hints
        self.wants_metadata = commands.refresh is not None
        sent: dict[int | None, Any] = {send.node_id: send.request for send in commands.sends}
        if commands.heartbeat is not None:
            sent[None] = commands.heartbeat.request
        return sent

    def _told(self) -> None:
        settled, lost = self.core._holdings.told()
        self._settled += settled
        self._lost += lost

    @property
    def settled(self) -> list[Settled]:
        """All that was told so far."""
        self._told()
        return self._settled

    @property
    def lost(self) -> list[Lost]:
        self._told()
        return self._lost

    @property
    def errors(self) -> list[KafkaError]:
        """What polls would raise."""
        return list(self.core._errors)

    def poll(self, now_ms: int, wait_ms: int = 500) -> dict[int | None, Any]:
        self.core.poll_began(now_ms=now_ms)
        self.core.poll_waits(now_ms + wait_ms, now_ms=now_ms)
        return self.sends(now_ms)

    def ask(self, until_ms: int) -> None:
        self.core.poll_waits(until_ms, now_ms=0)

    def stop_asking(self) -> None:
        if self.core._asked_until_ms is not None:
            self.core.poll_ended(self.core._asked_until_ms)

    def take(self, records_max: int = 100, *, now_ms: int) -> list[Arrival]:
        """As whoever hands out at once what it takes."""
        taken = self.core.take(records_max, now_ms=now_ms)
        for arrival in taken:
            for acquired in arrival.acquired:
                self.core.hands.hand_out(acquired)
        self.core.hands.decoded()
        return taken

    def answer_range(self, acquired: AcquiredRange, first: int, last: int, type: int = ACCEPT) -> bool:
        is_new = self.core.hands.answer_all(acquired, first, last, type)
        self.core.send_answers()
        return is_new

    def arrive(
        self, node: int, partition: int, first: int, last: int, *, now_ms: int = 0, delivery_count: int = 1
    ) -> None:
        acquired = AcquiredRecords(first_offset=first, last_offset=last, delivery_count=delivery_count)
        self.answer(
            node, PartitionData(partition_index=partition, acquired_records=[acquired]), now_ms=now_ms
        )

    def answer(self, node: int, *partitions: PartitionData, now_ms: int = 0, code: int = 0) -> None:
        topics = [ShareFetchableTopicResponse(topic_id=TOPIC_ID, partitions=partitions)]
        response = ShareFetchResponse(
            error_code=code, acquisition_lock_timeout_ms=LOCK_MS, responses=topics if partitions else ()
        )
        self.core.responded(node, response, now_ms=now_ms)

    def accept_all(self) -> None:
        for node_id in self.core.sessions:
            for one in list(self.core._holdings.lanes[node_id].acquired()):
                self.core.hands.answer_handed(one, one.first, one.last, ACCEPT)
        self.core.send_answers()


def test_nothing_is_fetched_until_somebody_asks() -> None:
    driver = Driver(1)
    assert driver.sends(0) == {}


def test_a_poll_asks_every_broker_for_no_longer_than_it_waits() -> None:
    sent = Driver(1, 2).poll(0, wait_ms=200)
    assert [request.max_wait_ms for request in sent.values()] == [200, 200]
    assert [request.max_records for request in sent.values()] == [10, 10]
    assert [request.share_session_epoch for request in sent.values()] == [0, 0]


def test_the_end_of_one_poll_does_not_take_back_the_question_of_the_next() -> None:
    driver = Driver(1)
    driver.poll(0, wait_ms=200)
    driver.ask(700)  # the next poll, while the fetch of the first is on its way
    driver.core.poll_ended(200)
    driver.answer(1, now_ms=200)
    assert driver.sends(200)[1].max_wait_ms == 500
    driver.core.poll_ended(700)
    driver.answer(1, now_ms=700)
    assert driver.sends(700) == {}


def test_a_quick_application_gets_its_next_records_ahead_without_a_wait() -> None:
    driver = Driver(1)
    driver.poll(0)
    driver.arrive(1, 0, 0, 9)
    assert driver.take(10, now_ms=1)
    assert driver.sends(1) == {}  # it is not known to be quick yet
    driver.poll(5)
    driver.arrive(1, 0, 10, 19, now_ms=5)
    (ahead,) = driver.sends(5).values()
    assert isinstance(ahead, ShareFetchRequest)
    assert (ahead.max_wait_ms, ahead.min_bytes) == (0, 0)


def test_nothing_is_fetched_ahead_when_the_broker_had_too_little() -> None:
    driver = Driver(1)
    driver.poll(0)
    driver.arrive(1, 0, 0, 9)
    driver.take(10, now_ms=1)
    driver.poll(5)
    driver.arrive(1, 0, 10, 12, now_ms=5)
    driver.take(10, now_ms=6)
    assert driver.sends(6) == {}


def test_a_slow_application_gets_nothing_ahead() -> None:
    driver = Driver(1)
    driver.poll(0)
    driver.arrive(1, 0, 0, 9)
    driver.take(10, now_ms=1)
    driver.poll(700)
    driver.arrive(1, 0, 10, 19, now_ms=700)
    driver.take(10, now_ms=700)
    assert driver.sends(700) == {}


def test_acknowledgements_ride_on_the_next_fetch_or_go_alone() -> None:
    driver = Driver(1)
    driver.poll(0)
    driver.arrive(1, 0, 0, 9)
    driver.take(10, now_ms=1)
    driver.accept_all()
    (alone,) = driver.sends(1).values()
    assert isinstance(alone, ShareAcknowledgeRequest)
    assert alone.share_session_epoch == 1
    driver.core.responded(1, ShareAcknowledgeResponse(), now_ms=2)  # it says nothing of the partition
    assert [one.error.code for one in driver.settled if one.error] == [E.INVALID_RECORD_STATE]
    driver.poll(3)
    driver.arrive(1, 0, 10, 19, now_ms=3)
    driver.take(10, now_ms=3)
    driver.accept_all()
    (riding,) = driver.poll(4).values()
    assert isinstance(riding, ShareFetchRequest)
    (batch,) = riding.topics[0].partitions[0].acknowledgement_batches
    assert (batch.first_offset, batch.last_offset, list(batch.acknowledge_types)) == (10, 19, [1])


def test_record_limit_asks_one_broker_at_a_time_in_turn() -> None:
    driver = Driver(1, 2, 3, share_acquire_mode="record_limit")
    asked = []
    for now_ms in range(4):
        ((node, request),) = driver.poll(now_ms).items()
        assert node is not None
        assert request.share_acquire_mode == 1
        asked.append(node)
        driver.answer(node, now_ms=now_ms)
    assert asked == [1, 2, 3, 1]


def test_what_may_be_held_bounds_what_is_asked_for() -> None:
    driver = Driver(1, capacity=4, share_acknowledgement_mode="explicit", max_unacknowledged=4)
    (request,) = driver.poll(0).values()
    assert (request.max_records, request.share_acquire_mode) == (4, 1)
    driver.arrive(1, 0, 0, 3)
    driver.take(10, now_ms=1)
    assert driver.poll(2) == {}
    acquired = next(driver.core._holdings.lanes[1].acquired())
    driver.answer_range(acquired, 0, 0, ACCEPT)
    (request,) = driver.sends(3).values()
    assert (type(request), request.max_records) == (ShareFetchRequest, 1)


def test_a_member_that_acquires_ahead_fills_its_capacity() -> None:
    driver = Driver(1, capacity=25, is_ahead=True)
    asked = []
    for first in (0, 10, 20):
        (request,) = driver.sends(first).values()
        asked.append(request.max_records)
        driver.arrive(1, 0, first, first + request.max_records - 1, now_ms=first)
    assert asked == [10, 10, 5]
    assert driver.sends(30) == {}


def test_a_member_that_wants_no_records_says_so_and_knows_their_size() -> None:
    driver = Driver(1, capacity=25, is_ahead=True, acquire_only=True)
    (request,) = driver.sends(0).values()
    assert request.acquire_only
    acquired = AcquiredRecords(first_offset=0, last_offset=9, delivery_count=1)
    driver.answer(1, PartitionData(acquired_records=[acquired], acquired_bytes=500))
    (arrival,) = driver.take(now_ms=1)
    assert (arrival.count, arrival.records, arrival.size) == (10, b"", 500)


def test_without_patience_it_asks_from_time_to_time_and_waits_for_nothing() -> None:
    driver = Driver(1, capacity=25, is_ahead=True)
    driver.core.configure(fetch_wait_ms=0)
    (request,) = driver.sends(0).values()
    assert request.max_wait_ms == 0
    driver.answer(1, now_ms=1)
    assert driver.sends(2) == {}, "there was nothing a moment ago"
    due_ms = driver.core.deadline_ms(now_ms=2)
    assert due_ms is not None
    (request,) = driver.sends(due_ms).values()
    assert request.max_wait_ms == 0


def test_an_acknowledgement_does_not_wait_for_the_next_time_to_ask() -> None:
    driver = Driver(1, capacity=25, is_ahead=True)
    driver.sends(0)
    driver.arrive(1, 0, 0, 9)
    driver.take(now_ms=0)
    driver.core.configure(fetch_wait_ms=0)
    driver.sends(1)
    driver.answer(1, now_ms=2)
    (acquired,) = driver.core._holdings.lanes[1].acquired()
    driver.answer_range(acquired, 0, 9, ACCEPT)
    (request,) = driver.sends(3).values()
    assert request.topics[0].partitions[0].acknowledgement_batches


def test_a_member_is_idle_only_while_every_broker_answers_that_it_has_nothing() -> None:
    driver = Driver(1, 2, capacity=25, is_ahead=True)
    driver.sends(0)
    for node in (1, 2):
        driver.answer(node, now_ms=10)
    driver.sends(600)
    driver.answer(1, now_ms=700)
    assert driver.core.idle_ms(100) == 0, "broker 2 has not answered yet"
    driver.answer(2, now_ms=700)
    assert driver.core.idle_ms(100) == 500
    driver.sends(1_200)
    driver.core.failed(2, error_for(E.NETWORK_EXCEPTION), now_ms=1_300)
    driver.answer(1, now_ms=1_300)
    assert driver.core.idle_ms(100) == 0


def test_while_records_are_held_a_fetch_waits_only_for_a_moment() -> None:
    driver = Driver(1, capacity=25, is_ahead=True)
    (idle,) = driver.sends(0).values()
    driver.arrive(1, 0, 0, 9)
    (holding,) = driver.sends(1).values()
    assert holding.max_wait_ms < idle.max_wait_ms == 500


def test_a_lost_leader_is_asked_for_elsewhere_and_its_locks_are_gone() -> None:
    driver = Driver(1)
    driver.poll(0)
    driver.arrive(1, 0, 0, 9)
    driver.take(10, now_ms=1)
    driver.poll(2)
    moved = PartitionData(
        partition_index=0,
        error_code=E.NOT_LEADER_OR_FOLLOWER,
        current_leader=LeaderIdAndEpoch(leader_id=2, leader_epoch=7),
    )
    driver.answer(1, moved, now_ms=3)
    (lost,) = driver.lost
    assert (lost.first, lost.last, lost.error.code) == (0, 9, E.NOT_LEADER_OR_FOLLOWER)
    driver.stop_asking()
    driver.sends(3)
    (hint,) = driver.hints
    assert hint[:4] == (TOPIC_ID, 0, 2, 7)
    assert driver.wants_metadata
    driver.core.learn({TOPIC_ID: TopicView("t", {0: 2})}, now_ms=4)
    ((node, request),) = driver.poll(4).items()
    assert (node, request.share_session_epoch) == (2, 0)


def test_partitions_that_move_away_are_forgotten_by_the_session() -> None:
    driver = Driver(1, 1)
    driver.poll(0)
    driver.answer(1)
    driver.core.learn({TOPIC_ID: TopicView("t", {0: 1, 1: 2})}, now_ms=1)
    sent = driver.sends(1)
    assert [(one.topic_id, list(one.partitions)) for one in sent[1].forgotten_topics_data] == [
        (TOPIC_ID, [1])
    ]
    assert not sent[1].topics


@pytest.mark.parametrize("code", [E.TOPIC_AUTHORIZATION_FAILED, E.CORRUPT_MESSAGE])
def test_errors_of_a_partition_that_a_user_must_know_are_told_once(code: ErrorCode) -> None:
    driver = Driver(1)
    for now_ms in (0, 10_000, 20_000):
        driver.poll(now_ms)
        driver.answer(1, PartitionData(partition_index=0, error_code=code), now_ms=now_ms)
    assert [error.code for error in driver.errors] == [code]


def test_a_partition_in_trouble_is_not_asked_in_a_loop() -> None:
    driver = Driver(1)
    driver.poll(0, wait_ms=10_000)
    driver.answer(1, PartitionData(partition_index=0, error_code=E.OFFSET_NOT_AVAILABLE))
    assert driver.sends(99) == {}
    assert 1 in driver.sends(100)


def test_answers_that_come_empty_too_early_slow_the_fetches_down() -> None:
    driver = Driver(1)
    driver.poll(0, wait_ms=10_000)
    for _ in range(3):
        driver.answer(1)
        assert 1 in driver.sends(0)
    driver.answer(1)
    assert driver.sends(0) == {}


def test_a_throttled_session_waits_as_long_as_it_was_told() -> None:
    driver = Driver(1)
    driver.poll(0, wait_ms=10_000)
    driver.core.responded(1, ShareFetchResponse(throttle_time_ms=300), now_ms=0)
    assert driver.sends(299) == {}
    assert 1 in driver.sends(300)


@pytest.mark.parametrize(
    ("code", "epoch"),
    [
        (E.SHARE_SESSION_NOT_FOUND, 0),
        (E.INVALID_SHARE_SESSION_EPOCH, 0),
        (E.SHARE_SESSION_LIMIT_REACHED, 0),
        (E.UNKNOWN_SERVER_ERROR, 0),
    ],
)
def test_after_a_top_level_error_the_session_starts_again(code: ErrorCode, epoch: int) -> None:
    driver = Driver(1)
    driver.poll(0, wait_ms=10_000)
    driver.answer(1)
    driver.sends(0)
    driver.answer(1, code=code)
    assert driver.sends(0) == {}
    assert driver.sends(100)[1].share_session_epoch == epoch


def confuse(driver: Driver, times: int, *, every_ms: int, from_ms: int = 0) -> None:
    """Each time a broker has another epoch of our session; the next request opens it anew, which is answered well."""
    for now_ms in range(from_ms, from_ms + times * every_ms, every_ms):
        for code in (E.INVALID_SHARE_SESSION_EPOCH, E.NONE):
            driver.core.sessions[1]._not_before_ms = 0
            driver.poll(now_ms)
            driver.answer(1, now_ms=now_ms, code=code)


def test_a_session_that_goes_on_to_have_another_epoch_has_a_second_user_which_is_said() -> None:
    driver = Driver(1, default_api_timeout_ms=10_000)
    driver.poll(0)
    driver.answer(1)
    confuse(driver, 10, every_ms=1_000)
    assert driver.errors == []
    confuse(driver, 2, every_ms=1_000, from_ms=10_000)
    (error,) = driver.errors
    assert isinstance(error, InvalidShareSessionEpochError)
    assert "another client uses member id m of group 'g'" in str(error)


@pytest.mark.parametrize(("times", "every_ms"), [(4, 9_000), (40, 200), (20, 10_001)])
def test_a_session_that_has_another_epoch_rarely_or_not_for_long_is_opened_again(
    times: int, every_ms: int
) -> None:
    driver = Driver(1, default_api_timeout_ms=10_000)
    driver.poll(0)
    driver.answer(1)
    confuse(driver, times, every_ms=every_ms, from_ms=20_000)
    assert driver.errors == []


def test_records_that_wait_are_renewed_at_half_of_their_lock() -> None:
    driver = Driver(1)
    driver.poll(0)
    driver.arrive(1, 0, 0, 9, delivery_count=2)
    driver.stop_asking()
    assert driver.core.deadline_ms(now_ms=0) == LOCK_MS // 2
    (request,) = driver.sends(LOCK_MS // 2).values()
    assert isinstance(request, ShareAcknowledgeRequest)
    assert request.is_renew_ack


def test_records_that_wait_are_released_in_time_where_renewing_is_unknown() -> None:
    driver = Driver(1)
    driver.poll(0)
    driver.arrive(1, 0, 0, 9)
    driver.stop_asking()
    driver.core.connected(1, is_old=True)
    assert driver.sends(LOCK_MS // 2) == {}
    (request,) = driver.sends(LOCK_MS - LOCK_MS // 10).values()
    (batch,) = request.topics[0].partitions[0].acknowledgement_batches
    assert list(batch.acknowledge_types) == [2]
    assert driver.take(10, now_ms=950) == []


def test_closing_releases_what_its_session_has_forgotten() -> None:
    driver = Driver(1, 1)
    driver.poll(0)
    driver.arrive(1, 1, 0, 4)
    driver.take(10, now_ms=0)
    driver.core.learn({TOPIC_ID: TopicView("t", {0: 1, 1: 2})}, now_ms=1)
    driver.poll(1, wait_ms=1)
    driver.answer(1, now_ms=2)
    driver.stop_asking()
    driver.core.close(10_000, now_ms=2)
    (request,) = (one for node, one in driver.sends(2).items() if node == 1)
    assert request.share_session_epoch == -1
    (batch,) = request.topics[0].partitions[0].acknowledgement_batches
    assert (batch.first_offset, batch.last_offset, list(batch.acknowledge_types)) == (0, 4, [2])


def last_sends(driver: Driver, now_ms: int, *, within_ms: int = 30_000) -> list[tuple[int, bool]]:
    """The epochs of the requests of a member that closes, and whether they go apart."""
    driver.core.close(now_ms + within_ms, now_ms=now_ms)
    sends = driver.core.commands(now_ms=now_ms).sends
    return [(send.request.share_session_epoch, send.is_apart) for send in sends]


@pytest.mark.parametrize("is_first", [True, False])
def test_closing_does_not_wait_for_a_fetch_that_the_broker_holds_back_for_long(is_first: bool) -> None:
    driver = Driver(1, fetch_max_wait_ms=60_000)
    if not is_first:
        driver.poll(0)
        driver.answer(1)
    (fetch,) = driver.poll(10, wait_ms=60_000).values()
    assert last_sends(driver, 20) == [(-1, True)]
    sent = driver.core.sessions[1].in_flight
    assert sent is not None
    assert sent.request is not fetch
    driver.core.responded(1, ShareAcknowledgeResponse(), now_ms=30)
    assert driver.core.sessions[1].in_flight is None
    assert not driver.core.sessions[1].is_open


def test_closing_waits_for_a_fetch_that_returns_soon() -> None:
    driver = Driver(1, fetch_max_wait_ms=60_000)
    driver.poll(0, wait_ms=60_000)
    assert last_sends(driver, 55_000) == []
    driver.answer(1, now_ms=60_000)
    (send,) = driver.core.commands(now_ms=60_000).sends
    assert (send.request.share_session_epoch, send.is_apart) == (-1, False)


def test_closing_in_a_hurry_waits_for_no_fetch_that_returns_later() -> None:
    driver = Driver(1, fetch_max_wait_ms=60_000)
    driver.poll(0, wait_ms=60_000)
    assert last_sends(driver, 58_900, within_ms=1_000) == [(-1, True)]


def test_a_fetch_that_the_broker_might_hold_back_for_long_does_not_wait_if_it_acknowledges() -> None:
    """Every request still fetches: a worker whose runs end all the time would get no records otherwise."""
    driver = Driver(1, fetch_max_wait_ms=60_000)
    driver.poll(0)
    acquired = AcquiredRecords(first_offset=0, last_offset=4, delivery_count=1)
    part = PartitionData(partition_index=0, acquired_records=[acquired])
    topic = ShareFetchableTopicResponse(topic_id=TOPIC_ID, partitions=[part])
    driver.core.responded(
        1, ShareFetchResponse(acquisition_lock_timeout_ms=60_000, responses=[topic]), now_ms=0
    )
    driver.take(10, now_ms=0)
    (held,) = driver.core._holdings.lanes[1].acquired()
    for offset in range(5):
        driver.core.answer_all(held, offset, offset, ACCEPT)
        (request,) = driver.poll(1, wait_ms=60_000).values()
        assert isinstance(request, ShareFetchRequest)
        assert piggybacked(request) == [(offset, offset, [ACCEPT])]
        assert (request.max_wait_ms, request.min_bytes, request.max_records > 0) == (0, 0, True)
        driver.answer(1, PartitionData(partition_index=0), now_ms=2)
    (fetch,) = driver.poll(2, wait_ms=60_000).values()
    assert isinstance(fetch, ShareFetchRequest)
    assert (list(fetch.topics), fetch.max_wait_ms > 10_000) == ([], True)


def test_one_lost_acquisition_does_not_fail_the_others_of_its_partition() -> None:
    driver = Driver(1)
    for first in (0, 10):
        driver.poll(first)
        driver.arrive(1, 0, first, first + 9, now_ms=first)
        driver.take(10, now_ms=first)
        driver.stop_asking()
    driver.sends(11)
    driver.answer(1, now_ms=11) if driver.core.sessions[1].in_flight else None
    driver.accept_all()
    answers = [E.INVALID_RECORD_STATE, E.INVALID_RECORD_STATE, E.NONE]
    for code in answers:
        (request,) = driver.sends(12).values()
        assert isinstance(request, ShareAcknowledgeRequest)
        partition = type("P", (), {"partition_index": 0, "error_code": code, "error_message": None})()
        topic = type("T", (), {"topic_id": TOPIC_ID, "partitions": [partition]})()
        driver.core.responded(1, ShareAcknowledgeResponse(responses=[topic]), now_ms=12)
    settled = {(one.first, one.error is None) for one in driver.settled}
    assert settled == {(0, False), (10, True)}


def test_a_broken_connection_loses_every_lock_and_fails_what_was_on_its_way() -> None:
    driver = Driver(1)
    driver.poll(0)
    driver.arrive(1, 0, 0, 9)
    driver.take(10, now_ms=0)
    (acquired,) = driver.core._holdings.lanes[1].acquired()
    driver.answer_range(acquired, 0, 4, ACCEPT)
    driver.stop_asking()
    driver.sends(1)
    driver.core.failed(1, error_for(E.NETWORK_EXCEPTION, "gone"), now_ms=2)
    assert [(one.first, one.last) for one in driver.settled if one.error] == [(0, 4)]
    assert [(one.first, one.last) for one in driver.lost] == [(5, 9)]
    assert driver.core._holdings.outstanding == 0


def test_a_poll_with_little_room_asks_for_no_more() -> None:
    driver = Driver(1)
    driver.core.poll_began(now_ms=0, records_wanted=3)
    driver.core.poll_waits(500, now_ms=0)
    (request,) = driver.sends(0).values()
    assert request.max_records == 3


def test_what_is_accepted_while_its_renewal_waits_to_be_sent_is_not_renewed_too() -> None:
    settings = {"share_acknowledgement_mode": "explicit", "auto_renew": True, "max_unacknowledged": 10}
    driver = Driver(1, capacity=10, **settings)
    driver.poll(0)
    driver.arrive(1, 0, 0, 2)
    driver.take(10, now_ms=0)
    (held,) = driver.core._holdings.lanes[1].acquired()
    driver.answer_range(held, 1, 1, ACCEPT)

    (request,) = driver.sends(LOCK_MS // 2).values()  # the renewal of 0 to 2 is due just now
    assert isinstance(request, ShareAcknowledgeRequest)
    (topic,) = request.topics
    (partition,) = topic.partitions
    types = {}
    for batch in partition.acknowledgement_batches:
        offsets = range(batch.first_offset, batch.last_offset + 1)
        kinds = list(batch.acknowledge_types) * (len(offsets) if len(batch.acknowledge_types) == 1 else 1)
        assert not types.keys() & set(offsets), "two answers for one offset"
        types |= dict(zip(offsets, kinds, strict=True))
    assert types == {0: RENEW, 1: ACCEPT, 2: RENEW}


def piggybacked(request: Any) -> list[tuple[int, int, list[int]]]:
    return [
        (one.first_offset, one.last_offset, list(one.acknowledge_types))
        for topic in request.topics
        for partition in topic.partitions
        for one in partition.acknowledgement_batches
    ]


def test_an_acknowledgement_of_a_lost_delivery_never_settles_the_next_one() -> None:
    driver = Driver(1)
    driver.poll(0)
    acquired = [AcquiredRecords(first_offset=n, last_offset=n, delivery_count=1) for n in (0, 1)]
    driver.answer(1, PartitionData(partition_index=0, acquired_records=acquired))
    first, second = (one for arrival in driver.take(10, now_ms=1) for one in arrival.acquired)
    driver.answer_range(first, 0, 0, REJECT)
    driver.answer_range(second, 1, 1, ACCEPT)
    (request,) = driver.poll(900).values()
    assert piggybacked(request) == [(0, 1, [REJECT, ACCEPT])]
    redelivered = AcquiredRecords(first_offset=0, last_offset=0, delivery_count=2)
    refused = PartitionData(
        partition_index=0, acknowledge_error_code=E.INVALID_RECORD_STATE, acquired_records=[redelivered]
    )
    driver.answer(1, refused, now_ms=910)
    (settled,) = driver.settled
    assert (settled.acquired, settled.error is None) == (first, False)
    (request,) = driver.sends(1_200).values()
    assert piggybacked(request) == [(1, 1, [ACCEPT])], "record 0 is delivered again: its old answer is void"


def test_a_lock_counts_from_the_moment_the_request_was_sent() -> None:
    driver = Driver(1)
    driver.poll(0, wait_ms=5_000)
    driver.arrive(1, 0, 0, 9, now_ms=900)
    (arrival,) = driver.take(10, now_ms=900)
    assert arrival.acquired[0].lock_until_ms == LOCK_MS
    driver.sends(LOCK_MS)
    (lost,) = driver.lost
    assert (lost.first, lost.last) == (0, 9)


def test_records_whose_lock_is_over_when_they_arrive_are_dropped() -> None:
    driver = Driver(1)
    driver.poll(0, wait_ms=5_000)
    driver.arrive(1, 0, 0, 9, now_ms=LOCK_MS)
    assert driver.take(10, now_ms=LOCK_MS) == []
    assert driver.core._holdings.outstanding == 0


def test_a_response_that_is_late_is_renewed_at_once() -> None:
    driver = Driver(1)
    driver.poll(0, wait_ms=5_000)
    driver.arrive(1, 0, 0, 9, now_ms=700, delivery_count=2)
    driver.stop_asking()
    assert driver.core.deadline_ms(now_ms=700) == 701
    (request,) = driver.sends(701).values()
    assert request.is_renew_ack


def test_a_record_whose_lock_ended_unnoticed_is_not_handed_out() -> None:
    """The process stood still between the arrival and the poll."""
    driver = Driver(1)
    driver.poll(0)
    driver.arrive(1, 0, 0, 9)
    assert driver.take(now_ms=LOCK_MS) == []
    driver.sends(LOCK_MS)
    assert (driver.lost, driver.core._holdings.outstanding) == ([], 0)


def renewing(**settings: Any) -> tuple[Driver, AcquiredRange]:
    """A record in the application's hands, whose renewal is on its way."""
    driver = Driver(1, capacity=10, share_acknowledgement_mode="explicit", max_unacknowledged=10, **settings)
    driver.poll(0)
    driver.arrive(1, 0, 0, 0)
    ((arrival),) = driver.take(now_ms=0)
    driver.stop_asking()
    driver.core.hands.renew(arrival.acquired[0], 0)
    driver.core.send_answers()
    (request,) = driver.sends(1).values()
    assert request.is_renew_ack
    return driver, arrival.acquired[0]


def acknowledged(driver: Driver, code: int = 0, *, now_ms: int) -> None:
    partition = AcknowledgedPartition(partition_index=0, error_code=code)
    topic = ShareAcknowledgeTopicResponse(topic_id=TOPIC_ID, partitions=[partition])
    response = ShareAcknowledgeResponse(responses=[topic], acquisition_lock_timeout_ms=LOCK_MS)
    driver.core.responded(1, response, now_ms=now_ms)


def test_a_record_may_be_accepted_while_its_renewal_is_on_its_way() -> None:
    driver, acquired = renewing()
    assert driver.core.hands.answer(acquired, 0, ACCEPT)
    commit = driver.core.commit()
    assert driver.sends(2) == {}, "one request at a time"
    acknowledged(driver, now_ms=3)
    (request,) = driver.sends(3).values()
    assert piggybacked(request) == [(0, 0, [ACCEPT])]
    assert not commit.is_done, "it waits for the acceptance too"
    acknowledged(driver, now_ms=4)
    assert commit.is_done
    assert [(one.type, one.error) for one in driver.settled] == [(RENEW, None), (ACCEPT, None)]
    assert driver.core._holdings.outstanding == 0


def test_an_answer_behind_a_refused_renewal_is_told_as_too_late_and_not_sent() -> None:
    driver, acquired = renewing()
    driver.core.hands.answer(acquired, 0, ACCEPT)
    acknowledged(driver, E.INVALID_RECORD_STATE, now_ms=3)
    assert driver.sends(3) == {}
    assert [(one.type, one.error is None) for one in driver.settled] == [(RENEW, False), (-1, False)]
    assert driver.lost == [], "the application has answered it: it is told once"
    assert driver.core._holdings.outstanding == 0


def test_an_answer_behind_a_renewal_is_lost_with_its_connection() -> None:
    driver, acquired = renewing()
    driver.core.hands.answer(acquired, 0, ACCEPT)
    driver.core.failed(1, error_for(E.NETWORK_EXCEPTION, "gone"), now_ms=3)
    assert [(one.type, one.error is None) for one in driver.settled] == [(RENEW, False), (-1, False)]


def test_records_behind_a_busy_application_go_to_others_once() -> None:
    driver = Driver(1)
    driver.poll(0)
    driver.arrive(1, 0, 0, 9)
    driver.stop_asking()
    (request,) = driver.sends(LOCK_MS // 2).values()
    assert piggybacked(request) == [(0, 9, [2])]


def test_records_behind_an_application_that_polls_are_kept() -> None:
    driver = Driver(1)
    driver.poll(0)
    driver.arrive(1, 0, 0, 9)
    driver.stop_asking()
    driver.core.poll_began(now_ms=LOCK_MS // 2 - 1)
    (request,) = driver.sends(LOCK_MS // 2).values()
    assert request.is_renew_ack


def test_a_subscribed_topic_without_partitions_is_to_be_looked_up_once() -> None:
    driver = Driver(1)
    driver.core.subscribe(["t", "ordesr"], now_ms=10)
    assert list(driver.core.commands(now_ms=1_009).check_topics) == []
    assert driver.core.deadline_ms(now_ms=1_009) == 1_010
    assert list(driver.core.commands(now_ms=1_010).check_topics) == ["ordesr"]
    assert list(driver.core.commands(now_ms=9_999).check_topics) == []


def test_an_interrupted_poll_changes_nothing_that_the_next_one_does_not_find() -> None:
    driver = Driver(1)
    driver.poll(0)
    driver.arrive(1, 0, 0, 9)
    (first,) = driver.core.take(10, now_ms=1)  # and nobody says `decoded`
    (again,) = driver.core.take(10, now_ms=2)
    assert again is first
    driver.core.hands.decoded()
    assert driver.core.take(10, now_ms=3) == []


def test_records_that_a_waiting_poll_is_about_to_get_are_not_given_back() -> None:
    """Their response was on its way for half of the lock, and for as long the poll has waited."""
    driver = Driver(1)
    driver.poll(0, wait_ms=10_000)
    driver.arrive(1, 0, 0, 9, now_ms=700)
    (request,) = driver.sends(700).values()
    assert request.is_renew_ack
    assert driver.take(now_ms=701)


def test_what_is_lost_in_the_buffer_does_not_stay_in_memory() -> None:
    driver = Driver(1, capacity=25, is_ahead=True)
    for round_ms in range(0, 50_000, 10_000):
        driver.sends(round_ms)
        driver.arrive(1, 0, 0, 9, now_ms=round_ms)
        driver.core.failed(1, error_for(E.NETWORK_EXCEPTION, "gone"), now_ms=round_ms + 1)
    assert driver.core.hands.buffered == 10
