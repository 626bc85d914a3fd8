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
import time
from pathlib import Path

from headrace.cli.demo.orders import Account, number_in
from headrace.cli.demo.world import WAIT_S_MAX, World, settings_text
from headrace.cli.failures import Refused

ORDERS = 2_000
MICRO_BATCH = 250
COMMITTED_BEFORE_THE_KILL = 2
RUNS_MAX = 4


def play(world: World, *, topic: str | None = None, produced: int = 0) -> list[Account]:
    """On the orders that are there already, or on its own."""
    environment = _environment()
    if topic is None:
        topic, produced = world.topic("pipeline-orders"), ORDERS
        world.produce(topic, range(1, produced + 1))
    dead, group = world.topic("scored.dead", partitions=1), world.group("fraud")
    results, checkpoint = world.folder / "scored", world.folder / "checkpoint"
    world.say(
        f"\n[bold]2. The pipeline.[/bold] Spark reads the same {produced} orders as share group {group!r}, "
        "scores them, writes Parquet."
    )
    told = {
        "settings": settings_text(world.settings),
        "topic": topic,
        "group": group,
        "dead": dead,
        "results": str(results),
        "checkpoint": str(checkpoint),
        "micro-batch": str(max(1, min(MICRO_BATCH, produced // 8))),
    }
    started = time.monotonic()
    with _Query(world, told, environment, drains=False) as query:
        world.until(lambda: query.require() and _committed(checkpoint) >= COMMITTED_BEFORE_THE_KILL, "Spark")
        query.kill()
    world.say(
        f"   {time.monotonic() - started:.0f} s: {_committed(checkpoint)} micro-batches committed, "
        f"{len(_scored(results))} orders scored. Killed with kill -9, in the middle of the next."
    )
    for _ in range(RUNS_MAX):
        with _Query(world, told, environment, drains=True) as query:
            query.wait()
        if world.drained(group, topic):
            break
    world.say(
        f"   {time.monotonic() - started:.0f} s: started again on its checkpoint and drained, "
        f"{_committed(checkpoint)} micro-batches in all."
    )
    rows = _scored(results)
    account = Account("Spark", produced)
    account.add("scored", (number for number, is_skipped in rows if not is_skipped))
    account.add("skipped", (number for number, is_skipped in rows if is_skipped))
    # A dead letter is written at least once: a kill between the copy and its note repeats it, with the same offset.
    account.add("dead-lettered", sorted(set(_dead_numbers(world, dead))))
    return [account]


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
        arguments = [*(f"--{name}={value}" for name, value in told.items()), *(["--drain"] if drains else [])]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "headrace.spark.demo", *arguments],
                env=environment,
                cwd=world.folder,
                stdin=subprocess.DEVNULL,
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

    def wait(self) -> None:
        self._world.until(lambda: self._process.poll() is not None, "the end of the Spark query")
        if self._process.returncode:
            self.require()

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(WAIT_S_MAX)


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
