"""A queue with a lifespan and a task in a process pool, for test_worker_hooks.py."""

import multiprocessing
import os
from collections.abc import AsyncIterator
from pathlib import Path

from headrace.worker import Queue

queue = Queue("localhost:1", group_id="numbers")


def note(text: str) -> None:
    with Path(os.environ["LIFESPAN_LOG"]).open("a") as log:
        log.write(text + "\n")


def fail_first() -> None:
    """In another process, once, if a test asks for it."""
    mark = Path(os.environ.get("LIFESPAN_FAILS_FIRST", "/"))
    if multiprocessing.parent_process() is not None and not mark.exists():
        mark.touch()
        raise ConnectionError("the database is away")


@queue.lifespan
async def lifespan() -> AsyncIterator[str]:
    fail_first()
    note(f"begin:{os.getpid()}")
    yield f"resource-of-{os.getpid()}"
    note(f"end:{os.getpid()}")


@queue.task("numbers", pool="process", concurrency=1)
def double(number: int) -> None:
    note(f"run:{os.getpid()}:{queue.state}")
