"""Joining, waking, closing, and what a consumer does when its group, its topics or its connections go."""

import os
import threading
from base64 import urlsafe_b64encode
from uuid import uuid4

import pytest
from confluent_kafka import Consumer

from headrace.client.delivery import TopicPartition
from headrace.client.errors import (
    ConcurrentModificationError,
    GroupIdNotFoundError,
    IllegalStateError,
    WakeupError,
)
from headrace.client.sync import ShareConsumer
from headrace.wire.errors import KafkaError
from tests.conformance.client.conftest import NewConsumer
from tests.conformance.client.steps import NEVER_S, one_poll, places, take
from tests.conformance.conftest import BrokerUnderTest
from tests.conformance.share.share_client import describe_share_group, fill, new_queue
from tests.conformance.steps import new_topic, wait_for
from tests.conformance.wire_client import WireClient
from tests.ctrl_c import ctrl_c_inside


def members(wire: WireClient, group: str) -> list[str]:
    return [member.member_id for member in describe_share_group(wire, group).members]


def test_a_closed_consumer_has_left_its_group(wire: WireClient, consumer: NewConsumer, unique: str) -> None:
    new_queue(wire, unique, 1)
    mine = consumer()
    one_poll(mine)
    assert members(wire, unique) == [mine.member_id]
    mine.close()
    assert members(wire, unique) == []
    mine.close()
    with pytest.raises(IllegalStateError, match="closed"):
        mine.poll(0)


def test_a_consumer_closes_although_its_broker_holds_back_a_fetch_for_long(
    wire: WireClient, consumer: NewConsumer, unique: str
) -> None:
    """What it has acknowledged meanwhile is confirmed, and it leaves its group: not only once the fetch returns."""
    new_queue(wire, unique, 1)
    told: list[tuple[dict[TopicPartition, set[int]], KafkaError | None]] = []
    mine = consumer(share_acknowledgement_mode="explicit", max_unacknowledged=10, fetch_max_wait_ms=25_000)
    mine.set_acknowledgement_commit_callback(lambda offsets, error: told.append((offsets, error)))
    (delivery,) = one_poll(mine)
    waking = threading.Thread(target=wake_when_fetching, args=(mine,))
    waking.start()
    with pytest.raises(WakeupError):
        mine.poll(NEVER_S)
    waking.join()
    delivery.accept()
    mine.close(8)
    assert told == [({TopicPartition(unique, 0): {0}}, None)]
    assert members(wire, unique) == []


def wake_when_fetching(consumer: ShareConsumer) -> None:
    """Once a fetch is on its way that may be held back for longer than `close` takes."""
    (session,) = consumer._member.core.sessions.values()
    wait_for(lambda: (sent := session.in_flight) is not None and sent.wait_ms > 10_000)
    consumer.wakeup()


def test_a_member_id_can_be_taken_back(wire: WireClient, consumer: NewConsumer, unique: str) -> None:
    new_queue(wire, unique, 1)
    old_id = urlsafe_b64encode(uuid4().bytes).decode().rstrip("=")
    mine = consumer(member_id=old_id)
    one_poll(mine)
    assert members(wire, unique) == [old_id]


def test_wakeup_ends_a_poll_from_another_thread(wire: WireClient, consumer: NewConsumer, unique: str) -> None:
    new_queue(wire, unique)
    mine = consumer()
    timer = threading.Timer(0.1, mine.wakeup)
    timer.start()
    with pytest.raises(WakeupError):
        mine.poll(NEVER_S)
    timer.join()
    fill(wire, unique, 1)
    assert len(one_poll(mine)) == 1


def test_wakeup_before_a_poll_ends_that_poll(wire: WireClient, consumer: NewConsumer, unique: str) -> None:
    new_queue(wire, unique)
    mine = consumer()
    mine.wakeup()
    with pytest.raises(WakeupError):
        mine.poll(30)
    assert mine.poll(0) == []


def test_control_c_ends_a_poll_at_once(wire: WireClient, consumer: NewConsumer, unique: str) -> None:
    new_queue(wire, unique)
    mine = consumer()
    with pytest.raises(KeyboardInterrupt), ctrl_c_inside(ShareConsumer.poll):
        mine.poll(NEVER_S)


def test_two_threads_cannot_use_one_consumer(wire: WireClient, consumer: NewConsumer, unique: str) -> None:
    new_queue(wire, unique)
    mine = consumer()
    polling = threading.Thread(target=mine.poll, args=(0.5,))
    polling.start()
    caught: list[BaseException] = []

    def look() -> bool:
        try:
            mine.commit_async()
        except ConcurrentModificationError as error:
            caught.append(error)
        return bool(caught) or not polling.is_alive()

    wait_for(look)
    polling.join()
    assert caught


def test_a_topic_that_is_made_later_is_read_when_it_is_there(
    wire: WireClient, consumer: NewConsumer, unique: str
) -> None:
    new_queue(wire, unique, 1, heartbeat_interval_ms="50")
    later = f"{unique}-later"
    mine = consumer(unique, later)
    assert one_poll(mine)[0].topic == unique
    new_topic(wire, later)
    wait_for(lambda: _is_assigned(wire, unique, later) or mine.poll(0.05) is None, timeout_s=30)
    wait_for(lambda: fill(wire, later, 1) or mine.poll(0.3), timeout_s=30)


def _is_assigned(wire: WireClient, group: str, topic: str) -> bool:
    (member,) = describe_share_group(wire, group).members
    return topic in {one.topic_name for one in member.assignment.topic_partitions}


