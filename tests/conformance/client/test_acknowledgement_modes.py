"""Implicit and explicit acknowledgement by Java's rules (docs/concepts/share-semantics.md, scenarios 66 to 70)."""

from typing import Any

import pytest

from headrace.client.delivery import AcknowledgeType, TopicPartition
from headrace.client.errors import IllegalStateError, InvalidRecordStateError
from headrace.wire.errors import ErrorCode
from tests.conformance.client.conftest import NewConsumer
from tests.conformance.client.steps import nothing_comes, one_poll, places, take, values
from tests.conformance.share.share_client import fill, new_queue, set_group
from tests.conformance.wire_client import WireClient

REJECT, RELEASE = AcknowledgeType.REJECT, AcknowledgeType.RELEASE


def test_a_record_comes_as_it_was_produced(wire: WireClient, consumer: NewConsumer, unique: str) -> None:
    new_queue(wire, unique, 1)
    (delivery,) = one_poll(consumer())
    assert (delivery.topic, delivery.partition, delivery.offset) == (unique, 0, 0)
    assert (delivery.key, delivery.value, list(delivery.headers)) == (None, b"0", [])
    assert delivery.delivery_count == 1
    assert delivery.timestamp_type == 0
    assert not delivery.is_lost


def test_an_implicit_poll_accepts_what_the_last_one_returned(
    wire: WireClient, consumer: NewConsumer, unique: str
) -> None:
    new_queue(wire, unique, 3)
    first = consumer()
    assert len(one_poll(first)) == 3
    assert nothing_comes(first)
    first.close()
    assert nothing_comes(consumer())


def test_an_implicit_close_gives_the_last_poll_back(
    wire: WireClient, consumer: NewConsumer, unique: str
) -> None:
    new_queue(wire, unique, 3)
    first = consumer()
    assert places(one_poll(first)) == [(0, 0, 1), (0, 1, 1), (0, 2, 1)]
    first.close()
    assert places(one_poll(consumer())) == [(0, 0, 2), (0, 1, 2), (0, 2, 2)]


def test_implicit_mode_refuses_to_acknowledge_by_hand(
    wire: WireClient, consumer: NewConsumer, unique: str
) -> None:
    new_queue(wire, unique, 1)
    (delivery,) = one_poll(consumer())
    with pytest.raises(IllegalStateError, match="Implicit acknowledgement"):
        delivery.accept()


def test_commit_sync_says_what_became_of_each_partition(
    wire: WireClient, consumer: NewConsumer, unique: str
) -> None:
    new_queue(wire, unique, 2, partitions=2)
    mine = consumer()
    taken = take(mine, 2)
    seen = {TopicPartition(unique, one.partition) for one in taken}
    assert mine.commit_sync().keys() >= {TopicPartition(unique, taken[-1].partition)}
    assert seen


def test_explicit_mode_insists_on_an_answer_to_every_record(
    wire: WireClient, consumer: NewConsumer, unique: str
) -> None:
    new_queue(wire, unique, 3)
    mine = consumer(share_acknowledgement_mode="explicit")
    first, second, third = one_poll(mine)
    first.accept()
    third.accept()
    with pytest.raises(IllegalStateError, match="All records must be acknowledged"):
        mine.poll(0)
    mine.acknowledge(second)
    assert nothing_comes(mine)
    assert mine.commit_sync() == {}


def test_each_answer_does_what_it_says(wire: WireClient, consumer: NewConsumer, unique: str) -> None:
    new_queue(wire, unique, 4)
    mine = consumer(share_acknowledgement_mode="explicit")
    first, second, third, fourth = one_poll(mine)
    first.accept()
    second.release()
    third.reject("no good")
    mine.acknowledge(fourth, RELEASE)
    assert third.reason == "no good"
    again = take(mine, 2)
    assert places(again) == [(0, 1, 2), (0, 3, 2)]


def test_the_last_answer_before_it_is_sent_counts(
    wire: WireClient, consumer: NewConsumer, unique: str
) -> None:
    new_queue(wire, unique, 1)
    mine = consumer(share_acknowledgement_mode="explicit")
    (delivery,) = one_poll(mine)
    delivery.reject()
    delivery.release()
    assert mine.commit_sync() == {TopicPartition(unique, 0): None}
    with pytest.raises(IllegalStateError, match="cannot be acknowledged"):
        delivery.accept()
    assert places(one_poll(mine)) == [(0, 0, 2)]


