"""The Celery app that test_celery_processes gives to real workers: its tasks note what they do in a file."""

import os
import time
from pathlib import Path

import celery

import headrace.adapters.kombu

app = celery.Celery(
    "shop", broker=os.environ.get("SHOP_BROKER", "headrace://localhost:1"), set_as_current=False
)
app.conf.update(task_acks_late=True, worker_prefetch_multiplier=1, worker_hijack_root_logger=False)
assert headrace.adapters.kombu.Transport


@app.task(shared=False)
def note(notes: str, text: str) -> None:
    _write(notes, text)


@app.task(shared=False)
def hold(notes: str, text: str, gate: str) -> None:
    """Until the file `gate` is there."""
    _write(notes, f"{text} begins")
    while not Path(gate).exists():
        time.sleep(0.01)  # the work
    _write(notes, f"{text} ends")


@app.task(shared=False)
def send_on(notes: str, text: str) -> None:
    note.delay(notes, text)


def _write(notes: str, text: str) -> None:
    with Path(notes).open("a") as file:
        file.write(f"{text}\n")
