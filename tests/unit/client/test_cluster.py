"""The picture of the cluster, from a real broker in this process; elections and strangers from scripted ones."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headrace import Broker
from headrace.client.cluster import ANY, HANG_UPS_MAX, Cluster, Node
from headrace.client.errors import (
    BrokerNotAvailableError,
    GroupAuthorizationError,
    IllegalStateError,
    SaslAuthenticationError,
    UnsupportedVersionError,
    error_for,
)
from headrace.testing.apache_kafka import free_ports
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from headrace.wire.messages.find_coordinator_response import Coordinator, FindCoordinatorResponse
from headrace.wire.messages.metadata_request import MetadataRequest
from headrace.wire.messages.metadata_response import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from headrace.wire.messages.sasl_authenticate_response import SaslAuthenticateResponse
from headrace.wire.messages.sasl_handshake_response import SaslHandshakeResponse
from tests.unit.client.misbehaving import Relay, ScriptedBroker, Service
from tests.unit.client.talk import create_topic, run, settings_for

TOPIC_ID = bytes(range(16))
METADATA = MetadataRequest(topics=[])


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


def metadata(
    *brokers: Service, leader: int = 1, epoch: int = 0, topic_id: bytes = TOPIC_ID
) -> MetadataResponse:
    """An answer that names these brokers (1, 2, ...) and one topic `t` with one partition."""
    partition = MetadataResponsePartition(partition_index=0, leader_id=leader, leader_epoch=epoch)
    return MetadataResponse(
        cluster_id="scripted",
        controller_id=1,
        brokers=[
            MetadataResponseBroker(node_id=number, host="127.0.0.1", port=each.port)
            for number, each in enumerate(brokers, 1)
        ],
        topics=[MetadataResponseTopic(name="t", topic_id=topic_id, partitions=[partition])],
    )


def test_the_first_metadata_names_cluster_controller_and_brokers(broker: Broker) -> None:
    async def scenario() -> None:
        async with Cluster(settings_for(broker)) as cluster:
            host, _, port = broker.bootstrap_servers.rpartition(":")
            assert cluster.nodes == {1: Node(1, host, int(port))}
            assert cluster.cluster_id == broker.call(lambda: broker.core.cluster_id)
            assert cluster.controller_id == 1

    run(scenario())


def test_a_topic_is_found_by_name_and_by_id(broker: Broker, unique: str) -> None:
    async def scenario() -> None:
        async with Cluster(settings_for(broker)) as cluster:
            made = await create_topic(cluster, unique, partitions=3)
        async with Cluster(settings_for(broker)) as cluster:
            assert cluster.topic(unique) is None
            await cluster.refresh(topic_ids=[made.topic_id])
            found = cluster.topic_by_id(made.topic_id)
            assert found == cluster.topic(unique) == made
            assert sorted(made.partitions) == [0, 1, 2]
            assert {each.leader_id for each in made.partitions.values()} == {1}

    run(scenario())


def test_an_unknown_topic_is_none_with_its_error(broker: Broker, unique: str) -> None:
    async def scenario() -> None:
        async with Cluster(settings_for(broker)) as cluster:
            await cluster.refresh([unique], topic_ids=[b"0123456789abcdef"])
            assert cluster.topic(unique) is None
            assert cluster.topic_errors == {unique: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
            assert cluster.topic_by_id(b"0123456789abcdef") is None
            await create_topic(cluster, unique)
            assert cluster.topic_errors == {}

    run(scenario())


def test_a_refresh_asks_for_every_topic_wanted_so_far_but_the_forgotten() -> None:
    async def scenario() -> None:
        asked = []

        def answer(request: MetadataRequest, _: int) -> MetadataResponse:
            asked.append([topic.name for topic in request.topics or ()])
            return metadata(broker)

        async with (
            ScriptedBroker({"metadata": answer}) as broker,
            Cluster(settings_for(broker.address)) as cluster,
        ):
            await cluster.refresh(["a", "b"])
            await cluster.refresh(["c"])
            cluster.forget_topics(["b"])
            await cluster.refresh()
            assert asked == [[], ["a", "b"], ["a", "b", "c"], ["a", "c"]]

    run(scenario())


def test_refreshes_at_the_same_time_are_one_request() -> None:
    async def scenario() -> None:
        async with (
            ScriptedBroker({"metadata": lambda *_: metadata(broker)}) as broker,
            Cluster(settings_for(broker.address)) as cluster,
        ):
            await asyncio.gather(*(cluster.refresh(["t"]) for _ in range(20)))
            assert [name for name, _ in broker.asked].count("metadata") == 2  # the first was the start's

    run(scenario())


@pytest.mark.timeout(20)
def test_a_refresh_right_behind_the_end_of_another_does_not_wait_for_it_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It runs after the other's task has ended and before that task's callback: it must not spin in between."""

    async def scenario() -> list[list[str | None]]:
        cluster = Cluster(settings_for("localhost:1"))
        gate: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        asked: list[list[str | None]] = []

        async def fetch(topics: Any, **_: Any) -> None:
            asked.append([topic.name for topic in topics])
            if not gate.done():
                gate.set_result(None)

        async def follow() -> None:
            await gate
            await cluster.refresh(["b"])

        monkeypatch.setattr(cluster, "_fetch_metadata", fetch)
        following = asyncio.create_task(follow())
        await asyncio.sleep(0)
        await cluster.refresh(["a"])
        await following
        return asked

    assert run(scenario()) == [["a"], ["a", "b"]]