def test_commit_sync_sends_what_is_acknowledged_and_leaves_the_rest(
    wire: WireClient, consumer: NewConsumer, unique: str
) -> None:
    new_queue(wire, unique, 3)
    mine = consumer(share_acknowledgement_mode="explicit")
    first, *rest = one_poll(mine)
    first.accept()
    assert mine.commit_sync() == {TopicPartition(unique, 0): None}
    for delivery in rest:
        delivery.accept()
    assert mine.commit_sync() == {TopicPartition(unique, 0): None}


def test_the_callback_hears_of_every_offset_once(
    wire: WireClient, consumer: NewConsumer, unique: str
) -> None:
    new_queue(wire, unique, 5)
    told: list[Any] = []
    mine = consumer()
    mine.set_acknowledgement_commit_callback(lambda offsets, error: told.append((offsets, error)))
    one_poll(mine)
    mine.commit_sync()
    assert told == [({TopicPartition(unique, 0): {0, 1, 2, 3, 4}}, None)]
    fill(wire, unique, 2)
    one_poll(mine)
    mine.commit_async()
    mine.close()
    assert told[1:] == [({TopicPartition(unique, 0): {5, 6}}, None)]


def test_a_callback_must_not_call_the_consumer_and_may_fail(
    wire: WireClient, consumer: NewConsumer, unique: str, caplog: pytest.LogCaptureFixture
) -> None:
    new_queue(wire, unique, 1)
    mine = consumer()
    caught: list[BaseException] = []

    def callback(_: object, __: object) -> None:
        try:
            mine.poll(0)
        except IllegalStateError as error:
            caught.append(error)
        raise RuntimeError("mine to handle")

    mine.set_acknowledgement_commit_callback(callback)
    one_poll(mine)
    mine.commit_sync()
    assert "callback" in str(caught[0])
    assert "callback has failed" in caplog.text


def test_a_lock_that_has_ended_fails_the_commit_and_its_callback(
    wire: WireClient, consumer: NewConsumer, unique: str
) -> None:
    new_queue(wire, unique, 2, record_lock_duration_ms="1000")
    told: list[Any] = []
    slow = consumer(share_acknowledgement_mode="explicit")
    slow.set_acknowledgement_commit_callback(lambda offsets, error: told.append((offsets, error)))
    deliveries = one_poll(slow)
    set_group(wire, unique, record_lock_duration_ms="30000")  # for the second delivery
    other = consumer(share_acknowledgement_mode="explicit")
    again = one_poll(other)  # the lock has ended
    assert places(again) == [(0, 0, 2), (0, 1, 2)]
    for delivery in (*deliveries, *again):
        delivery.accept()
    (error,) = slow.commit_sync().values()
    assert isinstance(error, InvalidRecordStateError)
    assert other.commit_sync() == {TopicPartition(unique, 0): None}
    ((offsets, told_error),) = told
    assert offsets == {TopicPartition(unique, 0): {0, 1}}
    assert told_error.code is ErrorCode.INVALID_RECORD_STATE


def test_polling_without_a_subscription_is_refused(consumer: NewConsumer, unique: str) -> None:
    mine = consumer()
    mine.unsubscribe()
    assert mine.subscription() == set()
    with pytest.raises(IllegalStateError, match="not subscribed"):
        mine.poll(0)


def test_an_iteration_accepts_only_what_it_has_shown(
    wire: WireClient, consumer: NewConsumer, unique: str
) -> None:
    new_queue(wire, unique, 5)
    mine = consumer()
    for delivery in mine:
        if delivery.offset == 1:
            break
    mine.commit_sync()
    assert places(mine.poll(0)) == [(0, 2, 1), (0, 3, 1), (0, 4, 1)]
    mine.close()
    assert [one.offset for one in one_poll(consumer())] == [2, 3, 4]


def test_two_topics_are_read_by_one_consumer(wire: WireClient, consumer: NewConsumer, unique: str) -> None:
    new_queue(wire, unique, 2)
    new_queue(wire, f"{unique}-b", 2, group=unique)
    mine = consumer(unique, f"{unique}-b")
    assert sorted({one.topic for one in take(mine, 4)}) == [unique, f"{unique}-b"]
    assert values(mine.poll(0)) == []
