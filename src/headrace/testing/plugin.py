"""pytest fixtures for projects that use Headrace: a broker in the test's own process.

`headrace_broker` is a fresh broker for each test, `headrace_session_broker` one for the whole run. Both keep their
data in memory, take a free port and stop by themselves; `broker.advance(seconds)` moves their clock. A new group's
first rebalance does not wait three seconds for more members, as it does elsewhere.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from headrace.broker.embedded import Broker

SETTINGS = {"group.initial.rebalance.delay.ms": 0}


@pytest.fixture
def headrace_broker() -> "Iterator[Broker]":
    """A new in-memory broker for this test."""
    from headrace.broker.embedded import Broker

    with Broker(settings=SETTINGS) as broker:
        yield broker


@pytest.fixture(scope="session")
def headrace_session_broker() -> "Iterator[Broker]":
    """One in-memory broker for the whole test run. Use different topic and group names in each test."""
    from headrace.broker.embedded import Broker

    with Broker(settings=SETTINGS) as broker:
        yield broker
