"""The source on clusters: local-cluster, standalone, Spark Connect; and the three ways by which executors get it.

Each query is a program of its own. The standalone cluster's executors run a Python without this checkout, so a test
that passes has really brought the package there.
"""

import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from headrace import Broker
from headrace.client.admin import LATEST
from tests.spark.conftest import WAIT_S, Queue, make_queue
from tests.spark.driving import CONF, REPOSITORY, client, submit
from tests.spark.standalone import (
    OF_CONNECT,
    OF_HEADRACE,
    OF_SPARK,
    SparkProcess,
    link_packages,
    python_with,
    spark_environment,
    standalone_cluster,
)

pytestmark = pytest.mark.timeout(300)
RECORDS = 1_200


@dataclass(frozen=True)
class Package:
    """Headrace as it leaves this repository, in the forms that Spark takes."""

    installed: Path
    zip: Path
    archive: Path
    in_archive: Path


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Package:
    folder = tmp_path_factory.mktemp("package")
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    build = [*pip, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder), str(REPOSITORY)]
    subprocess.run(build, check=True, timeout=WAIT_S)
    (wheel,) = folder.glob("headrace-*.whl")
    installed, whole = folder / "installed", folder / "package"
    for target in (installed, whole):
        install = [*pip, "install", "--no-deps", "--no-index", "--target", str(target), str(wheel)]
        subprocess.run(install, check=True, timeout=WAIT_S)
    link_packages(whole, *OF_HEADRACE)
    archive = folder / "headrace.tar.gz"
    with tarfile.open(archive, "w:gz", compresslevel=1, dereference=True) as tar:
        tar.add(whole, arcname=".")
    return Package(installed, Path(shutil.copy(wheel, folder / "headrace.zip")), archive, whole)


@dataclass(frozen=True)
class Cluster:
    address: str
    python: Path
    """On the executors: Spark's needs alone."""
    python_with_needs: Path
    """The same with what Headrace needs, but without Headrace."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("standalone")
    python = python_with(folder / "bare", *OF_SPARK)
    with_needs = python_with(folder / "needs", *OF_SPARK, *OF_CONNECT, *OF_HEADRACE)
    with standalone_cluster(folder, python) as address:
        yield Cluster(address, python, with_needs)


@pytest.fixture
def filled(broker: Broker, unique: str, tmp_path: Path) -> Queue:
    queue = make_queue(broker.bootstrap_servers, unique, tmp_path)
    queue.send(RECORDS)
    return queue


def test_a_local_cluster_that_has_the_wheel_installed_works_a_queue_off_on_both_executors(
    filled: Queue, cluster: Cluster, package: Package
) -> None:
    conf = {"spark.executorEnv.PYTHONPATH": str(package.installed)}
    rows = submit(filled, "local-cluster[2,1,1024]", cluster.python_with_needs, conf=conf)
    assert {row["home"] for row in rows} == {f"{package.installed}/headrace"}
    assert len({row["place"] for row in rows}) == 2


def test_py_files_bring_the_package_to_executors(filled: Queue, cluster: Cluster, package: Package) -> None:
    python = cluster.python_with_needs
    # Spark does not give --py-files to the process on the driver that runs a streaming source; PYTHONPATH does.
    driver = {"PYSPARK_DRIVER_PYTHON": str(python), "PYTHONPATH": str(package.zip)}
    rows = submit(filled, cluster.address, python, "--py-files", str(package.zip), driver=driver)
    assert {row["home"] for row in rows} == {f"{row['place']}/headrace.zip/headrace" for row in rows}
    assert len({row["place"] for row in rows}) == 2


@pytest.mark.thorough
def test_an_archive_brings_the_package_and_what_it_needs(
    filled: Queue, cluster: Cluster, package: Package
) -> None:
    conf = {"spark.executorEnv.PYTHONPATH": "./headrace"}
    archives = ("--archives", f"{package.archive}#headrace")
    driver = {"PYSPARK_DRIVER_PYTHON": str(cluster.python), "PYTHONPATH": str(package.in_archive)}
    rows = submit(filled, cluster.address, cluster.python, *archives, conf=conf, driver=driver)
    assert {row["home"] for row in rows} == {f"{row['place']}/headrace/headrace" for row in rows}
    assert len({row["place"] for row in rows}) == 2


@pytest.fixture(scope="module")
def connect_server(
    cluster: Cluster, package: Package, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """A server in front of the cluster, with the package installed on it and on the executors."""
    conf = {**CONF, "spark.executorEnv.PYTHONPATH": str(package.installed), "spark.log.level": "INFO"}
    server = SparkProcess(
        "spark-submit",
        *("--master", cluster.address, "--class", "org.apache.spark.sql.connect.service.SparkConnectServer"),
        *("--conf", "spark.connect.grpc.binding.port=0"),
        *(part for name, value in conf.items() for part in ("--conf", f"{name}={value}")),
        output=tmp_path_factory.mktemp("connect") / "server.log",
        said=r"Spark Connect server started at: \S+:\d+",
        env=spark_environment(cluster.python_with_needs, PYTHONPATH=str(package.installed)),
    )
    try:
        yield f"sc://127.0.0.1:{server.wait().rsplit(':', 1)[1]}"
    finally:
        server.stop()


def test_a_connect_client_without_the_package_uses_that_of_the_server_and_its_cluster(
    filled: Queue, connect_server: str, cluster: Cluster, package: Package
) -> None:
    rows = client(filled, connect_server, cluster.python_with_needs)
    assert {row["home"] for row in rows} == {f"{package.installed}/headrace"}
    assert len({row["place"] for row in rows}) == 2


def test_outcomes_are_decided_on_the_connect_server(
    filled: Queue, connect_server: str, cluster: Cluster, package: Package
) -> None:
    filled.options = {"deadLetterTopic": f"{filled.topic}.dead"}
    with filled.admin() as admin:
        admin.create_topic(f"{filled.topic}.dead")
    rows = client(filled, connect_server, Path(sys.executable), judges=True)
    again = sorted(int(row["value"]) for row in rows if row["deliveryCount"] > 1)
    assert again == [number for number in range(RECORDS) if number % 10 == 7]
    with filled.admin() as admin:
        (letters,) = admin.list_offsets({(f"{filled.topic}.dead", 0): LATEST}).values()
    assert letters.offset == RECORDS // 10
