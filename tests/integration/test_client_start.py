"""What lies between subscribing and the first record: few requests, no waiting, nothing compiled or imported late."""

import asyncio
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from headrace import Admin, AsyncShareConsumer, Broker, Producer, ShareConsumer
from headrace.client.cluster import Cluster
from headrace.client.connection import BrokerConnection
from headrace.client.core.member import MemberCore
from headrace.wire import codec

TOPIC, GROUP = "orders", "g"
FIRST_REQUESTS = [
    "ApiVersionsRequest",
    "MetadataRequest",
    "FindCoordinatorRequest",
    "ShareGroupHeartbeatRequest",
    "ApiVersionsRequest",  # of the connection for fetches
    "ShareFetchRequest",
]

LATE_IMPORTS = """
import sys
from headrace import ShareConsumer
servers, group, topic = sys.argv[1:]
with ShareConsumer(bootstrap_servers=servers, group_id=group) as consumer:
    batches = consumer.batches(timeout=30)
    before = set(sys.modules)
    consumer.subscribe([topic])
    batch = next(batches)
    assert len(batch) == 1, batch
    print(sorted(set(sys.modules) - before))
"""


@pytest.fixture
def servers() -> Iterator[str]:
    """A broker with one record, which the group reads from the start. Its second heartbeat comes late."""
    with Broker(settings={"headrace.share.settling.heartbeat.interval.ms": 5_000}) as broker:
        with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            producer.send(TOPIC, b"one").result()
        with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            admin.set_group_config(GROUP, {"share.auto.offset.reset": "earliest"})
        yield broker.bootstrap_servers


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of all requests, as they are written."""
    names: list[str] = []
    write = BrokerConnection._write

    def noted(self: BrokerConnection, request: Any, *rest: Any) -> None:
        names.append(type(request).__name__)
        write(self, request, *rest)

    monkeypatch.setattr(BrokerConnection, "_write", noted)
    return names


def test_the_first_assignment_waits_for_no_metadata_of_its_own(servers: str, requests: list[str]) -> None:
    with ShareConsumer(bootstrap_servers=servers, group_id=GROUP) as consumer:
        consumer.subscribe([TOPIC])
        while not consumer.poll(1.0):
            pass
        first = requests[: requests.index("ShareFetchRequest") + 1]
    assert first == FIRST_REQUESTS


def test_an_async_consumer_asks_for_its_topics_while_it_joins(servers: str, requests: list[str]) -> None:
    async def first_requests() -> list[str]:
        async with AsyncShareConsumer(bootstrap_servers=servers, group_id=GROUP) as consumer:
            requests.clear()
            consumer.subscribe([TOPIC])
            while not await consumer.poll(1.0):
                pass
            return requests[: requests.index("ShareFetchRequest")]

    first = asyncio.run(first_requests())
    assert first.index("MetadataRequest") < first.index("ShareGroupHeartbeatRequest")
    assert first.count("MetadataRequest") == 1


def test_an_assignment_that_comes_before_the_metadata_waits_for_nothing_else(
    servers: str, requests: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    is_assigned, is_looked_up = asyncio.Event(), asyncio.Event()
    fetch_metadata, refresh_ended = Cluster._fetch_metadata, Cluster._refresh_ended
    heartbeat_responded = MemberCore.heartbeat_responded

    async def fetch_late(self: Cluster, topics: list[Any], **given: Any) -> None:
        if topics:
            await is_assigned.wait()
        if any(topic.name is None for topic in topics):  # the assignment's, by id
            await is_looked_up.wait()
        await fetch_metadata(self, topics, **given)

    def look_up(self: Cluster, task: Any) -> None:
        refresh_ended(self, task)
        if is_assigned.is_set():
            is_looked_up.set()

    def respond(self: MemberCore, *given: Any, **named: Any) -> None:
        heartbeat_responded(self, *given, **named)
        is_assigned.set()

    monkeypatch.setattr(Cluster, "_fetch_metadata", fetch_late)
    monkeypatch.setattr(Cluster, "_refresh_ended", look_up)
    monkeypatch.setattr(MemberCore, "heartbeat_responded", respond)

    async def first_requests() -> list[str]:
        async with AsyncShareConsumer(bootstrap_servers=servers, group_id=GROUP) as consumer:
            consumer.subscribe([TOPIC])
            while not await consumer.poll(1.0):
                pass
            return requests[: requests.index("ShareFetchRequest")]

    assert asyncio.run(first_requests()).count("ShareGroupHeartbeatRequest") == 1


def test_a_consumer_has_its_codecs_when_it_is_made(servers: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with ShareConsumer(bootstrap_servers=servers, group_id=GROUP) as consumer:
        late: list[str] = []
        for kind, ending in ((codec._WriterSource, "Request"), (codec._ReaderSource, "Response")):
            monkeypatch.setattr(kind, "build", _noted(kind.build, ending, late))
        consumer.subscribe([TOPIC])
        while not consumer.poll(1.0):
            pass
    assert late == []


def test_rows_wait_for_no_import_after_batches_was_called(servers: str) -> None:
    command = [sys.executable, "-c", LATE_IMPORTS, servers, GROUP, TOPIC]
    run = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (run.stdout, run.stderr) == ("[]\n", "")


def _noted(build: Callable[[Any], Any], ending: str, late: list[str]) -> Callable[[Any], Any]:
    """The broker in this process compiles too, but it reads requests and writes responses."""

    def noted(self: Any) -> Any:
        if self.message.__name__.endswith(ending):
            late.append(self.message.__name__)
        return build(self)

    return noted
