"""RENEW by hand and by itself (KIP-1222), and locks that are lost all the same."""

import threading
from collections.abc import Sequence

import pytest

from headrace.client.delivery import AcknowledgeType, Delivery, TopicPartition
from headrace.client.errors import IllegalStateError
from headrace.client.sync import ShareConsumer
from headrace.wire.errors import KafkaError
from tests.conformance.client.conftest import NewConsumer
from tests.conformance.client.steps import nothing_comes, one_poll, places
from tests.conformance.conftest import BrokerUnderTest
from tests.conformance.share.share_client import fill, new_queue, set_group
from tests.conformance.steps import wait_for
from tests.conformance.wire_client import WireClient

RENEW = AcknowledgeType.RENEW


def hold(consumer: ShareConsumer, seconds: float) -> None:
    """Lets the time pass as a busy application does: without touching the consumer."""
    threading.Event().wait(seconds)


def test_a_renewed_record_comes_back_before_any_other(
    wire: WireClient, consumer: NewConsumer, unique: str
) -> None:
    new_queue(wire, unique, 3)
    mine = consumer(share_acknowledgement_mode="explicit")
    first, second, third = one_poll(mine)
    first.accept()
    second.renew()
    third.accept()
    fill(wire, unique, 2)
    assert one_poll(mine) == [second]
    assert second.delivery_count == 1
    second.accept()
    assert [one.offset for one in one_poll(mine)] == [3, 4]


def test_a_poll_after_a_renewal_was_committed_returns_the_record(
    wire: WireClient, consumer: NewConsumer, unique: str
) -> None:
    new_queue(wire, unique, 2)
    mine = consumer(share_acknowledgement_mode="explicit")
    first, second = one_poll(mine)
    first.renew()
    second.accept()
    assert mine.commit_sync() == {TopicPartition(unique, 0): None}
    assert one_poll(mine) == [first]
    with pytest.raises(IllegalStateError):
        mine.poll(0)
    first.accept()


def test_a_renewed_record_that_is_acknowledged_at_once_does_not_come_back(
    wire: WireClient, consumer: NewConsumer, unique: str
) -> None:
    new_queue(wire, unique, 1)
    mine = consumer(share_acknowledgement_mode="explicit")
    (delivery,) = one_poll(mine)
    delivery.renew()
    mine.commit_sync()
    delivery.accept()
    fill(wire, unique, 1)
    assert [one.offset for one in one_poll(mine)] == [1]


def test_renewing_keeps_the_lock_longer_than_it_lasts(
    broker: BrokerUnderTest, wire: WireClient, consumer: NewConsumer, unique: str
) -> None:
    new_queue(wire, unique, 1, record_lock_duration_ms="3000")
    mine = consumer(share_acknowledgement_mode="explicit")
    (delivery,) = one_poll(mine)
    other = consumer(share_acknowledgement_mode="explicit")
    for _ in range(3):
        broker.pass_time(1.2)
        assert nothing_comes(other, 0.1)
        mine.acknowledge(delivery, RENEW)
        assert one_poll(mine) == [delivery]
    delivery.accept()
    assert mine.commit_sync() == {TopicPartition(unique, 0): None}
    broker.pass_time(3.1)
    assert nothing_comes(other)


def test_auto_renew_keeps_what_a_busy_application_works_on(
    wire: WireClient, consumer: NewConsumer, unique: str
) -> None:
    new_queue(wire, unique, 2, record_lock_duration_ms="3000")
    mine = consumer(share_acknowledgement_mode="explicit", auto_renew=True)
    deliveries = one_poll(mine)
    assert nothing_comes(consumer(share_acknowledgement_mode="explicit"), 3.5)
    assert not any(delivery.is_lost for delivery in deliveries)
    for delivery in deliveries:
        delivery.accept()
    assert mine.commit_sync() == {TopicPartition(unique, 0): None}


def test_auto_renew_ends_at_its_bound_and_says_so(
    wire: WireClient, consumer: NewConsumer, unique: str
) -> None:
    new_queue(wire, unique, 1, record_lock_duration_ms="1000")
    lost: list[tuple[Sequence[Delivery], KafkaError]] = []
    mine = consumer(
        share_acknowledgement_mode="explicit",
        auto_renew=True,
        auto_renew_max_ms=1,
        on_lost=lambda deliveries, error: lost.append((deliveries, error)),
    )
    (delivery,) = one_poll(mine)
    assert wait_for(lambda: lost)
    ((found, _),) = lost
    assert found == [delivery]
    assert delivery.is_lost
    assert places(one_poll(mine)) == [(0, 0, 2)]


def test_a_refused_renewal_loses_the_record(wire: WireClient, consumer: NewConsumer, unique: str) -> None:
    new_queue(wire, unique, 1)
    set_group(wire, unique, renew_acknowledge_enable="false")
    lost: list[Delivery] = []
    mine = consumer(share_acknowledgement_mode="explicit", on_lost=lambda found, _: lost.extend(found))
    (delivery,) = one_poll(mine)
    delivery.renew()
    (error,) = mine.commit_sync().values()
    assert error is not None
    assert lost == [delivery]
    assert delivery.is_lost


def test_a_renewal_can_be_taken_back_before_it_is_sent(
    wire: WireClient, consumer: NewConsumer, unique: str
) -> None:
    new_queue(wire, unique, 1)
    mine = consumer(share_acknowledgement_mode="explicit")
    (delivery,) = one_poll(mine)
    delivery.renew()
    delivery.accept()
    fill(wire, unique, 1)
    assert [one.offset for one in one_poll(mine)] == [1]
    with pytest.raises(IllegalStateError):
        delivery.renew()


def test_the_lock_timeout_of_the_group_is_known_after_the_first_records(
    wire: WireClient, consumer: NewConsumer, unique: str
) -> None:
    new_queue(wire, unique, 1, record_lock_duration_ms="17000")
    mine = consumer()
    assert mine.acquisition_lock_timeout_ms() is None
    one_poll(mine)
    assert mine.acquisition_lock_timeout_ms() == 17_000