def test_a_refresh_survives_the_caller_that_began_it() -> None:
    async def scenario() -> None:
        async with (
            ScriptedBroker({"metadata": lambda *_: metadata(broker)}) as broker,
            Cluster(settings_for(broker.address)) as cluster,
        ):
            first = asyncio.create_task(cluster.refresh(["t"]))
            second = asyncio.create_task(cluster.refresh(["t"]))
            await asyncio.sleep(0)
            first.cancel()
            await second
            assert cluster.topic("t") is not None

    run(scenario())


def test_an_older_leader_epoch_never_replaces_a_newer_one() -> None:
    async def scenario() -> None:
        answers = iter([metadata, metadata, metadata])
        epochs = iter([7, 5, 8])
        leaders = iter([2, 1, 1])

        def answer(*_: object) -> MetadataResponse:
            return next(answers)(first, second, leader=next(leaders), epoch=next(epochs))

        async with (
            ScriptedBroker({"metadata": answer}) as first,
            Service(hang_up) as second,
            Cluster(settings_for(first.address)) as cluster,
        ):
            seen = [leader_of(cluster)]
            for _ in range(2):
                await cluster.refresh(["t"])
                seen.append(leader_of(cluster))
            assert seen == [(2, 7), (2, 7), (1, 8)]

    run(scenario())


def leader_of(cluster: Cluster) -> tuple[int, int]:
    topic = cluster.topic("t")
    assert topic is not None
    return topic.partitions[0].leader_id, topic.partitions[0].leader_epoch


