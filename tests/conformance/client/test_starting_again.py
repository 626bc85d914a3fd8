"""A consumer whose start found no broker: the poll that waited for it says so, and the next one tries again."""

import asyncio
from typing import Any

import pytest

from headrace import Admin, Broker
from headrace.client.aio import AsyncShareConsumer
from headrace.client.sync import ShareConsumer
from headrace.testing.apache_kafka import free_ports
from headrace.worker import Queue
from tests.conformance.steps import wait_for

GROUP, TOPIC = "late", "orders"


def settings_for(port: int) -> dict[str, Any]:
    return {
        "bootstrap_servers": f"127.0.0.1:{port}",
        "group_id": GROUP,
        "default_api_timeout_ms": 100,
        "reconnect_backoff_max_ms": 100,
    }


def fill(broker: Broker) -> None:
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_topic(TOPIC)
        admin.set_group_config(GROUP, {"share.auto.offset.reset": "earliest"})
    with Queue(broker.bootstrap_servers, group_id=GROUP) as queue:
        queue.send(TOPIC, b"one")


def test_a_poll_after_a_start_without_a_broker_tries_again() -> None:
    (port,) = free_ports(1)
    with ShareConsumer(**settings_for(port)) as consumer:
        consumer.subscribe([TOPIC])
        for _ in range(2):
            with pytest.raises(ConnectionError, match=f"127.0.0.1:{port}: no broker could be reached"):
                wait_for(lambda: consumer.poll(0.5))
            assert consumer.poll(0) == [], "it has been said, and a new try is under way"
        with Broker(port=port) as broker:
            fill(broker)
            (delivery,) = wait_for(lambda: poll_through_trouble(consumer))
            assert delivery.value == b"one"
            consumer.close()


def poll_through_trouble(consumer: ShareConsumer) -> Any:
    try:
        return consumer.poll(0.5)
    except ConnectionError:
        return []


def test_a_poll_of_the_asyncio_consumer_tries_again_too() -> None:
    (port,) = free_ports(1)

    async def scenario() -> None:
        consumer = AsyncShareConsumer(**settings_for(port))
        consumer.subscribe([TOPIC])
        with pytest.raises(ConnectionError, match="no broker could be reached"):
            await consumer.start()
        with pytest.raises(ConnectionError, match="no broker could be reached"):
            await consumer.poll(10)
        assert await consumer.poll(0) == []
        with await asyncio.to_thread(Broker(port=port).start) as broker:
            await asyncio.to_thread(fill, broker)
            async with asyncio.timeout(20):
                found: list[Any] = []
                while not found:
                    try:
                        found = await consumer.poll(0.5)
                    except ConnectionError:
                        found = []
            assert [each.value for each in found] == [b"one"]
            await consumer.close()

    asyncio.run(scenario())


def test_a_consumer_that_is_between_two_tries_is_closed_at_once() -> None:
    (port,) = free_ports(1)
    consumer = ShareConsumer(**{**settings_for(port), "reconnect_backoff_max_ms": 60_000})
    consumer.subscribe([TOPIC])
    with pytest.raises(ConnectionError):
        wait_for(lambda: consumer.poll(0.5))
    assert consumer.poll(0.05) == []
    consumer.close(timeout=5)
