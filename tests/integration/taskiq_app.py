"""Tasks for worker processes of Taskiq: each task that is done is a file."""

import asyncio
import os
from pathlib import Path

from taskiq import SmartRetryMiddleware

from headrace.adapters.taskiq import HeadraceBroker

FOLDER = Path(os.environ["FOLDER"])
broker = HeadraceBroker(os.environ["SERVERS"], group_id=os.environ["GROUP"], queue_name=os.environ["GROUP"])
broker.add_middlewares(SmartRetryMiddleware(default_delay=0.2))


@broker.task("note")
async def note(name: str) -> None:
    await asyncio.sleep(0.01)
    (FOLDER / name).touch()


@broker.task("flaky", retry_on_error=True)
def flaky(name: str) -> None:
    """Fails for the first time."""
    tried = FOLDER.with_name("tried") / name
    if not tried.exists():
        tried.touch()
        raise RuntimeError("the first run")
    (FOLDER / name).touch()
