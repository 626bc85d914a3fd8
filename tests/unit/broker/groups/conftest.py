"""A fake core for each test; afterwards its journal must bring back the state that wrote it."""

from collections.abc import Iterator

import pytest

from tests.unit.broker.groups.fake_core import FakeCore


@pytest.fixture
def core() -> Iterator[FakeCore]:
    core = FakeCore()
    yield core
    core.check_replay()
