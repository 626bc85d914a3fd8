"""One connection, against a real broker in this process and against servers that do what brokers should not."""

import asyncio
import socket
import struct
from collections.abc import Iterator

import pytest

from headrace import Broker
from headrace.client.connection import BrokerConnection
from headrace.client.errors import (
    BrokerNotAvailableError,
    ConnectionLost,
    RequestTimeoutError,
    UnsupportedVersionError,
)
from headrace.client.settings import Address
from headrace.testing.apache_kafka import free_ports
from headrace.wire.apis import NAMES
from headrace.wire.message import Message
from headrace.wire.messages.api_versions_request import ApiVersionsRequest
from headrace.wire.messages.api_versions_response import ApiVersion, ApiVersionsResponse
from headrace.wire.messages.find_coordinator_request import FindCoordinatorRequest
from headrace.wire.messages.metadata_request import MetadataRequest
from headrace.wire.messages.metadata_response import MetadataResponse, MetadataResponseBroker
from headrace.wire.messages.share_fetch_request import ShareFetchRequest
from tests.unit.client.misbehaving import ScriptedBroker, Service
from tests.unit.client.talk import run, settings_for

METADATA = MetadataRequest(topics=[])


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


async def open_to(address: str, **keywords: object) -> BrokerConnection:
    host, _, port = address.rpartition(":")
    return await BrokerConnection.open(Address(host, int(port)), settings_for(address, **keywords))


def cluster_named(name: str) -> MetadataResponse:
    return MetadataResponse(cluster_id=name)


def test_a_request_is_answered_in_the_highest_common_version(broker: Broker) -> None:
    async def scenario() -> None:
        connection = await open_to(broker.bootstrap_servers)
        answer = await connection.send(METADATA)
        assert [node.node_id for node in answer.brokers] == [1]
        assert connection.version_of(MetadataRequest.API_KEY) == MetadataRequest.VERSIONS[1]
        assert connection.version_of(MetadataRequest.API_KEY, version_max=9) == 9
        assert connection.versions[MetadataRequest.API_KEY][1] >= 12
        await connection.close()

    run(scenario())


def test_a_given_version_is_the_one_that_is_sent() -> None:
    async def scenario() -> None:
        versions = []

        def answer(_: MetadataRequest, version: int) -> MetadataResponse:
            versions.append(version)
            return cluster_named("x")

        async with ScriptedBroker({"metadata": answer}) as broker:
            connection = await open_to(broker.address)
            await connection.send(METADATA, version=9)
            await connection.send(METADATA, version_max=10)
            await connection.send(METADATA)
            assert versions == [9, 10, MetadataRequest.VERSIONS[1]]
            await connection.close()

    run(scenario())


def test_many_requests_at_a_time_each_get_their_own_answer(broker: Broker) -> None:
    async def scenario() -> None:
        connection = await open_to(broker.bootstrap_servers)
        groups = [f"group-{number}" for number in range(200)]
        requests = [FindCoordinatorRequest(coordinator_keys=[group]) for group in groups]
        answers = await asyncio.gather(*(connection.send(request) for request in requests))
        assert [answer.coordinators[0].key for answer in answers] == groups
        assert connection.in_flight == 0
        await connection.close()

    run(scenario())


def test_an_answer_of_many_megabytes_comes_whole(broker: Broker) -> None:
    async def scenario() -> None:
        hosts = ["h" * 30_000 + str(number) for number in range(400)]
        nodes = [MetadataResponseBroker(node_id=number, host=host) for number, host in enumerate(hosts)]
        async with ScriptedBroker({"metadata": lambda *_: MetadataResponse(brokers=nodes)}) as broker:
            connection = await open_to(broker.address)
            first, second = await asyncio.gather(connection.send(METADATA), connection.send(METADATA))
            assert [node.host for node in first.brokers] == hosts
            assert [node.host for node in second.brokers] == hosts
            await connection.close()

    run(scenario())


def test_a_caller_that_was_canceled_leaves_the_connection_in_order() -> None:
    async def scenario() -> None:
        names = iter(["for the canceled one", "for the next one"])
        async with ScriptedBroker({"metadata": lambda *_: cluster_named(next(names))}) as broker:
            connection = await open_to(broker.address)
            caller = asyncio.create_task(connection.send(METADATA))
            await asyncio.sleep(0)  # lets it write its request
            caller.cancel()
            assert (await connection.send(METADATA)).cluster_id == "for the next one"
            assert connection.in_flight == 0
            await connection.close()

    run(scenario())


def test_a_late_answer_closes_the_connection() -> None:
    async def scenario() -> None:
        async with ScriptedBroker({"metadata": lambda *_: None}) as broker:
            connection = await open_to(broker.address)
            other = asyncio.create_task(connection.send(METADATA, timeout_ms=20_000))
            await asyncio.sleep(0)
            with pytest.raises(RequestTimeoutError, match=r"no answer to metadata within 0\.05 s"):
                await connection.send(METADATA, timeout_ms=50)
            with pytest.raises(ConnectionLost, match="metadata was not answered"):
                await other
            assert not connection.is_open
            with pytest.raises(ConnectionLost, match="metadata was not answered"):
                await connection.send(METADATA)

    run(scenario())


