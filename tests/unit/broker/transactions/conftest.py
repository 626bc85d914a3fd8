"""The fake core, with a topic of three partitions."""

import pytest

from tests.unit.broker.transactions.fake_core import FakeCore


@pytest.fixture
def core() -> FakeCore:
    core = FakeCore()
    core.topics.create("orders", 3)
    core.transactions.load()
    return core
