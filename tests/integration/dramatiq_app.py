"""Actors for a worker process of Dramatiq: each message that is done is a file."""

import os
from pathlib import Path

import dramatiq
from dramatiq.middleware import Retries

from headrace.adapters.dramatiq import HeadraceBroker

FOLDER = Path(os.environ["FOLDER"])
broker = HeadraceBroker(
    os.environ["SERVERS"],
    group_id=os.environ["GROUP"],
    middleware=[Retries(min_backoff=200, max_backoff=200), dramatiq.middleware.CurrentMessage()],
)
dramatiq.set_broker(broker)


@dramatiq.actor
def note(name: str) -> None:
    (FOLDER / name).touch()


@dramatiq.actor
def flaky(name: str) -> None:
    """Fails for the first time."""
    message = dramatiq.middleware.CurrentMessage.get_current_message()
    if message is not None and message.options.get("retries", 0) == 0:
        raise RuntimeError("the first run")
    (FOLDER / name).touch()
