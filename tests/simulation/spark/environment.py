"""What else of this Python process is replaced: the source's threads, files, ids and times."""

import asyncio
import random
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from uuid import UUID

import headrace.spark.ahead as ahead_module
import headrace.spark.checkpoint as checkpoint_module
import headrace.spark.dead_letters as dead_letters_module
import headrace.spark.driver as driver_module
import headrace.spark.executor as executor_module
import headrace.spark.reader as reader_module
from tests.simulation.spark import files
from tests.simulation.spark.node import Background, SyncLoop
from tests.simulation.spark.threads import current

if TYPE_CHECKING:
    from tests.simulation.spark.world import SparkWorld

_ids = random.Random(0)
_is_installed = False


class _Time:
    """Stands for the module `time`."""

    def monotonic(self) -> float:
        thread = current()
        return thread.node.loop.time() if thread is not None else 0.0

    def sleep(self, seconds: float) -> None:
        thread = current()
        if thread is not None:
            thread.sleep(seconds)


class _Asyncio:
    """Stands for the module `asyncio` in the executors' half."""

    new_event_loop = SyncLoop

    def __getattr__(self, name: str) -> Any:
        return getattr(asyncio, name)


class _Kept:
    """Stands for what is kept for each thread: each executor has one worker after the other."""

    @property
    def worker(self) -> Any:
        thread = current()
        return getattr(thread, "worker", None)

    @worker.setter
    def worker(self, worker: Any) -> None:
        thread: Any = current()
        thread.worker = worker


def install() -> None:
    """Once in a process or more often."""
    global _is_installed
    if _is_installed:
        return
    _is_installed = True
    files.install()
    # What a process that has died leaves is collected some time: it complains, and nobody is there to hear it.
    sys.unraisablehook = lambda _: None
    uuid4 = lambda: UUID(int=_ids.getrandbits(128), version=4)  # noqa: E731
    checkpoint_module.uuid4 = uuid4
    ahead_module.WINDOW_PARTS = 10_000  # a micro-batch of a short life is far smaller than a window
    driver_module.uuid4 = uuid4
    checkpoint_module.time = _Time()  # type: ignore[assignment]
    driver_module.BackgroundLoop = Background  # type: ignore[assignment,misc]
    executor_module.asyncio = _Asyncio()  # type: ignore[assignment]
    executor_module._kept = _Kept()  # type: ignore[assignment]
    executor_module._freeze_imports = lambda: None
    executor_module.atexit = SimpleNamespace(register=lambda _: None, unregister=lambda _: None)  # type: ignore[assignment]
    reader_module._exit_on_sigterm = lambda: None


def begin(world: "SparkWorld") -> None:
    _ids.seed(world.seed)
    dead_letters_module.time = SimpleNamespace(time_ns=lambda: world.clock.wall_ms() * 1_000_000)  # type: ignore[assignment]
