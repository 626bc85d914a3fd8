"""The asyncio consumer: the same rules, and tasks that are canceled."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from headrace.client.aio import AsyncShareConsumer
from headrace.client.delivery import Delivery, TopicPartition
from headrace.client.errors import IllegalStateError, WakeupError
from tests.conformance.conftest import BrokerUnderTest
from tests.conformance.share.share_client import describe_share_group, fill, new_queue
from tests.conformance.steps import wait_for
from tests.conformance.wire_client import WireClient

Open = Callable[..., Any]


@pytest.fixture
def opened(broker: BrokerUnderTest, unique: str) -> Open:
    """Opens a consumer of the test's topic, for `async with`."""

    @asynccontextmanager
    async def open_one(**settings: Any) -> AsyncIterator[AsyncShareConsumer]:
        given = {"bootstrap_servers": broker.bootstrap_servers, "group_id": unique, **settings}
        async with AsyncShareConsumer(**given) as consumer:
            consumer.subscribe([unique])
            yield consumer

    return open_one


async def first(consumer: AsyncShareConsumer) -> list[Delivery]:
    async with asyncio.timeout(20):
        while not (found := await consumer.poll(0.5)):
            pass
    return found


def test_poll_acknowledge_and_commit(wire: WireClient, opened: Open, unique: str) -> None:
    new_queue(wire, unique, 3)

    async def run() -> None:
        async with opened(share_acknowledgement_mode="explicit") as consumer:
            one, two, three = await first(consumer)
            one.accept()
            two.release()
            with pytest.raises(IllegalStateError):
                await consumer.poll(0)
            three.reject()
            assert await consumer.commit_sync() == {TopicPartition(unique, 0): None}
            assert [each.offset for each in await first(consumer)] == [1]

    asyncio.run(run())


def test_a_canceled_poll_loses_nothing(wire: WireClient, opened: Open, unique: str) -> None:
    new_queue(wire, unique)

    async def run() -> None:
        async with opened() as consumer:
            assert await consumer.poll(0.5) == []
            for number in range(20):
                polling = asyncio.create_task(consumer.poll(5))
                await asyncio.sleep(0)
                await asyncio.to_thread(fill, wire, unique, 1)
                for _ in range(number % 5):
                    await asyncio.sleep(0)
                polling.cancel()
                try:
                    found = await polling
                except asyncio.CancelledError:
                    found = await first(consumer)
                assert [each.offset for each in found] == [number]

    asyncio.run(run())


def is_held_back(consumer: AsyncShareConsumer) -> bool:
    """A fetch is on its way that the broker may answer later than `close` returns."""
    sessions = list(consumer._member.core.sessions.values())
    return any(one.in_flight is not None and one.in_flight.wait_ms > 10_000 for one in sessions)


@pytest.mark.parametrize("count", [0, 1])
def test_a_consumer_closes_although_its_broker_holds_back_a_fetch_for_long(
    wire: WireClient, opened: Open, unique: str, count: int
) -> None:
    """Also its first one, which opens the session."""
    new_queue(wire, unique, *[1] * count)
    told = []

    async def run() -> None:
        settings = {"share_acknowledgement_mode": "explicit", "max_unacknowledged": 10}
        async with opened(**settings, fetch_max_wait_ms=25_000) as consumer:
            consumer.set_acknowledgement_commit_callback(lambda *result: told.append(result))
            found = await first(consumer) if count else []
            polling = asyncio.create_task(consumer.poll(600))
            await asyncio.to_thread(wait_for, lambda: is_held_back(consumer))
            polling.cancel()
            await asyncio.wait([polling])
            for delivery in found:
                delivery.accept()
            await consumer.close(8)

    asyncio.run(run())
    assert told == [({TopicPartition(unique, 0): {0}}, None)] * count
    assert describe_share_group(wire, unique).members == []


def test_an_iteration_ends_with_wakeup(wire: WireClient, opened: Open, unique: str) -> None:
    new_queue(wire, unique, 3)

    async def run() -> None:
        async with opened() as consumer:
            seen = []
            async for delivery in consumer:
                seen.append(delivery.offset)
                if len(seen) == 3:
                    consumer.wakeup()
            assert seen == [0, 1, 2]
            consumer.wakeup()
            with pytest.raises(WakeupError):
                await consumer.poll(10)

    asyncio.run(run())


def test_two_tasks_cannot_poll_one_consumer(wire: WireClient, opened: Open, unique: str) -> None:
    new_queue(wire, unique)

    async def run() -> None:
        async with opened() as consumer:
            polling = asyncio.create_task(consumer.poll(0.3))
            await asyncio.sleep(0)
            with pytest.raises(IllegalStateError, match="another task"):
                await consumer.poll(0)
            await polling

    asyncio.run(run())


def test_auto_renew_goes_on_while_a_task_sleeps(wire: WireClient, opened: Open, unique: str) -> None:
    new_queue(wire, unique, 1, record_lock_duration_ms="3000")

    async def run() -> None:
        async with opened(share_acknowledgement_mode="explicit", auto_renew=True) as consumer:
            (delivery,) = await first(consumer)
            await asyncio.sleep(3.5)  # longer than the lock lasts, which nothing tells but the time
            assert not delivery.is_lost
            delivery.accept()
            assert await consumer.commit_sync() == {TopicPartition(unique, 0): None}

    asyncio.run(run())
