"""kill -9 of a whole query at every step of a micro-batch, one step after the other on one checkpoint.

The broker lives on. Where the killed member's connections end, its locks are lost; where they stay open ("kept"), the
broker keeps the locks, for an hour, so a query that waited for their end would not be done in time. After the last run
every record must have had exactly one effect, and the group must have nothing left to do.
"""

import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from headrace import Broker
from headrace.share.states import RecordState
from headrace.testing.java import find_java
from tests.object_store import BUCKET, ObjectStore
from tests.spark.conftest import Queue, wait_for

REPOSITORY = Path(__file__).resolve().parents[2]
RECORDS = 600
RUN_S = 180
LOCK_MS = 3_600_000
COMMIT_KILLS = ["acquired@1", "logged@1", "task@1", "sink@1", "unsettled@1", "settled@2"]
AHEAD_KILLS = ["acquired@1", "logged@1", "handed_off@2", "task@2"]
HANDOFF_KILLS = ["acquired@1", "logged@1", "handed_off@1", "task@2", "sink@2", "settled@3"]


def kept(kills: list[str]) -> list[str]:
    return [f"{kill_at} kept" for kill_at in kills]


class Program:
    """The query of pipeline.py. At the end of `with`, what its lives have left is gone."""

    def __init__(
        self,
        queue: Queue,
        acknowledge: str,
        *,
        sink: str = "sqlite",
        has_outcomes: bool = False,
        ahead: int = 0,
        dead_letter_topic: str | None = None,
        store: ObjectStore | None = None,
    ) -> None:
        """With a store, the query's checkpoint is there."""
        self._queue = queue
        self._environment = {} if store is None else store.environment
        self._database = queue.folder / "effects.sqlite"
        self._reader = queue.folder / "reader"
        self._frozen: list[int] = []
        with sqlite3.connect(self._database) as database:
            database.execute("CREATE TABLE effects (batch INT, number INT, delivery_count INT, outcome TEXT)")
        database.close()
        self._settings = {
            "database": str(self._database),
            "parquet": str(queue.folder / "parquet") if sink == "parquet" else "",
            "kafka": f"{queue.topic}-out" if sink == "kafka" else "",
            "outcomes": has_outcomes,
            "options": {
                "kafka.bootstrap.servers": queue.bootstrap_servers,
                "subscribe": queue.topic,
                "kafka.group.id": queue.group,
                "startingOffsets": "earliest",
                "maxRecordsPerTrigger": "200",
                "checkpointLocation": queue.checkpoint if store is None else f"s3a://{BUCKET}/{queue.group}",
                "acknowledge": acknowledge,
                "maxRecordsAhead": str(ahead),
                **({} if dead_letter_topic is None else {"deadLetterTopic": dead_letter_topic}),
            },
            "spark": {} if store is None else store.spark_settings,
        }
        with queue.admin() as admin:
            config = {"share.delivery.count.limit": 10, "share.record.lock.duration.ms": LOCK_MS}
            admin.set_group_config(queue.group, config)

    def __enter__(self) -> "Program":
        return self

    def __exit__(self, *_: object) -> None:
        for pid in self._frozen:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def run(self, kill_at: str = "") -> int:
        environment = {
            **os.environ,
            **self._environment,
            "KILL_AT": kill_at,
            "KILL_READER": str(self._reader),
            "PYTHONPATH": str(REPOSITORY),
            "PYSPARK_PYTHON": sys.executable,
            "JAVA_HOME": str(find_java().home),
        }
        output = self._queue.folder / "output"
        with output.open("w") as file:
            running = subprocess.Popen(
                [sys.executable, "-m", "tests.spark.pipeline", json.dumps(self._settings)],
                cwd=self._queue.folder,
                env=environment,
                start_new_session=True,
                stdout=file,
                stderr=subprocess.STDOUT,
            )
        try:
            status = running.wait(RUN_S)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(running.pid, signal.SIGKILL)  # the JVM and its children too
            running.wait()
            if kill_at.endswith(" kept") and self._reader.exists():
                self._frozen.append(int(self._reader.read_text()))
                self._reader.unlink()
        assert status in (0, -9), output.read_text()[-5_000:]
        return status

    def run_to_the_end(self, kills: list[str]) -> None:
        for kill_at in kills:
            assert self.run(kill_at) == -9, f"{kill_at} was not reached"
        assert self.run() == 0

    def effects(self) -> list[tuple[int, int]]:
        """Numbers and how often each was processed."""
        with sqlite3.connect(self._database) as database:
            rows = database.execute(
                "SELECT number, COUNT(*) FROM effects GROUP BY number ORDER BY number"
            ).fetchall()
        database.close()
        return rows


@pytest.mark.timeout(1_200)
@pytest.mark.parametrize(
    ("acknowledge", "kills", "options"),
    [
        pytest.param("commit", ["sink@1"], {"has_outcomes": True}, id="commit-once"),
        pytest.param("handoff", ["handed_off@1 kept"], {"sink": "parquet"}, id="handoff-once"),
        pytest.param("commit", COMMIT_KILLS[::2], {"has_outcomes": True}, id="commit-with-outcomes"),
        pytest.param(
            "handoff", kept(HANDOFF_KILLS[1::2]), {"sink": "parquet"}, id="handoff-locks-kept-parquet"
        ),
        pytest.param("handoff", AHEAD_KILLS[::2], {"ahead": 350}, id="handoff-ahead"),
        *(
            pytest.param(mode, kills, options, id=f"{mode}-{name}-all", marks=pytest.mark.thorough)
            for mode, kills, options, name in (
                ("commit", COMMIT_KILLS, {"has_outcomes": True}, "with-outcomes"),
                ("handoff", HANDOFF_KILLS, {}, "sqlite"),
                ("handoff", AHEAD_KILLS, {"ahead": 350}, "ahead"),
                ("commit", kept(COMMIT_KILLS), {"sink": "parquet"}, "locks-kept-parquet"),
                ("handoff", kept(HANDOFF_KILLS), {"sink": "parquet"}, "locks-kept-parquet"),
            )
        ),
    ],
)
def test_every_record_has_one_effect_wherever_the_query_is_killed(
    queue: Queue, acknowledge: str, kills: list[str], options: dict[str, Any]
) -> None:
    queue.send(RECORDS)
    with Program(queue, acknowledge, **options) as program:
        program.run_to_the_end(kills)
        assert program.effects() == [(number, 1) for number in range(RECORDS)]
        wait_for(lambda: queue.lag() == 0)


@pytest.mark.thorough
@pytest.mark.timeout(300)
def test_locks_that_are_kept_are_still_there_when_the_query_is_not(broker: Broker, queue: Queue) -> None:
    """What the tests above rest on."""
    queue.send(RECORDS)
    with Program(queue, "commit") as program:
        for kill_at, holds in (("acquired@1 kept", True), ("acquired@1", False)):
            assert program.run(kill_at) == -9
            wait_for(lambda: (locked_records(broker, queue) > 0) is holds)  # noqa: B023


def locked_records(broker: Broker, queue: Queue) -> int:
    states = broker.share_state(queue.group).values()
    return sum(state.count_of(RecordState.ACQUIRED) for state in states)