async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Accepts, hears the first request, and closes."""
    await reader.read(4)


def test_a_topic_made_anew_under_its_name_starts_with_its_own_epochs() -> None:
    async def scenario() -> None:
        answers = iter([(7, TOPIC_ID), (0, TOPIC_ID[::-1])])

        def answer(*_: object) -> MetadataResponse:
            epoch, topic_id = next(answers)
            return metadata(broker, epoch=epoch, topic_id=topic_id)

        async with (
            ScriptedBroker({"metadata": answer}) as broker,
            Cluster(settings_for(broker.address)) as cluster,
        ):
            await cluster.refresh(["t"])
            assert leader_of(cluster) == (1, 0)
            assert cluster.topic_by_id(TOPIC_ID) is None
            assert cluster.topic_by_id(TOPIC_ID[::-1]) is cluster.topic("t")

    run(scenario())


def test_a_leader_that_an_answer_names_is_learned_by_its_epoch() -> None:
    async def scenario() -> None:
        async with (
            ScriptedBroker({"metadata": lambda *_: metadata(broker, epoch=3)}) as broker,
            Cluster(settings_for(broker.address)) as cluster,
        ):
            endpoint = SimpleNamespace(node_id=2, host="127.0.0.1", port=broker.port, rack=None)
            assert not cluster.learn_leader(TOPIC_ID, 0, 2, 3, [endpoint])
            assert not cluster.learn_leader(TOPIC_ID, 0, 2, 4)  # a broker that nobody has heard of
            assert not cluster.learn_leader(TOPIC_ID, 0, -1, 4)
            assert not cluster.learn_leader(TOPIC_ID, 9, 2, 4, [endpoint])
            assert not cluster.learn_leader(TOPIC_ID[::-1], 0, 2, 4, [endpoint])
            assert leader_of(cluster) == (1, 3)
            assert cluster.learn_leader(TOPIC_ID, 0, 2, 4, [endpoint])
            assert leader_of(cluster) == (2, 4)
            assert await cluster.send(2, METADATA) is not None

    run(scenario())


def test_the_coordinator_is_asked_for_once_until_it_is_forgotten(broker: Broker) -> None:
    async def scenario() -> None:
        answers = iter(
            [
                Coordinator(key="g", error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE),
                Coordinator(key="g", node_id=1, host="127.0.0.1", port=1),
                Coordinator(key="g", node_id=2, host="127.0.0.1", port=2),
                Coordinator(key="g", error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED),
            ]
        )
        scripted = ScriptedBroker(
            {
                "metadata": lambda *_: metadata(scripted),
                "find_coordinator": lambda *_: FindCoordinatorResponse(coordinators=[next(answers)]),
            }
        )
        async with scripted, Cluster(settings_for(scripted.address)) as cluster:
            assert [await cluster.coordinator("g") for _ in range(3)] == [1, 1, 1]
            cluster.forget_coordinator("g")
            assert await cluster.coordinator("g") == 2
            assert cluster.nodes[2] == Node(2, "127.0.0.1", 2)
            cluster.forget_coordinator("g")
            with pytest.raises(GroupAuthorizationError, match=r"group 'g'.*kafka-acls"):
                await cluster.coordinator("g")

    run(scenario())


def test_a_question_does_not_wait_behind_a_fetch_that_the_broker_holds_back(
    broker: Broker, unique: str
) -> None:
    async def scenario() -> None:
        async with Cluster(settings_for(broker)) as cluster:
            topic = await create_topic(cluster, unique)
            partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1_000)
            request = FetchRequest(
                max_wait_ms=20_000,
                min_bytes=1,
                topics=[FetchTopic(topic_id=topic.topic_id, partitions=[partition])],
            )
            connection = await cluster.connection(1)
            parked = asyncio.create_task(connection.send(request))
            await asyncio.wait_for(cluster.send(1, METADATA), 5)
            await asyncio.wait_for(cluster.send(ANY, METADATA), 5)
            assert not parked.done()
            parked.cancel()

    run(scenario())


def test_a_broker_that_comes_back_is_found_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Two lines in the log, however often it is tried: one when it goes away, one when it is back."""
    (port,) = free_ports(1)
    caplog.set_level(logging.INFO, "headrace.client")

    async def scenario() -> None:
        broker = await asyncio.to_thread(Broker(data_dir=tmp_path, port=port).start)
        async with Cluster(settings_for(f"127.0.0.1:{port}")) as cluster:
            await create_topic(cluster, "kept")
            await asyncio.to_thread(broker.stop)
            for _ in range(5):
                with pytest.raises(ConnectionError):
                    await cluster.send(1, METADATA)
            broker = await asyncio.to_thread(Broker(data_dir=tmp_path, port=port).start)
            try:
                await cluster.refresh()
                assert cluster.topic("kept") is not None
                assert await cluster.send(1, METADATA) is not None
            finally:
                await asyncio.to_thread(broker.stop)

    run(scenario())
    lines = [record.getMessage() for record in caplog.records if record.name == "headrace.client"]
    assert len(lines) == 2
    assert f"127.0.0.1:{port}: Connection refused" in lines[0]
    assert lines[1] == f"broker at 127.0.0.1:{port} is back"


def test_the_bootstrap_servers_are_tried_again_when_every_known_broker_is_gone() -> None:
    async def scenario() -> None:
        async with Relay() as second:
            first = ScriptedBroker({"metadata": lambda *_: metadata(first)})
            async with first:
                addresses = f"{first.address},{second.address}"
                cluster = Cluster(settings_for(addresses))
                await cluster.start()
                assert cluster.cluster_id == "scripted"
            with second.behind() as broker:
                await cluster.refresh()
                assert cluster.cluster_id == broker.call(lambda: broker.core.cluster_id)
                assert cluster.nodes[1].port == second.port
                await cluster.close()

    run(scenario())


