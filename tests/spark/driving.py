"""Runs `cluster_program.py` on a queue, and holds what came out against what went in."""

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyarrow import parquet

from headrace.testing.child_process import ChildProcess
from tests.spark.conftest import WAIT_S, Queue
from tests.spark.standalone import HOSTS, SPARK_HOME, spark_environment
from tests.spark_archive import java_options

REPOSITORY = Path(__file__).resolve().parents[2]
PROGRAM = REPOSITORY / "tests/spark/cluster_program.py"
CONF = {
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.ui.enabled": "false",
    "spark.log.level": "ERROR",
    "spark.driver.host": HOSTS[0],
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": java_options(),
    "spark.executor.cores": "1",
    "spark.cores.max": "2",  # one executor on each host; a Connect server may have two more
    "spark.sql.execution.arrow.maxRecordsPerBatch": "50",
}
JVM_FRAME = re.compile(r"\s+at [\w.$]+\(")

Rows = list[dict[str, Any]]


def submit(
    queue: Queue,
    master: str,
    python: Path,
    *arguments: str,
    conf: dict[str, str] | None = None,
    faults: dict[int, str] | None = None,
    driver: Mapping[str, str] | None = None,
) -> Rows:
    """By spark-submit; `python` is the executors', `driver` the driver's environment. The rows that came out."""
    settings = CONF | (conf or {})
    command = [
        *(str(SPARK_HOME / "bin" / "spark-submit"), "--master", master, *arguments),
        *(part for name, value in settings.items() for part in ("--conf", f"{name}={value}")),
        str(PROGRAM),
    ]
    environment = spark_environment(python, **(driver or {"PYSPARK_DRIVER_PYTHON": sys.executable}))
    return _drain(queue, command, environment, {"register": True, "faults": faults or {}, "judges": False})


def client(queue: Queue, remote: str, python: Path, *, judges: bool = False) -> Rows:
    """By Spark Connect, from a Python that need not have the source (for `judges` it must)."""
    told = {"remote": remote, "register": judges, "faults": {}, "judges": judges}
    return _drain(queue, [str(python), str(PROGRAM)], spark_environment(python), told)


def _drain(queue: Queue, command: list[str], environment: Mapping[str, str], told: dict[str, Any]) -> Rows:
    """Runs the program. Each record that was sent has come out once, and the group has no lag.

    Who judges may release a record, and then sees it once more.
    """
    marks, read_back = queue.folder / "marks", queue.folder / "read_back.parquet"
    marks.mkdir(exist_ok=True)
    options = {
        "kafka.bootstrap.servers": queue.bootstrap_servers,
        "subscribe": queue.topic,
        "kafka.group.id": queue.group,
        "startingOffsets": "earliest",
        "checkpointLocation": queue.checkpoint,
        "minPartitions": "4",
        "maxRecordsPerTrigger": "600",
        **queue.options,
    }
    places = {"checkpoint": queue.checkpoint, "results": str(queue.folder / "results")}
    everything = {"options": options, **places, "marks": str(marks), "read_back": str(read_back), **told}
    command = [*command, json.dumps(everything)]
    program = ChildProcess(command, output=queue.folder / "driver.log", env=environment, cwd=queue.folder)
    try:
        code = program.wait(2 * WAIT_S)
    finally:
        program.stop()
    assert code == 0, "\n".join(
        line for line in program.output_text().splitlines() if not JVM_FRAME.match(line)
    )
    rows: Rows = parquet.read_table(read_back).to_pylist()
    effects = sorted(int(row["value"]) for row in rows if row["deliveryCount"] == 1 or not told["judges"])
    missing, doubled = set(range(queue.sent)) - set(effects), len(effects) - len(set(effects))
    assert (missing, doubled) == (set(), 0), f"{len(missing)} records are missing, {doubled} have two effects"
    assert queue.lag() == 0
    return rows
