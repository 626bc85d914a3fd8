"""The pipeline: Spark reads the queue, scores the orders into Parquet, is killed in the middle, and goes on.

The query is a process of its own (`python -m headrace.spark.demo`). It dies by kill -9 once it has committed a
micro-batch, and is started again on the same checkpoint until the share group has nothing left.
"""

import contextlib
import importlib.util
import os
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Callable
from pathlib import Path

from headrace.cli.demo.orders import Account, number_in
from headrace.cli.demo.screen import Moving, Row
from headrace.cli.demo.world import WAIT_S_MAX, World
from headrace.cli.failures import Refused

ORDERS = 600
MICRO_BATCHES = 6
COMMITTED_BEFORE_THE_KILL = 2
RUNS_MAX = 4


def play(world: World) -> list[Account]:
    with Pipeline(world) as pipeline:
        pipeline.warm_up()
        return pipeline.play()


class Pipeline:
    """The act, and the queries that are got ready for it while other acts are played."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._environment = _environment()
        self._topic = world.topic("pipeline-orders")
        self._dead, self._group = world.topic("scored.dead", partitions=1), world.group("fraud")
        self._results, self._checkpoint = world.folder / "scored", world.folder / "checkpoint"
        self._ready: deque[_Query] = deque()
        self._warmed = 0
        self._state = "starting"
        self._is_up = True
        self._rows_seen = (-1, 0)

    def __enter__(self) -> "Pipeline":
        return self

    def __exit__(self, *_: object) -> None:
        for query in self._ready:
            query.kill()

    def warm_up(self) -> None:
        """A JVM and a Spark session take some seconds to start: one of each for the first run, and for the second."""
        self._ready.append(self._query(drains=self._warmed > 0))
        self._warmed += 1

    def play(self) -> list[Account]:
        world = self._world
        world.produce_fast(self._topic, range(1, ORDERS + 1))
        world.say(
            f"\n[bold]{world.act()}Spark.[/bold] A query reads {ORDERS} orders, scores them and writes Parquet.\n"
            "   It is killed with -9 in the middle of a micro-batch."
        )
        with Moving(world, self._rows) as show:
            self._first_run(show)
            self._later_runs(show)
            self._state = "every order has one result"
        return [self._account()]

    def _first_run(self, show: Callable[[], None]) -> None:
        with self._next_query() as query:

            def is_time() -> bool:
                show()
                committed = _committed(self._checkpoint)
                if committed:
                    self._state, self._is_up = "running", True
                return query.require() and committed >= COMMITTED_BEFORE_THE_KILL

            self._state, self._is_up = "Spark starts", False
            self._world.until(is_time, "Spark")
            query.kill()
        self._world.kills += 1
        self._state, self._is_up = "killed with -9", False
        show()

    def _later_runs(self, show: Callable[[], None]) -> None:
        for _ in range(RUNS_MAX):
            with self._next_query() as query:
                self._state, self._is_up = "killed with -9, started again", True

                def has_ended(query: "_Query" = query) -> bool:
                    show()
                    return query.has_ended()

                self._world.until(has_ended, "the end of the Spark query")
            if self._world.drained(self._group, self._topic):
                return

    def _next_query(self) -> "_Query":
        if not self._ready:
            self.warm_up()
        query = self._ready.popleft()
        query.begin()
        return query

    def _query(self, *, drains: bool) -> "_Query":
        told = {
            "settings": str(self._world.settings_file()),
            "topic": self._topic,
            "group": self._group,
            "dead": self._dead,
            "results": str(self._results),
            "checkpoint": str(self._checkpoint),
            "micro-batch": str(ORDERS // MICRO_BATCHES),
        }
        return _Query(self._world, told, self._environment, drains=drains)

    def _rows(self) -> list[Row]:
        committed = _committed(self._checkpoint)
        if committed != self._rows_seen[0]:
            self._rows_seen = committed, len(_scored(self._results)) if committed else 0
        text = f"{self._rows_seen[1]} orders, {committed} micro-batches"
        return [
            (f"{'scored':<14}", self._rows_seen[1] / (ORDERS * 0.9), text),
            (f"{'query':<14}", float(self._is_up), self._state),
        ]

    def _account(self) -> Account:
        rows = _scored(self._results)
        account = Account("Spark", ORDERS)
        account.add("scored", (number for number, is_skipped in rows if not is_skipped))
        account.add("skipped", (number for number, is_skipped in rows if is_skipped))
        # A dead letter is written at least once: a kill between the copy and its note repeats it, with the same offset.
        account.add("dead-lettered", sorted(set(_dead_numbers(self._world, self._dead))))
        return account


def require_spark() -> None:
    """Before the curtain rises, not in the middle."""
    missing = [name for name in ("pyspark", "pyarrow", "pandas") if importlib.util.find_spec(name) is None]
    if missing:
        raise Refused(
            f"the pipeline needs {', '.join(missing)}, not installed here: pip install 'headrace[spark]' "
            "(in a checkout: make demo), or run another part with --story queue"
        )


def _environment() -> dict[str, str]:
    from headrace.testing.java import find_java

    require_spark()
    return {**os.environ, "JAVA_HOME": str(find_java().home), "PYSPARK_PYTHON": sys.executable}


class _Query:
    """The query's process with all that it starts, in a process group of its own."""

    def __init__(
        self, world: World, told: dict[str, str], environment: dict[str, str], *, drains: bool
    ) -> None:
        self._world = world
        self._log = world.folder / "spark.log"
        arguments = ["--wait", *(f"--{name}={value}" for name, value in told.items())]
        arguments += ["--drain"] if drains else []
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "headrace.spark.demo", *arguments],
                env=environment,
                cwd=world.folder,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def __enter__(self) -> "_Query":
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def require(self) -> bool:
        """True while it lives; what it said last when it does not."""
        status = self._process.poll()
        if status is not None:
            last = "\n".join(self._log.read_text(errors="replace").splitlines()[-15:])
            raise Refused(
                f"the Spark query ended by itself with status {status}; the end of its log:\n{last}"
            )
        return True

    def begin(self) -> None:
        """As soon as it is ready."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it has ended: whoever waits for it is told
            self._process.stdin.write(b"\n")
            self._process.stdin.flush()

    def has_ended(self) -> bool:
        if self._process.poll():
            self.require()
        return self._process.returncode is not None

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(WAIT_S_MAX)
        if self._process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()


def _committed(checkpoint: Path) -> int:
    """Micro-batches that Spark has committed, as its own log has it."""
    return sum(1 for file in checkpoint.glob("commits/[0-9]*"))


def _scored(results: Path) -> list[tuple[int, bool]]:
    """Every row of the Parquet files: the order's number, and whether it was skipped."""
    from pyarrow import parquet

    rows: list[tuple[int, bool]] = []
    for file in sorted(results.glob("batch=*/*.parquet")):
        table = parquet.read_table(file, columns=["number", "is_skipped"], partitioning=None)
        rows += zip(table["number"].to_pylist(), table["is_skipped"].to_pylist(), strict=True)
    return rows


def _dead_numbers(world: World, dead: str) -> list[int]:
    letters = world.admin.dead_letters(dead).letters
    return [number_in(world.admin.dead_letter(dead, one.partition, one.offset).value) for one in letters]
