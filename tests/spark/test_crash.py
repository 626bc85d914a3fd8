"""kill -9 of a whole query at every step of a micro-batch, one step after the other on one checkpoint.

The broker lives on, and the killed member's connections end, so its locks are lost each time. After the last run every
record must have had exactly one effect, and the group must have nothing left to do.
"""

import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from headrace import Broker
from headrace.testing.java import find_java
from tests.spark.conftest import Queue

REPOSITORY = Path(__file__).resolve().parents[2]
RECORDS = 600
RUN_S = 180
COMMIT_KILLS = ["acquired@1", "logged@1", "task@1", "sink@1", "unsettled@1", "settled@2"]
HANDOFF_KILLS = ["logged@1", "handed_off@1", "task@2", "sink@2", "settled@3"]


class Program:
    def __init__(self, queue: Queue, acknowledge: str, *, has_outcomes: bool) -> None:
        self._queue = queue
        self._database = queue.folder / "effects.sqlite"
        with sqlite3.connect(self._database) as database:
            database.execute("CREATE TABLE effects (batch INT, number INT, delivery_count INT, outcome TEXT)")
        database.close()
        self._settings = {
            "database": str(self._database),
            "outcomes": has_outcomes,
            "options": {
                "kafka.bootstrap.servers": queue.bootstrap_servers,
                "subscribe": queue.topic,
                "kafka.group.id": queue.group,
                "startingOffsets": "earliest",
                "maxRecordsPerTrigger": "200",
                "checkpointLocation": queue.checkpoint,
                "acknowledge": acknowledge,
            },
        }

    def run(self, kill_at: str = "") -> int:
        environment = {
            **os.environ,
            "KILL_AT": kill_at,
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
        assert status in (0, -9), output.read_text()[-5_000:]
        return status

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
    ("acknowledge", "kills", "has_outcomes"),
    [
        pytest.param("commit", COMMIT_KILLS, True, id="commit-with-outcomes"),
        pytest.param("handoff", HANDOFF_KILLS, False, id="handoff"),
    ],
)
def test_every_record_has_one_effect_wherever_the_query_is_killed(
    broker: Broker, queue: Queue, acknowledge: str, kills: list[str], has_outcomes: bool
) -> None:
    queue.send(RECORDS)
    with queue.admin() as admin:
        admin.set_group_config(queue.group, {"share.delivery.count.limit": 10})
    program = Program(queue, acknowledge, has_outcomes=has_outcomes)
    for kill_at in kills:
        assert program.run(kill_at) == -9, f"{kill_at} was not reached"
    assert program.run() == 0
    assert program.effects() == [(number, 1) for number in range(RECORDS)]
    assert queue.lag() == 0