def test_a_cut_connection_is_opened_anew_for_the_next_request() -> None:
    async def scenario() -> None:
        async with Relay() as relay:
            with relay.behind():
                async with Cluster(settings_for(relay.address)) as cluster:
                    relay.cut()
                    with pytest.raises(ConnectionError):
                        await ask_for_ever(cluster)
                    assert await cluster.send(1, METADATA) is not None
                    assert relay.connections == 2

    run(scenario())


async def ask_for_ever(cluster: Cluster) -> None:
    while True:
        await cluster.send(1, METADATA)


def test_metadata_is_asked_of_another_broker_when_the_connection_is_lost() -> None:
    async def scenario() -> None:
        async with Relay() as relay:
            with relay.behind():
                async with Cluster(settings_for(relay.address)) as cluster:
                    relay.cut()
                    await cluster.refresh()

    run(scenario())


def test_a_start_without_any_broker_fails_in_time_and_names_the_addresses() -> None:
    async def scenario() -> None:
        one, other = free_ports(2)
        settings = settings_for(f"127.0.0.1:{one},127.0.0.1:{other}", default_api_timeout_ms=150)
        with pytest.raises(
            BrokerNotAvailableError,
            match=rf"127\.0\.0\.1:{one}, 127\.0\.0\.1:{other}: no broker could be reached within 0\.15 s.*refused",
        ):
            await Cluster(settings).start()

    run(scenario())


def test_a_start_waits_for_a_broker_that_is_coming_up() -> None:
    (port,) = free_ports(1)

    async def scenario() -> None:
        cluster = Cluster(settings_for(f"127.0.0.1:{port}"))
        starting = asyncio.create_task(cluster.start())
        await asyncio.sleep(0.05)  # some tries find nobody
        assert not starting.done()
        with await asyncio.to_thread(Broker(port=port).start):
            await starting
            await cluster.close()

    run(scenario())


def test_a_start_outlasts_a_broker_that_is_killed_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        cluster = Cluster(settings_for("127.0.0.1:1"))
        hung_up = error_for(ErrorCode.BROKER_NOT_AVAILABLE, "it closed the connection")
        assert isinstance(hung_up, BrokerNotAvailableError)
        hung_up.hung_up = True
        refused = error_for(ErrorCode.BROKER_NOT_AVAILABLE, "connection refused")
        outcomes = iter([*[hung_up, refused] * HANG_UPS_MAX, None])

        async def refresh(_: object) -> None:
            if (error := next(outcomes)) is not None:
                raise error

        monkeypatch.setattr(cluster, "refresh", refresh)
        await cluster.start()
        await cluster.close()
        assert list(outcomes) == []

    run(scenario())


