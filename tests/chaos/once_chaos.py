"""Exactly once under kill -9: `python -m tests.chaos.once_chaos --kills 1000 --seed 1 --database postgres`.

Two nurseries of workers run a task with `once=`. Behind every step, somebody may be killed: the worker itself, the
broker or PostgreSQL. What is dead is started again. At the end nothing kills any more, all records are settled, and
each body must be in the table exactly once.
"""

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from headrace.client.admin import Admin
from headrace.worker import Queue
from tests.chaos.once_worker import GROUP, TOPIC
from tests.chaos.server_process import ServerProcess
from tests.databases import KINDS, Site
from tests.postgres import PostgresServer

REPOSITORY = Path(__file__).parent.parent.parent
CHANCE = 0.02
PARTITIONS = 2
BATCH = 60
"""Records that are sent at a time; more are sent when these are done, until there were enough kills."""
WAIT_S = 180.0
DELIVERIES_MAX = 25
"""A broker archives a record whose workers were killed in each of its deliveries. With Kafka's limit of 5, that is one
of 500 records here. What a worker does before that, it does at 5 (`once_worker.py`)."""
SETTINGS = {
    "group.share.assignment.interval.ms": 0,
    # Members that were killed are assigned partitions until their session ends.
    "group.share.min.session.timeout.ms": 500,
    "group.share.session.timeout.ms": 1500,
    "group.share.min.heartbeat.interval.ms": 200,
    "group.share.heartbeat.interval.ms": 300,
    "group.share.max.delivery.count.limit": DELIVERIES_MAX,
}

GROUP_SETTINGS = {"share.auto.offset.reset": "earliest", "share.delivery.count.limit": str(DELIVERIES_MAX)}


@dataclass
class Account:
    sent: int = 0
    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    kills: Counter[str] = field(default_factory=Counter)
    inbox_rows: int = 0

    def __str__(self) -> str:
        killed = ", ".join(f"{name} {count}" for name, count in sorted(self.kills.items()))
        return (
            f"{self.sent} records, {sum(self.kills.values())} kills ({killed}), {len(self.lost)} lost, "
            f"{len(self.doubled)} doubled, {self.inbox_rows} rows left in the inbox"
        )


