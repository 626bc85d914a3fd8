"""What lies between subscribing and the first record: as few requests as can be, and nothing that is compiled late."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from headrace import Admin, AsyncShareConsumer, Broker, Producer, ShareConsumer
from headrace.client.connection import Connection
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


@pytest.fixture
def servers() -> Iterator[str]:
    """A broker with one record, which the group reads from the start, and which lets the first member begin at once."""
    with Broker(settings={"headrace.share.initial.rebalance.delay.ms": 0}) as broker:
        with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            producer.send(TOPIC, b"one").result()
        with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            admin.set_group_config(GROUP, {"share.auto.offset.reset": "earliest"})
        yield broker.bootstrap_servers


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of all requests, as they are written."""
    names: list[str] = []
    write = Connection._write

    def noted(self: Connection, request: Any, *rest: Any) -> None:
        names.append(type(request).__name__)
        write(self, request, *rest)

    monkeypatch.setattr(Connection, "_write", noted)
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


def test_a_consumer_has_its_codecs_when_it_is_made(servers: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with ShareConsumer(bootstrap_servers=servers, group_id=GROUP) as consumer:
        late: list[str] = []
        for kind, ending in ((codec._WriterSource, "Request"), (codec._ReaderSource, "Response")):
            monkeypatch.setattr(kind, "build", _noted(kind.build, ending, late))
        consumer.subscribe([TOPIC])
        while not consumer.poll(1.0):
            pass
    assert late == []


def _noted(build: Callable[[Any], Any], ending: str, late: list[str]) -> Callable[[Any], Any]:
    """The broker in this process compiles too, but it reads requests and writes responses."""

    def noted(self: Any) -> Any:
        if self.message.__name__.endswith(ending):
            late.append(self.message.__name__)
        return build(self)

    return noted
