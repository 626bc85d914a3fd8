"""The example of a declarative pipeline, by `spark-pipelines run`: killed, and run again.

Its command needs a catalog that outlives a run: Hive's, in a folder.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headrace import Admin, Broker, Producer
from headrace.testing.java import find_java

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "spark_pipeline"
BIN = Path(sys.executable).parent
RUN_S = 240
GROUPS = ("orders-pipeline", "orders-check")
COUNTS = """
from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

@dp.materialized_view
def counts() -> DataFrame:
    return SparkSession.active().read.table("raw_orders").groupBy().count()
"""


class Pipeline:
    """A copy of the example, with storage and tables in a folder of the test."""

    def __init__(self, servers: str, folder: Path) -> None:
        self.warehouse = folder / "warehouse"
        self._storage = folder / "storage"
        self._project = shutil.copytree(EXAMPLE, folder / "project")
        (self._project / "transformations" / "counts.py").write_text(COUNTS)
        spec = self._project / "spark-pipeline.yml"
        lines = spec.read_text().splitlines()
        spec.write_text(
            "\n".join(
                f"storage: {self._storage.as_uri()}" if line.startswith("storage:") else line
                for line in lines
            )
        )
        self._derby = folder / "derby"
        self._environment = {
            **os.environ,
            "KAFKA": servers,
            "STORAGE": str(self._storage),
            "PYSPARK_PYTHON": sys.executable,
            "JAVA_HOME": str(find_java().home),
            "PATH": os.pathsep.join([str(BIN), os.environ["PATH"]]),
        }
        self._output = folder / "output"

    def start(self) -> "subprocess.Popen[bytes]":
        conf = {
            "spark.sql.warehouse.dir": str(self.warehouse),
            "spark.sql.catalogImplementation": "hive",
            "spark.driver.extraJavaOptions": f"-Dderby.system.home={self._derby}",
            "spark.ui.enabled": "false",
        }
        arguments = [part for name, value in conf.items() for part in ("--conf", f"{name}={value}")]
        with self._output.open("w") as output:
            return subprocess.Popen(
                [str(BIN / "spark-pipelines"), "run", *arguments],
                cwd=self._project,
                env=self._environment,
                start_new_session=True,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def run(self) -> None:
        running = self.start()
        try:
            status = running.wait(RUN_S)
        finally:
            kill(running)
        assert status == 0, self._output.read_text()[-5_000:]

    @property
    def moments(self) -> dict[str, Path]:
        """What is there from this moment of the first run on."""
        checkpoints = self._storage / "_checkpoints"
        return {
            "the table's records are logged": checkpoints
            / "spark_catalog/default/raw_orders/raw_orders/0/offsets/0",
            "they are in the table": self.warehouse / "raw_orders/_spark_metadata/0",
            "the outcomes are written": checkpoints / "ack/judge/0/share-outcomes/0.json",
        }

    def run_and_kill(self, moment: str) -> None:
        sign = self.moments[moment]
        running = self.start()
        deadline = time.monotonic() + RUN_S
        try:
            while not sign.exists():
                assert running.poll() is None, self._output.read_text()[-5_000:]
                assert time.monotonic() < deadline, f"{sign} did not come"
                time.sleep(0.01)  # the pace of looking
        finally:
            kill(running)


def kill(running: "subprocess.Popen[bytes]") -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(running.pid, signal.SIGKILL)
    running.wait()


@pytest.mark.timeout(3 * RUN_S)
@pytest.mark.parametrize(
    "moment",
    [
        pytest.param("the table's records are logged", id="logged"),
        pytest.param("they are in the table", id="in-the-table"),
        pytest.param("the outcomes are written", id="outcomes"),
    ],
)
def test_a_pipeline_that_is_killed_and_run_again_has_each_order_once(
    spark: SparkSession, tmp_path: Path, moment: str
) -> None:
    values = [*(f'{{"id": {number}}}' for number in range(40)), "junk"]
    with Broker() as broker:
        servers = broker.bootstrap_servers
        with Admin(bootstrap_servers=servers) as admin:
            admin.create_topic("orders", partitions=2)
            admin.create_topic("orders-dead", partitions=1)
        with Producer(bootstrap_servers=servers) as producer:
            producer.send_many("orders", values)
        pipeline = Pipeline(servers, tmp_path)
        pipeline.run_and_kill(moment)
        pipeline.run()
        with Admin(bootstrap_servers=servers) as admin:
            lags = {group: lag_of(admin, group) for group in GROUPS}
            letters = admin.dead_letters("orders-dead").letters
    rows = spark.read.parquet(str(pipeline.warehouse / "raw_orders")).collect()
    assert sorted(bytes(row.value).decode() for row in rows) == sorted(values)
    assert [row["count"] for row in spark.read.parquet(str(pipeline.warehouse / "counts")).collect()] == [41]
    assert lags == dict.fromkeys(GROUPS, 0)
    # A copy is made at least once.
    assert {(letter.source_topic, letter.message) for letter in letters} == {
        ("orders", "value is not one JSON object")
    }
    assert len({(letter.source_partition, letter.source_offset) for letter in letters}) == 1


def lag_of(admin: Admin, group: str) -> int:
    return sum(each.lag or 0 for each in admin.share_group_offsets(group).values())