def test_an_answer_in_time_leaves_the_others_their_own_time() -> None:
    async def scenario() -> None:
        answers = iter([cluster_named("in time")])
        script = {"metadata": lambda *_: next(answers, None), "find_coordinator": lambda *_: None}
        async with ScriptedBroker(script) as broker:
            connection = await open_to(broker.address)
            other = asyncio.create_task(connection.send(FindCoordinatorRequest(), timeout_ms=20_000))
            await asyncio.sleep(0)
            assert (await connection.send(METADATA, timeout_ms=5_000)).cluster_id == "in time"
            with pytest.raises(RequestTimeoutError, match=r"no answer to metadata within 0\.1 s"):
                await connection.send(METADATA, timeout_ms=100)
            with pytest.raises(ConnectionLost, match="metadata was not answered"):
                await other

    run(scenario())


def test_the_timer_of_an_answered_request_ends_no_other_one() -> None:
    async def scenario() -> None:
        answers = iter([cluster_named("first")])
        script = {"metadata": lambda *_: next(answers, None)}
        async with ScriptedBroker(script) as broker:
            connection = await open_to(broker.address)
            await connection.send(METADATA, timeout_ms=10_000)
            other = asyncio.create_task(connection.send(METADATA, timeout_ms=20_000))
            await asyncio.sleep(0)
            connection._check_late()  # as after the ten seconds of the first one
            assert connection.is_open
            assert connection._timer_due == connection._waiting[connection._correlation_id].due
            await connection.close()
            with pytest.raises(ConnectionLost):
                await other

    run(scenario())


def test_a_posted_request_is_answered_by_its_callback(broker: Broker) -> None:
    async def scenario() -> None:
        connection = await open_to(broker.bootstrap_servers)
        loop = asyncio.get_running_loop()
        failures: list[object] = []
        loop.set_exception_handler(lambda _, context: failures.append(context["exception"]))
        fault = ValueError("of the callback")

        def fail(*_: object) -> None:
            raise fault

        assert connection.post(METADATA, fail)
        heard = loop.create_future()
        assert connection.post(METADATA, lambda *given: heard.set_result(given))
        response, error = await heard
        assert [node.node_id for node in response.brokers] == [1]
        assert error is None
        assert failures == [fault]
        assert connection.is_open
        await connection.close()
        assert not connection.post(METADATA, fail)

    run(scenario())


def test_a_posted_request_hears_that_the_connection_was_lost() -> None:
    async def scenario() -> None:
        async with ScriptedBroker({"metadata": lambda *_: None}) as broker:
            connection = await open_to(broker.address)
            heard = asyncio.get_running_loop().create_future()
            connection.post(METADATA, lambda *given: heard.set_result(given))
            await connection.close()
            response, error = await heard
            assert response is None
            assert isinstance(error, ConnectionLost)

    run(scenario())


def test_what_waits_fails_when_the_broker_stops() -> None:
    async def scenario(broker: Broker) -> None:
        connection = await open_to(broker.bootstrap_servers)
        ended = asyncio.get_running_loop().create_future()
        connection.on_closed = ended.set_result
        await connection.send(METADATA)
        await asyncio.to_thread(broker.stop)
        assert await ended is connection
        with pytest.raises(ConnectionLost, match="closed the connection"):
            await connection.send(METADATA)

    with Broker() as broker:
        run(scenario(broker))


def test_closing_fails_what_waits_and_can_be_repeated() -> None:
    async def scenario() -> None:
        async with ScriptedBroker({"metadata": lambda *_: None}) as broker:
            connection = await open_to(broker.address)
            waiting = asyncio.create_task(connection.send(METADATA))
            await asyncio.sleep(0)
            await connection.close()
            await connection.close()
            with pytest.raises(ConnectionLost, match="closed here"):
                await waiting

    run(scenario())


def test_an_api_that_the_broker_lacks_is_named_before_anything_is_sent() -> None:
    async def scenario() -> None:
        async with ScriptedBroker({}, versions={18: (0, 4), 78: (9, 12)}) as broker:
            connection = await open_to(broker.address)
            with pytest.raises(UnsupportedVersionError, match=r"metadata.*does not have it.*Kafka 4\.2"):
                await connection.send(METADATA)
            with pytest.raises(UnsupportedVersionError, match=r"share_fetch.*v1 to v2.*has v9 to v12"):
                await connection.send(ShareFetchRequest())
            assert [name for name, _ in broker.asked] == ["api_versions"]
            await connection.close()

    run(scenario())


