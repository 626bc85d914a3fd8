"""The source on clusters: local-cluster, a standalone master with two workers, Spark Connect; and how executors get it.

Each query is a program of its own. The standalone cluster's executors run a Python without this checkout, so a test that
passes has really brought the package there.
"""

import json
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet

from headrace import Broker
from tests.spark.conftest import WAIT_S, Queue, make_queue
from tests.spark.standalone import SparkProcess, bare_python, spark_environment, standalone_cluster

pytestmark = pytest.mark.timeout(300)
REPOSITORY = Path(__file__).resolve().parents[2]
RECORDS = 3_000
CONF = {
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.ui.enabled": "false",
    "spark.log.level": "ERROR",
    "spark.executor.memory": "512m",
    "spark.cores.max": "2",
}


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, unpacked: what pip would put on a machine."""
    folder = tmp_path_factory.mktemp("package")
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*build, "--wheel-dir", str(folder), str(REPOSITORY)], check=True, timeout=WAIT_S)
    (wheel,) = folder.glob("headrace-*.whl")
    shutil.unpack_archive(wheel, folder / "unpacked", format="zip")
    shutil.copy(wheel, folder / "headrace.zip")
    with tarfile.open(folder / "headrace.tar.gz", "w:gz") as archive:
        archive.add(folder / "unpacked", arcname=".")
    return folder


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """Its master's address and its executors' Python."""
    folder = tmp_path_factory.mktemp("standalone")
    python = bare_python(folder)
    with standalone_cluster(folder, env=spark_environment(python)) as (address, _):
        yield address, python


def drain(queue: Queue, python: Path, **told: Any) -> list[dict[str, Any]]:
    """The rows that came out, after the program has ended well."""
    options = {
        "kafka.bootstrap.servers": queue.bootstrap_servers,
        "subscribe": queue.topic,
        "kafka.group.id": queue.group,
        "startingOffsets": "earliest",
        "checkpointLocation": queue.checkpoint,
        "minPartitions": "6",
        "maxRecordsPerTrigger": "1000",
    }
    results = queue.folder / "results"
    everything = {
        "options": options,
        "checkpoint": queue.checkpoint,
        "results": str(results),
        **told,
        "conf": CONF | told.get("conf", {}),
    }
    program = [sys.executable, str(REPOSITORY / "tests/spark/cluster_program.py"), json.dumps(everything)]
    environment = spark_environment(python, PYTHONPATH=str(REPOSITORY / "src"), SPARK_LOCAL_IP="127.0.0.1")
    ran = subprocess.run(
        program, env=environment, cwd=queue.folder, capture_output=True, text=True, timeout=2 * WAIT_S
    )
    assert ran.returncode == 0, f"{ran.stdout}\n{ran.stderr[-6000:]}"
    rows = parquet.read_table(results).to_pylist()
    assert sorted(int(row["value"]) for row in rows) == list(range(queue.sent))
    assert queue.lag() == 0
    return rows


def places(rows: list[dict[str, Any]]) -> set[str]:
    return {row["place"].split("|")[0] for row in rows}


def homes(rows: list[dict[str, Any]]) -> set[str]:
    return {row["place"].split("|")[1] for row in rows}


@pytest.fixture
def filled(broker: Broker, unique: str, tmp_path: Path) -> Queue:
    queue = make_queue(broker.bootstrap_servers, unique, tmp_path)
    queue.send(RECORDS)
    return queue


def test_a_local_cluster_works_a_queue_off_on_both_executors(filled: Queue) -> None:
    rows = drain(filled, Path(sys.executable), master="local-cluster[2,1,1024]")
    assert len(places(rows)) == 2


def test_executors_have_the_package_installed(
    filled: Queue, cluster: tuple[str, Path], package: Path
) -> None:
    address, python = cluster
    installed = str(package / "unpacked")
    rows = drain(filled, python, master=address, conf={"spark.executorEnv.PYTHONPATH": installed})
    assert homes(rows) == {f"{installed}/headrace"}
    assert len(places(rows)) == 2


def test_executors_get_the_package_by_py_files(
    filled: Queue, cluster: tuple[str, Path], package: Path
) -> None:
    address, python = cluster
    rows = drain(filled, python, master=address, py_files=[str(package / "headrace.zip")])
    assert all("headrace.zip" in home for home in homes(rows)), homes(rows)


def test_executors_get_the_package_by_an_archive(
    filled: Queue, cluster: tuple[str, Path], package: Path
) -> None:
    address, python = cluster
    conf = {
        "spark.archives": f"{package / 'headrace.tar.gz'}#headrace-package",
        "spark.executorEnv.PYTHONPATH": "headrace-package",
    }
    rows = drain(filled, python, master=address, conf=conf)
    assert all(home.endswith("headrace-package/headrace") for home in homes(rows)), homes(rows)


def test_spark_connect_works_a_queue_off_where_the_server_has_the_package(
    filled: Queue, tmp_path: Path
) -> None:
    place = tmp_path / "connect"
    place.mkdir()
    server = SparkProcess(
        "org.apache.spark.deploy.SparkSubmit",
        *("--master", "local[2]"),
        *(part for name, value in CONF.items() for part in ("--conf", f"{name}={value}")),
        *("--conf", "spark.connect.grpc.binding.port=0", "--conf", "spark.log.level=INFO"),
        *("--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"),
        folder=place,
        said=r"Spark Connect server started at: \S+:\d+",
        env=spark_environment(Path(sys.executable), SPARK_LOCAL_IP="127.0.0.1"),
    )
    try:
        port = server.wait().rsplit(":", 1)[1]
        rows = drain(filled, Path(sys.executable), remote=f"sc://127.0.0.1:{port}", register=False, conf={})
        assert len(rows) == RECORDS
    finally:
        server.stop()