def test_a_group_of_another_kind_is_refused_with_its_name(
    broker: BrokerUnderTest, wire: WireClient, consumer: NewConsumer, unique: str
) -> None:
    new_topic(wire, unique)
    other = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": unique, "log_level": 0})
    try:
        other.subscribe([unique])
        wait_for(lambda: other.poll(0.1) or other.assignment(), timeout_s=30)
        mine = consumer()
        with pytest.raises(GroupIdNotFoundError, match=unique):
            mine.poll(20)
    finally:
        other.close()


def test_a_member_that_was_put_out_joins_again(wire: WireClient, consumer: NewConsumer, unique: str) -> None:
    new_queue(wire, unique, 1, heartbeat_interval_ms="50")
    mine = consumer()
    one_poll(mine)
    wire.ask(
        "share_group_heartbeat", 1, group_id=unique, member_id=mine.member_id, member_epoch=-1
    )  # somebody leaves in its name
    wait_for(lambda: mine.poll(0.05) is None or members(wire, unique) == [mine.member_id])
    fill(wire, unique, 1)
    assert places(one_poll(mine)) == [(0, 1, 1)]


def test_a_consumer_that_polls_too_late_leaves_and_joins_again(
    wire: WireClient, consumer: NewConsumer, unique: str
) -> None:
    new_queue(wire, unique, 1)
    mine = consumer(max_poll_interval_ms=500)
    one_poll(mine)
    wait_for(lambda: members(wire, unique) == [])
    fill(wire, unique, 1)
    assert places(take(mine, 1)) == [(0, 1, 1)]


def test_a_session_that_the_broker_has_lost_is_opened_again(
    wire: WireClient, consumer: NewConsumer, unique: str
) -> None:
    new_queue(wire, unique, 2)
    mine = consumer(share_acknowledgement_mode="explicit")
    deliveries = one_poll(mine)
    closed = wire.ask(
        "share_acknowledge", 2, group_id=unique, member_id=mine.member_id, share_session_epoch=-1
    )
    assert closed.error_code == 0
    for delivery in deliveries:
        delivery.accept()
    (error,) = mine.commit_sync().values()
    assert error is not None
    assert places(take(mine, 2)) == [(0, 0, 2), (0, 1, 2)]


def test_metrics_have_the_names_of_javas_client(wire: WireClient, consumer: NewConsumer, unique: str) -> None:
    new_queue(wire, unique, 3)
    mine = consumer()
    one_poll(mine)
    mine.commit_sync()
    metrics = mine.metrics()
    group = "consumer-share-fetch-manager-metrics"
    assert metrics[f"{group}:records-consumed-total"] == 3
    assert metrics[f"{group}:acknowledgements-send-total"] == 3
    assert metrics[f"{group}:acknowledgements-error-total"] == 0
    assert metrics["consumer-share-coordinator-metrics:heartbeat-total"] >= 1
    assert metrics["consumer-share-metrics:last-poll-seconds-ago"] >= 0


def test_a_consumer_without_a_broker_says_which_address_it_tried() -> None:
    with ShareConsumer(bootstrap_servers="127.0.0.1:1", group_id="g", default_api_timeout_ms=200) as consumer:
        consumer.subscribe(["t"])
        with pytest.raises(ConnectionError, match=r"127\.0\.0\.1:1"):
            wait_for(lambda: consumer.poll(0.1))


def test_polls_that_do_not_wait_get_records_too(wire: WireClient, consumer: NewConsumer, unique: str) -> None:
    new_queue(wire, unique, 3)
    mine = consumer()
    assert len(wait_for(lambda: mine.poll(0))) == 3


def test_a_consumer_is_closed_at_once_while_it_looks_for_a_broker() -> None:
    consumer = ShareConsumer(bootstrap_servers="127.0.0.1:1", group_id="g")
    consumer.subscribe(["t"])
    assert consumer.poll(0.1) == []
    consumer.close(NEVER_S)


def test_subscribing_again_does_not_hide_that_there_is_no_broker() -> None:
    with ShareConsumer(bootstrap_servers="127.0.0.1:1", group_id="g", default_api_timeout_ms=100) as consumer:
        consumer.subscribe(["t"])
        for _ in range(2):
            with pytest.raises(ConnectionError, match=r"127\.0\.0\.1:1"):
                wait_for(lambda: consumer.poll(0.1))
            consumer.subscribe(["u"])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_poll_in_a_forked_process_is_told_to_make_a_consumer_of_its_own() -> None:
    with ShareConsumer(bootstrap_servers="127.0.0.1:1", group_id="g") as consumer:
        consumer.subscribe(["t"])
        child = os.fork()
        if child == 0:
            try:
                consumer.poll(0.1)
            except IllegalStateError as error:
                os._exit(0 if "before a fork" in str(error) else 1)
            os._exit(2)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0


@pytest.mark.parametrize("count", [0, -1, True, 1.5])
def test_a_poll_for_no_records_is_refused(count: int) -> None:
    with (
        ShareConsumer(bootstrap_servers="127.0.0.1:1", group_id="g") as consumer,
        pytest.raises(ValueError, match=f"max_records must be an int >= 1 or None, got {count}"),
    ):
        consumer.poll(0.1, max_records=count)


def test_a_poll_behind_one_that_got_nothing_gets_what_comes(
    wire: WireClient, consumer: NewConsumer, unique: str
) -> None:
    """The fetch of the first is still on its way when the second begins; the second must be asked for all the same."""
    new_queue(wire, unique)
    mine = consumer(fetch_max_wait_ms=300)
    wait_for(
        lambda: mine.poll(0.2) == [] and mine.metrics()["consumer-share-fetch-manager-metrics:fetch-total"]
    )
    for number in range(5):
        assert mine.poll(0.3) == [], number
        timer = threading.Timer(0.7, lambda: fill(wire, unique, 1))
        timer.start()
        assert len(mine.poll(NEVER_S)) == 1, number
        timer.join()