@pytest.mark.parametrize("greeting", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n"])
def test_a_start_at_another_service_fails_soon(greeting: bytes) -> None:
    async def scenario() -> None:
        async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(1)
            writer.write(greeting)
            await writer.drain()

        async with Service(greet) as service:
            with pytest.raises(BrokerNotAvailableError, match=service.address):
                await asyncio.wait_for(Cluster(settings_for(service.address)).start(), 5)
            assert service.connections == 3

    run(scenario())


def test_a_refused_login_is_told_although_another_broker_is_away() -> None:
    async def scenario() -> None:
        (nobody,) = free_ports(1)
        refusal = SaslAuthenticateResponse(error_code=ErrorCode.SASL_AUTHENTICATION_FAILED)
        script = {
            "sasl_handshake": lambda *_: SaslHandshakeResponse(),
            "sasl_authenticate": lambda *_: refusal,
        }
        async with ScriptedBroker(script) as broker:
            settings = settings_for(
                f"127.0.0.1:{nobody},{broker.address}",
                security_protocol="SASL_PLAINTEXT",
                sasl_username="alice",
                sasl_password="wrong",
            )
            with pytest.raises(SaslAuthenticationError, match=f"{broker.address}: user 'alice'"):
                await Cluster(settings).start()

    run(scenario())


def test_a_start_at_a_broker_that_is_too_old_fails_at_once() -> None:
    async def scenario() -> None:
        async with ScriptedBroker({}, versions={18: (0, 4)}) as broker:
            with pytest.raises(UnsupportedVersionError, match=r"Kafka 4\.2"):
                await Cluster(settings_for(broker.address)).start()

    run(scenario())


def test_a_broker_that_is_away_is_not_tried_in_a_loop() -> None:
    """Ten callers that never give up: between two tries is the wait of the back-off."""

    async def scenario() -> None:
        tries: asyncio.Queue[float] = asyncio.Queue()

        async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            tries.put_nowait(time.monotonic())

        async def insist(cluster: Cluster) -> None:
            while True:
                with contextlib.suppress(ConnectionError):
                    await cluster.send(2, METADATA)

        async with (
            ScriptedBroker({"metadata": lambda *_: metadata(first, second)}) as first,
            Service(refuse) as second,
        ):
            settings = settings_for(first.address, reconnect_backoff_ms=50, reconnect_backoff_max_ms=100)
            async with Cluster(settings) as cluster:
                began = time.monotonic()
                callers = [asyncio.create_task(insist(cluster)) for _ in range(10)]
                for _ in range(5):
                    last = await tries.get()
                for caller in callers:
                    caller.cancel()
                assert last - began > 0.8 * (0.05 + 3 * 0.1)

    run(scenario())


def test_metadata_that_fails_is_not_asked_for_in_a_loop() -> None:
    async def scenario() -> None:
        empty = MetadataResponse()
        async with ScriptedBroker({"metadata": lambda *_: empty}) as broker:
            settings = settings_for(broker.address, retry_backoff_ms=50, default_api_timeout_ms=300)
            with pytest.raises(BrokerNotAvailableError, match="lists no brokers"):
                await Cluster(settings).start()
            assert [name for name, _ in broker.asked].count("metadata") <= 8

    run(scenario())


def test_metadata_is_fetched_anew_when_it_gets_old() -> None:
    async def scenario() -> None:
        asked = asyncio.Queue[None]()

        def answer(*_: object) -> MetadataResponse:
            asked.put_nowait(None)
            return metadata(broker)

        async with (
            ScriptedBroker({"metadata": answer}) as broker,
            Cluster(settings_for(broker.address, metadata_max_age_ms=50)),
        ):
            for _ in range(3):
                await asyncio.wait_for(asked.get(), 5)

    run(scenario())


def test_an_idle_connection_is_closed_and_opened_again_for_the_next_request(broker: Broker) -> None:
    async def scenario() -> None:
        async with Cluster(settings_for(broker, connections_max_idle_ms=60)) as cluster:
            connection = await cluster.connection(1)
            ended = asyncio.get_running_loop().create_future()
            tell = connection.on_closed
            connection.on_closed = lambda closed: (tell and tell(closed), ended.set_result(None))
            await asyncio.wait_for(ended, 5)
            assert not connection.is_open
            again = await cluster.connection(1)
            assert again is not connection
            assert await again.send(METADATA) is not None

    run(scenario())


def test_a_closed_cluster_refuses_and_closes_again(broker: Broker) -> None:
    async def scenario() -> None:
        cluster = Cluster(settings_for(broker))
        await cluster.start()
        await cluster.close()
        await cluster.close()
        with pytest.raises(IllegalStateError, match="make a new one"):
            await cluster.send(1, METADATA)

    run(scenario())


def test_closing_does_not_take_its_own_cancellation_for_that_of_its_tasks(broker: Broker) -> None:
    """Else whoever was told to end goes on for ever."""

    async def scenario() -> None:
        cluster = Cluster(settings_for(broker))
        await cluster.start()
        closing = asyncio.create_task(cluster.close())
        await asyncio.sleep(0)  # it waits for its tasks
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        with pytest.raises(IllegalStateError, match="make a new one"):
            await cluster.send(1, METADATA)

    run(scenario())


def test_a_node_that_is_not_in_the_cluster_is_named(broker: Broker) -> None:
    async def scenario() -> None:
        async with Cluster(settings_for(broker)) as cluster:
            with pytest.raises(BrokerNotAvailableError, match="broker 77 is not in the cluster"):
                await cluster.connection(77)

    run(scenario())
