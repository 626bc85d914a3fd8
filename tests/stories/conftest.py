"""The stories that are told about queues for Kafka, with real clients, on our server and on Apache Kafka.

Their source is the Strimzi project's blog of 2025-06-24 and the re:Invent talk on queues for Kafka.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from headrace.testing import ApacheKafka
from tests.compat.conftest import QUICK_GROUPS, HeadraceServer, start_server
from tests.conformance.share.share_client import set_group, wait_until_share_coordinators_are_ready
from tests.conformance.steps import new_topic, wait_until_coordinators_are_ready
from tests.conformance.wire_client import WireClient
from tests.share_consumers import JavaRuntime, JavaShareConsumer, Librdkafka, java_runtime


@pytest.fixture(scope="session")
def headrace_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HeadraceServer]:
    server = start_server(tmp_path_factory.mktemp("headrace"), QUICK_GROUPS)
    yield server
    assert server.process.is_running, f"headrace serve ended by itself:\n{server.process.output_tail()}"
    assert server.process.stop() == 0, server.process.output_tail()


@pytest.fixture(scope="session")
def apache() -> Iterator[ApacheKafka]:
    with ApacheKafka(settings=QUICK_GROUPS) as cluster:
        with WireClient(cluster.bootstrap_servers) as wire:
            wait_until_coordinators_are_ready(wire)
            wait_until_share_coordinators_are_ready(wire)
        yield cluster


@pytest.fixture(params=["headrace_server", pytest.param("apache", marks=pytest.mark.needs_kafka)])
def bootstrap_servers(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(request.param).bootstrap_servers)


@pytest.fixture(scope="session")
def java() -> Iterator[JavaRuntime]:
    with java_runtime() as runtime:
        yield runtime


@pytest.fixture
def wire(bootstrap_servers: str) -> Iterator[WireClient]:
    """For setting the scene, and for looking behind it."""
    with WireClient(bootstrap_servers) as client:
        yield client


@pytest.fixture
def topic(wire: WireClient, unique: str) -> str:
    """A topic of one partition, and a group of the same name whose members start at its beginning."""
    return make_topic(wire, unique)


@pytest.fixture
def two_partitions(wire: WireClient, unique: str) -> str:
    return make_topic(wire, unique, partitions=2)


def make_topic(wire: WireClient, name: str, *, partitions: int = 1) -> str:
    new_topic(wire, name, partitions=partitions)
    set_group(wire, name, auto_offset_reset="earliest")
    return name


@pytest.fixture
def closing() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def consumer(bootstrap_servers: str, unique: str, closing: ExitStack) -> Callable[..., Librdkafka]:
    """Opens share consumers of the test's topic and group; all are closed at the end."""

    def make(**settings: Any) -> Librdkafka:
        opened = Librdkafka(bootstrap_servers, unique, unique, **settings)
        closing.callback(opened.close)
        return opened

    return make


@pytest.fixture
def java_consumer(
    bootstrap_servers: str, unique: str, java: JavaRuntime, closing: ExitStack
) -> Callable[..., JavaShareConsumer]:
    """The same with Java's client."""

    def make(**settings: Any) -> JavaShareConsumer:
        opened = JavaShareConsumer(java, bootstrap_servers, unique, unique, **settings)
        closing.callback(opened.close)
        return opened

    return make
