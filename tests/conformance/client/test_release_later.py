"""`release(after=...)`: a record is given back later, and is kept without costing deliveries until then."""

import asyncio
import time
from datetime import timedelta

import pytest

from headrace.client.aio import AsyncShareConsumer
from headrace.client.delivery import TopicPartition
from headrace.client.errors import IllegalStateError
from tests.conformance.client.conftest import NewConsumer
from tests.conformance.client.steps import nothing_comes, one_poll, places
from tests.conformance.conftest import BrokerUnderTest
from tests.conformance.share.share_client import fill, new_queue, set_group
from tests.conformance.wire_client import WireClient


def test_a_record_comes_back_after_the_time_and_not_before_though_its_lock_is_shorter(
    wire: WireClient, consumer: NewConsumer, unique: str
) -> None:
    new_queue(wire, unique, 1, record_lock_duration_ms="2000")
    mine = consumer(share_acknowledgement_mode="explicit")
    (delivery,) = one_poll(mine)
    released = time.monotonic()
    delivery.release(after=3.5)
    assert places(one_poll(consumer())) == [(0, 0, 2)]
    assert time.monotonic() - released >= 3.5
    assert not delivery.is_lost


def test_the_next_poll_asks_for_no_answer_and_brings_other_records(
    wire: WireClient, consumer: NewConsumer, unique: str
) -> None:
    new_queue(wire, unique, 2)
    mine = consumer(share_acknowledgement_mode="explicit")
    first, second = one_poll(mine)
    first.release(after=timedelta(minutes=5))
    second.accept()
    fill(wire, unique, 1)
    assert places(one_poll(mine)) == [(0, 2, 1)]


def test_another_answer_before_the_time_replaces_the_release(
    wire: WireClient, consumer: NewConsumer, unique: str
) -> None:
    new_queue(wire, unique, 1)
    mine = consumer(share_acknowledgement_mode="explicit")
    (delivery,) = one_poll(mine)
    delivery.release(after=0.3)
    delivery.accept()
    assert mine.commit_sync() == {TopicPartition(unique, 0): None}
    assert nothing_comes(mine)


def test_closing_gives_the_record_back_at_once_as_a_delivery_that_was_used(
    wire: WireClient, consumer: NewConsumer, unique: str
) -> None:
    new_queue(wire, unique, 1)
    mine = consumer(share_acknowledgement_mode="explicit")
    (delivery,) = one_poll(mine)
    delivery.release(after=3_000)
    mine.close()
    assert places(one_poll(consumer())) == [(0, 0, 2)]


def test_a_busy_application_need_not_poll_for_the_release_to_be_made(
    wire: WireClient, consumer: NewConsumer, unique: str
) -> None:
    new_queue(wire, unique, 1)
    mine = consumer(share_acknowledgement_mode="explicit")
    (delivery,) = one_poll(mine)
    delivery.release(after=0.5)
    assert places(one_poll(consumer())) == [(0, 0, 2)]


def test_where_the_group_forbids_renewals_the_record_comes_back_before_its_lock_ends(
    wire: WireClient, consumer: NewConsumer, unique: str
) -> None:
    new_queue(wire, unique, 1, record_lock_duration_ms="3000")
    set_group(wire, unique, renew_acknowledge_enable="false")
    heard: list[object] = []
    mine = consumer(share_acknowledgement_mode="explicit")
    mine.set_acknowledgement_commit_callback(lambda offsets, error: heard.append((offsets, error)))
    (delivery,) = one_poll(mine)
    delivery.release(after=3_000)
    (again,) = one_poll(mine)
    assert (again.offset, again.delivery_count) == (0, 2)
    again.accept()
    mine.commit_sync()
    assert heard == 2 * [({TopicPartition(unique, 0): {0}}, None)]


def test_with_max_unacknowledged_a_record_that_is_released_later_counts_as_held(
    wire: WireClient, consumer: NewConsumer, unique: str
) -> None:
    new_queue(wire, unique, 2)
    mine = consumer(share_acknowledgement_mode="explicit", max_unacknowledged=1)
    (delivery,) = one_poll(mine)
    delivery.release(after=300)
    assert nothing_comes(mine, 0.5)
    delivery.accept()
    assert places(one_poll(mine)) == [(0, 1, 1)]


def test_with_asyncio_a_record_comes_back_after_the_time(
    broker: BrokerUnderTest, wire: WireClient, unique: str
) -> None:
    new_queue(wire, unique, 1)

    async def run() -> None:
        async with AsyncShareConsumer(
            bootstrap_servers=broker.bootstrap_servers,
            group_id=unique,
            share_acknowledgement_mode="explicit",
        ) as mine:
            mine.subscribe([unique])
            (delivery,) = await mine.poll(60)
            released = time.monotonic()
            delivery.release(after=1.5)
            (again,) = await mine.poll(60)
            assert time.monotonic() - released >= 1.5
            assert (again.offset, again.delivery_count) == (0, 2)
            again.accept()

    asyncio.run(run())


def test_delays_that_are_not_possible_are_refused(
    wire: WireClient, consumer: NewConsumer, unique: str
) -> None:
    new_queue(wire, unique, 1)
    mine = consumer(share_acknowledgement_mode="explicit", auto_renew_max_ms=60_000)
    (delivery,) = one_poll(mine)
    for after in (-1, 60.001, float("nan"), timedelta(minutes=2)):
        with pytest.raises(ValueError, match=r"after must be from 0 to 60 seconds, got"):
            delivery.release(after=after)
    with pytest.raises(TypeError, match=r"after must be seconds or a timedelta, got '1'"):
        delivery.release(after="1")  # type: ignore[arg-type]
    delivery.accept()
    mine.commit_sync()
    with pytest.raises(IllegalStateError, match=r"cannot be acknowledged"):
        delivery.release(after=1)


def test_an_implicit_consumer_cannot_release_later(
    wire: WireClient, consumer: NewConsumer, unique: str
) -> None:
    new_queue(wire, unique, 1)
    (delivery,) = one_poll(consumer())
    with pytest.raises(IllegalStateError, match=r"Implicit"):
        delivery.release(after=1)
