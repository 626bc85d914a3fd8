"""Workers of a task with `once=` that kill themselves, their broker or their database at chosen steps.

A nursery imports everything and forks one life after another, so that a kill costs no start of Python. Steps are those
between which a crash must not matter; `maybe` stands behind each of them and draws who dies.
"""

import contextlib
import ctypes
import functools
import inspect
import os
import random
import signal
import sqlite3
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg

from headrace.worker import Backoff, Database, PostgresDatabase, Queue, SqliteDatabase
from headrace.worker.held import HeldRecords
from headrace.worker.task import Task
from headrace.worker.transactions.copies import OnceCopies
from headrace.worker.transactions.database import run_steps
from headrace.worker.transactions.relay import OutboxRelay
from headrace.worker.transactions.statements import RecordPlace, claim

GROUP = TOPIC = "once"
LAST_DELIVERY = 5
"""At which workers replace a record by a copy; the group's limit is higher (`once_chaos.py`)."""
VICTIMS = ("worker", "worker", "worker", "broker", "database")


class Fate:
    """Draws at every step whether somebody dies, and who."""

    def __init__(self, seed: int, chance: float, pids: Path, kills: Path) -> None:
        self._rng = random.Random(seed)
        self._chance = chance
        self._pids = pids
        self._kills = kills
        self._lock = threading.Lock()

    def maybe(self, step: str) -> None:
        with self._lock:
            if self._rng.random() >= self._chance:
                return
            victim = self._rng.choice(VICTIMS)
        pids = dict(line.split() for line in self._pids.read_text().splitlines())
        if victim not in pids:
            victim = "worker"
        with self._kills.open("a") as kills:
            kills.write(f"{victim} {step}\n")
        if victim == "worker":
            os.kill(os.getpid(), signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError):  # it is dead already
            (os.killpg if victim == "database" else os.kill)(int(pids[victim]), signal.SIGKILL)


def after(owner: Any, name: str, step: str, fate: Fate) -> None:
    original = getattr(owner, name)

    @functools.wraps(original)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        fate.maybe(step)
        return result

    @functools.wraps(original)
    async def wrapped_async(*args: Any, **kwargs: Any) -> Any:
        result = await original(*args, **kwargs)
        fate.maybe(step)
        return result

    setattr(owner, name, wrapped_async if inspect.iscoroutinefunction(original) else wrapped)


def watch_steps(fate: Fate) -> None:
    from headrace.worker import group_facts
    from headrace.worker.transactions import database

    original_claim = claim

    def claim_and_maybe(place: RecordPlace, now_ms: int) -> Any:
        fate.maybe("begun")
        claimed = yield from original_claim(place, now_ms)
        fate.maybe("claimed")
        return claimed

    original_facts = group_facts.facts_of
    group_facts.facts_of = lambda *given: replace(original_facts(*given), delivery_limit=LAST_DELIVERY)
    database.claim = claim_and_maybe  # type: ignore[assignment]
    after(Task, "invoke", "committed", fate)
    after(HeldRecords, "settle", "accepted", fate)
    after(HeldRecords, "_commit", "acknowledged", fate)
    after(OnceCopies, "_replace", "copied", fate)
    after(OutboxRelay, "_send_one", "sent", fate)
    after(OutboxRelay, "_send", "deleted", fate)


def plant(bug: str) -> None:
    """Bugs that the test must find."""

    def accept_first(self: Database, place: RecordPlace, now_ms: int, call: Callable[[Any], None]) -> None:
        threading.Timer(0.05, original, (self, place, now_ms, call)).start()

    def row_outside(self: Database, place: RecordPlace, now_ms: int, call: Callable[[Any], None]) -> None:
        from headrace.worker.outcomes import AlreadyDoneError

        with self.begin() as transaction:
            is_new = run_steps(transaction.execute, claim(place, now_ms))
        if not is_new:
            raise AlreadyDoneError
        with self.begin() as transaction:
            call(transaction.connection)

    def no_row(self: Database, place: RecordPlace, now_ms: int, call: Callable[[Any], None]) -> None:
        with self.begin() as transaction:
            call(transaction.connection)

    original = Database.run_once
    Database.run_once = {  # type: ignore[method-assign]
        "accept-first": accept_first, "row-outside": row_outside, "no-row": no_row,
    }[bug]  # fmt: skip


def work(servers: str, place: str, fate: Fate) -> None:
    queue = Queue(servers, group_id=GROUP, drain_timeout=1)
    options: dict[str, Any] = {"retries": Backoff(first=0.05, most=0.2, tries=None), "breaker": None}
    if place.startswith("postgresql:"):

        @queue.task(TOPIC, once=PostgresDatabase(place), concurrency=8, **options)
        def run(body: str, connection: psycopg.Connection[Any]) -> None:
            connection.execute("INSERT INTO effects (body) VALUES (%s)", (body,))
            fate.maybe("written")
    else:

        @queue.task(TOPIC, once=SqliteDatabase(place), concurrency=8, **options)
        def run(body: str, connection: sqlite3.Connection) -> None:
            connection.execute("INSERT INTO effects (body) VALUES (?)", (body,))
            fate.maybe("written")

    queue.run()


def die_with_parent() -> None:
    """So that nothing is left of a test that is killed itself. Linux has a call for it."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def main(servers: str, place: str, seed: str, chance: str, pids: str, kills: str, bug: str = "") -> None:
    """One life after another, until it is killed with its process group."""
    life = 0
    die_with_parent()
    while True:
        life += 1
        child = os.fork()
        if child == 0:
            die_with_parent()
            if bug:
                plant(bug)
            fate = Fate(hash((int(seed), life)), float(chance), Path(pids), Path(kills))
            watch_steps(fate)
            try:
                work(servers, place, fate)
            except BaseException as error:  # no broker, or no database: the next life tries again
                print(f"life {life}: {error!r}", file=sys.stderr, flush=True)
            os._exit(0)
        os.waitpid(child, 0)


if __name__ == "__main__":
    main(*sys.argv[1:])