def test_a_field_that_the_brokers_version_cannot_carry_is_refused_before_anything_is_sent() -> None:
    async def scenario() -> None:
        async with ScriptedBroker({}, versions={18: (0, 4), 78: (1, 1)}) as broker:
            connection = await open_to(broker.address)
            with pytest.raises(
                UnsupportedVersionError, match="ShareFetchRequest v1 cannot carry is_renew_ack"
            ):
                await connection.send(ShareFetchRequest(is_renew_ack=True))
            assert [name for name, _ in broker.asked] == ["api_versions"]
            assert connection.in_flight == 0
            await connection.close()

    run(scenario())


def test_a_broker_with_older_api_versions_is_asked_again_in_its_own() -> None:
    """It answers a version that it does not know in version 0, with error 35 and what it knows."""

    async def scenario() -> None:
        keys = [ApiVersion(api_key=18, min_version=0, max_version=2), ApiVersion(api_key=3, max_version=12)]
        asked = []

        def answer(_: Message, version: int) -> Message | bytes:
            asked.append(version)
            if version > 2:
                body = struct.pack(">ihihhhhhh", 1, 35, 2, 18, 0, 2, 3, 0, 12)
                return struct.pack(">i", len(body)) + body
            return ApiVersionsResponse(api_keys=keys)

        async with ScriptedBroker({"api_versions": answer}) as broker:
            connection = await open_to(broker.address)
            assert asked == [ApiVersionsRequest.VERSIONS[1], 2]
            assert connection.versions == {18: (0, 2), 3: (0, 12)}
            await connection.close()

    run(scenario())


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (struct.pack(">ii", 4, 99), "response to request 99, which was not sent"),
        (struct.pack(">iih", 6, 2, 1), "the response to metadata v13 cannot be read"),
        (struct.pack(">ih", 2, 1), "a response of 2 bytes"),
        (struct.pack(">i", 2**30), r"1073741824 bytes.*receive\.message\.max\.bytes"),
        (struct.pack(">i", -5), "-5 bytes"),
    ],
)
def test_bytes_that_are_no_answer_close_the_connection(answer: bytes, words: str) -> None:
    async def scenario() -> None:
        async with ScriptedBroker({"metadata": lambda *_: answer}) as broker:
            connection = await open_to(broker.address)
            with pytest.raises(ConnectionLost, match=words):
                await connection.send(METADATA)
            assert not connection.is_open

    run(scenario())


def test_bytes_behind_an_answer_close_the_connection() -> None:
    async def scenario() -> None:
        async with ScriptedBroker({}) as broker:
            whole = ApiVersionsResponse(api_keys=[ApiVersion(api_key=key) for key in NAMES])
            broker.answers["api_versions"] = lambda *_: whole
            connection = await open_to(broker.address)
            broker.answers["find_coordinator"] = lambda *_: (
                struct.pack(">iihihi", 18, 2, 0, 1, 0, 9092) + b"xx"
            )
            with pytest.raises(ConnectionLost, match="2 unexpected bytes after the response"):
                await connection.send(FindCoordinatorRequest(key="g"), version=0)

    run(scenario())


@pytest.mark.parametrize(
    ("greeting", "words"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "speaks HTTP"),
        (b"SSH-2.0-OpenSSH_9.2p1\r\n", "not from a Kafka broker"),
        (b"", r"closed the connection before it answered anything\. security\.protocol is PLAINTEXT"),
    ],
)
def test_another_service_on_the_port_gives_a_clear_error(greeting: bytes, words: str) -> None:
    async def scenario() -> None:
        async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(1)
            writer.write(greeting)
            await writer.drain()

        async with Service(greet) as service:
            with pytest.raises(BrokerNotAvailableError, match=words) as caught:
                await open_to(service.address)
            assert caught.value.hung_up
            assert service.address in str(caught.value)

    run(scenario())


def test_a_port_without_a_listener_is_named() -> None:
    async def scenario() -> None:
        (port,) = free_ports(1)
        with pytest.raises(
            BrokerNotAvailableError, match=rf"127\.0\.0\.1:{port}: Connection refused.*bootstrap"
        ):
            await open_to(f"127.0.0.1:{port}")

    run(scenario())


def test_a_host_with_several_addresses_that_all_refuse_says_so_once(monkeypatch: pytest.MonkeyPatch) -> None:
    (port,) = free_ports(1)
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (f"127.0.0.{last}", port)) for last in (1, 2)]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)

    async def scenario() -> None:
        with pytest.raises(BrokerNotAvailableError, match=rf"at both:{port}: Connection refused \("):
            await open_to(f"both:{port}")

    run(scenario())


def test_a_host_name_that_does_not_resolve_is_named() -> None:
    async def scenario() -> None:
        with pytest.raises(
            BrokerNotAvailableError, match=r"nowhere\.invalid:9092: the host name cannot be resolved"
        ):
            await open_to("nowhere.invalid:9092")

    run(scenario())


def test_a_service_that_says_nothing_is_given_up_in_time() -> None:
    async def scenario() -> None:
        async def listen(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
            await reader.read()

        async with Service(listen) as service:
            with pytest.raises(BrokerNotAvailableError, match=r"not be used within 0\.1 s"):
                await open_to(service.address, socket_connection_setup_timeout_ms=100)

    run(scenario())
