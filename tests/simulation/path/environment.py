"""What else of this Python process is replaced (see `tests/simulation/environment.py`): the clients' ids and times."""

import asyncio
import random
from types import SimpleNamespace
from typing import TYPE_CHECKING
from uuid import UUID

import headrace.client.consumption as consumption_module
import headrace.client.member as member_module
import headrace.client.producing.record as record_module

if TYPE_CHECKING:
    from tests.simulation.path.world import PathWorld

_ids = random.Random(0)


def install() -> None:
    """Once in a process or more often."""
    member_module.uuid4 = lambda: UUID(int=_ids.getrandbits(128), version=4)  # type: ignore[assignment]


def begin(world: "PathWorld") -> None:
    _ids.seed(world.seed)
    consumption_module.time = SimpleNamespace(  # type: ignore[assignment]
        time=lambda: world.clock.wall_ms() / 1000, monotonic=lambda: asyncio.get_running_loop().time()
    )
    record_module.time = SimpleNamespace(time=lambda: world.clock.wall_ms() / 1000)  # type: ignore[assignment]