class Chaos:
    def __init__(self, folder: Path, database: str, seed: int, bug: str = "", chance: float = CHANCE) -> None:
        self._folder = folder
        self._seed = seed
        self._bug = bug
        self._chance = chance
        self._postgres = PostgresServer() if database == "postgres" else None
        kind = KINDS["psycopg" if self._postgres is not None else "sqlite"]
        place = self._postgres.empty_database("app") if self._postgres is not None else str(folder / "app.db")
        self._site = Site(kind, place)
        self._server = ServerProcess(folder / "data", folder / "server.log", SETTINGS)
        self._pids, self._kills = folder / "pids", folder / "kills"
        self._workers: list[subprocess.Popen[bytes]] = []
        self._account = Account()

    def run(self, kills: int) -> Account:
        self._server.start()
        self._write_pids()
        with contextlib.ExitStack() as stack:
            stack.callback(self._close)
            self._kills.touch()
            with Admin(bootstrap_servers=self._server.address) as admin:
                admin.create_topic(TOPIC, partitions=PARTITIONS)
                admin.set_group_config(GROUP, GROUP_SETTINGS)
            self._start_workers(self._chance)
            while sum(self._count_kills().values()) < kills and not self._is_wrong():
                self._send(BATCH)
                self._until_done(kills)
            self._stop_workers()
            self._start_workers(0.0)
            self._until_settled()
            return self._take_account()

    def _send(self, count: int) -> None:
        """Each is sent until it is acknowledged; a body that was sent twice is no fault of the task."""
        first = self._account.sent
        bodies = [f"{number:06d}" for number in range(first, first + count)]
        self._revive()
        with Queue(self._server.address, group_id="sender", delivery_timeout_ms=20_000) as queue:
            while True:
                try:
                    for body in bodies:
                        queue.send(TOPIC, body, key=body)  # the keys take them to every partition
                    break
                except Exception:
                    self._revive()
                    bodies = [f"{body}'" for body in bodies]  # others: the first ones may have been written
        self._account.sent += count

    def _until_done(self, kills: int) -> None:
        deadline = time.monotonic() + WAIT_S
        while self._missing() and sum(self._count_kills().values()) < kills:
            self._revive()
            if time.monotonic() > deadline or self._is_wrong():
                return
            time.sleep(0.2)  # the pace of looking: what is killed are other processes

    def _is_wrong(self) -> bool:
        """Whether something is lost or doubled already: no further kill is needed to show it."""
        try:
            if max(Counter(self._site.effects()).values(), default=0) > 1:
                return True
            return self._open() == (0, 0, 0) and self._missing()
        except Exception:  # a broker or a database that is being started
            return False

    def _open(self) -> tuple[int, int, int]:
        """The group's lag, the rows of the outbox, and the lag again: what is relayed may add to it."""
        return self._lag(), self._site.count("headrace_outbox"), self._lag()

    def _until_settled(self) -> None:
        """Nothing is left to do: the group has no lag, and the outbox is empty."""
        deadline = time.monotonic() + WAIT_S
        seen: object = None
        while time.monotonic() < deadline:
            self._revive()
            try:
                seen = self._open()
            except Exception as error:  # a broker or a database that is being started
                seen = error
            if seen == (0, 0, 0):
                return
            time.sleep(0.1)  # the pace of looking
        raise TimeoutError(f"lag, rows in the outbox, lag: {seen!r}")

    def _lag(self) -> int:
        with Admin(bootstrap_servers=self._server.address, default_api_timeout_ms=5_000) as admin:
            lags = [each.lag for each in admin.share_group_offsets(GROUP, [TOPIC]).values()]
        known = [lag for lag in lags if lag is not None]
        if len(known) != PARTITIONS:
            raise ValueError(f"the lag is not known yet: {lags}")
        return sum(known)

    def _missing(self) -> bool:
        try:
            return len({body.strip("'") for body in self._site.effects()}) < self._account.sent
        except Exception:  # the database is being started
            return True

    def _take_account(self) -> Account:
        account = self._account
        counts = Counter(self._site.effects())
        done = {body.strip("'") for body in counts}
        account.lost = [body for n in range(account.sent) if (body := f"{n:06d}") not in done]
        account.doubled = [body for body, count in counts.items() if count > 1]
        account.kills = self._count_kills()
        account.inbox_rows = self._site.count("headrace_inbox")
        return account

    def _count_kills(self) -> "Counter[str]":
        return Counter(self._kills.read_text().splitlines())

    def _revive(self) -> None:
        if self._server.is_dead:
            self._server.kill()
            self._server.start()
            self._write_pids()
        if self._postgres is not None and self._postgres.is_dead:
            self._postgres.kill()
            self._postgres.start()
            self._write_pids()

    def _write_pids(self) -> None:
        pids = {"broker": self._server.pid}
        if self._postgres is not None:
            pids["database"] = self._postgres.pid
        new = self._pids.with_suffix(".new")
        new.write_text("".join(f"{name} {pid}\n" for name, pid in pids.items()))
        new.replace(self._pids)

    def _start_workers(self, chance: float) -> None:
        for number in range(2):
            self._seed += 1
            command = [
                sys.executable, "-m", "tests.chaos.once_worker", self._server.address, self._site.place,
                str(self._seed), str(chance), str(self._pids), str(self._kills), *([self._bug] if self._bug else ()),
            ]  # fmt: skip
            with (self._folder / f"worker-{number}.log").open("ab") as log:
                self._workers.append(
                    subprocess.Popen(command, cwd=REPOSITORY, stderr=log, stdout=log, start_new_session=True)
                )

    def _stop_workers(self) -> None:
        for worker in self._workers:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(worker.pid, signal.SIGKILL)
            worker.wait()
        self._workers.clear()

    def _close(self) -> None:
        self._stop_workers()
        self._server.close()
        self._site.close()
        if self._postgres is not None:
            self._postgres.stop()


@contextlib.contextmanager
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="headrace-once-") as name:
        yield Path(name)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--database", choices=["sqlite", "postgres"], default="postgres")
    parser.add_argument("--bug", choices=["accept-first", "row-outside", "no-row"], default="")
    given = parser.parse_args()
    with folder() as place:
        account = Chaos(place, given.database, given.seed, given.bug).run(given.kills)
    print(f"seed {given.seed}, {given.database}: {account}", flush=True)
    return 1 if account.lost or account.doubled else 0


if __name__ == "__main__":
    sys.exit(main())
