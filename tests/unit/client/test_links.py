"""Connections by address and lane: shared, spaced when they fail, dropped when they are no longer wanted."""

import asyncio
import time
from collections.abc import Iterator

import pytest

from headrace import Broker
from headrace.base.backoff import JITTER
from headrace.client.errors import BrokerNotAvailableError
from headrace.client.links import Lane, Links
from headrace.client.settings import Address
from headrace.testing.apache_kafka import free_ports
from tests.unit.client.misbehaving import Relay, Service
from tests.unit.client.talk import run, settings_for


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


def address_of(broker: Broker) -> Address:
    host, _, port = broker.bootstrap_servers.rpartition(":")
    return Address(host, int(port))


def test_callers_at_the_same_time_share_one_connection(broker: Broker) -> None:
    async def scenario() -> None:
        async with Relay(broker.bootstrap_servers) as relay:
            links = Links(settings_for(relay.address))
            address = Address("127.0.0.1", relay.port)
            found = await asyncio.gather(*(links.connection(address) for _ in range(10)))
            assert len(set(found)) == 1
            assert relay.connections == 1
            await links.close()

    run(scenario())


def test_each_lane_has_a_connection_of_its_own(broker: Broker) -> None:
    async def scenario() -> None:
        links = Links(settings_for(broker))
        address = address_of(broker)
        questions = await links.connection(address)
        fetches = await links.connection(address, Lane.FETCHES)
        assert questions is not fetches
        assert links.least_busy([address]) is questions
        await links.close()
        assert not questions.is_open
        assert not fetches.is_open

    run(scenario())


def test_waits_double_up_to_the_longest_with_some_jitter() -> None:
    async def scenario() -> None:
        (port,) = free_ports(1)
        address = Address("127.0.0.1", port)
        links = Links(settings_for(str(address), reconnect_backoff_ms=10, reconnect_backoff_max_ms=40))
        assert links.wait_s(address) == 0.0
        for expected in (10, 20, 40, 40, 40):
            began = time.monotonic()
            with pytest.raises(BrokerNotAvailableError):
                await links.connection(address)
            wait = links.wait_s(address) * 1000
            passed = (time.monotonic() - began) * 1000
            assert wait <= expected * (1 + JITTER)
            assert wait + passed >= expected * (1 - JITTER)
        await links.close()

    run(scenario())


def test_a_caller_that_gives_up_does_not_end_the_try_of_another(broker: Broker) -> None:
    async def scenario() -> None:
        links = Links(settings_for(broker))
        first = asyncio.create_task(links.connection(address_of(broker)))
        second = asyncio.create_task(links.connection(address_of(broker)))
        await asyncio.sleep(0)
        first.cancel()
        assert (await second).is_open
        await links.close()

    run(scenario())


def test_brokers_that_left_are_let_go(broker: Broker) -> None:
    async def scenario() -> None:
        links = Links(settings_for(broker))
        connection = await links.connection(address_of(broker))
        links.keep_only({address_of(broker)})
        assert connection.is_open
        links.keep_only({Address("elsewhere", 1)})
        assert links.least_busy([address_of(broker)]) is None
        await links.close()
        assert not connection.is_open

    run(scenario())


def test_closing_ends_a_try_that_is_under_way() -> None:
    async def scenario() -> None:
        async def listen(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
            await reader.read()

        async with Service(listen) as silent:
            links = Links(settings_for(silent.address))
            trying = asyncio.create_task(links.connection(Address("127.0.0.1", silent.port)))
            await asyncio.sleep(0.01)  # it is connected, or about to be: both must end
            await links.close()
            with pytest.raises(asyncio.CancelledError):
                await trying

    run(scenario())
