"""kombu's tests of what a transport must do, on the Headrace broker at HEADRACE_SUITE_SERVERS.

This file becomes a module beside kombu's own tests, in a copy of them. Their fixtures are what it has to give.
"""

import os
import uuid

import kombu
import pytest
from t.integration import common

import headrace.adapters.kombu  # noqa: F401

AWAY = "headrace://localhost:1"


@pytest.fixture
def url() -> str:
    """An app of its own, so that no test reads what another has left."""
    return f"headrace://{os.environ['HEADRACE_SUITE_SERVERS']}/{uuid.uuid4().hex}"


@pytest.fixture
def connection(url: str) -> kombu.Connection:
    return kombu.Connection(url)


@pytest.fixture
def invalid_connection() -> kombu.Connection:
    return kombu.Connection(AWAY)


@pytest.fixture
def failover_connection(url: str) -> kombu.Connection:
    return kombu.Connection(f"{AWAY};{url}", connect_timeout=10)


class TestBasicFunctionality(common.BasicFunctionality):
    pass


class TestExchangeTypes(common.BaseExchangeTypes):
    pass


class TestTimeToLive(common.BaseTimeToLive):
    pass


class TestPriority(common.BasePriority):
    pass


class TestFailover(common.BaseFailover):
    pass


class TestMessage(common.BaseMessage):
    pass


class TestEventLoop(common.BaseEventLoop):
    pass
