"""A core for each test, made up or real; afterward its journal must bring back the state that wrote it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.broker.groups.fake_core import FakeCore
from tests.unit.broker.groups.share_world import ShareWorld


@pytest.fixture
def core() -> Iterator[FakeCore]:
    core = FakeCore()
    yield core
    core.check_replay()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[ShareWorld]:
    """A core with share groups; afterward its journal must bring back the groups that wrote it."""
    world = ShareWorld(tmp_path)
    yield world
    if world.core.failure is None:
        world.check_replay()
    world.close()
