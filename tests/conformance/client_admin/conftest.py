"""The admin client on both brokers: `admin` is connected to each of them in turn."""

from collections.abc import Callable, Iterator

import pytest

from headrace.client.admin import Admin
from tests.conformance.conftest import BrokerUnderTest
from tests.conformance.share.share_client import ShareMember
from tests.conformance.wire_client import WireClient

PATIENCE_MS = 60_000
"""A fresh Apache Kafka makes its internal topics when they are first needed; that takes it some seconds."""


@pytest.fixture
def admin(broker: BrokerUnderTest) -> Iterator[Admin]:
    with Admin(bootstrap_servers=broker.bootstrap_servers, default_api_timeout_ms=PATIENCE_MS) as admin:
        yield admin


@pytest.fixture
def member(connect: Callable[[], WireClient], unique: str) -> Callable[[bytes], ShareMember]:
    """Makes members of the share group named like the test's topic, each with a connection of its own."""
    return lambda topic_id: ShareMember(connect(), unique, topic_id)
