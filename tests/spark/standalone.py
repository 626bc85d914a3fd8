"""A Spark standalone cluster on this machine, by Spark's own commands, and Pythons that have only what they are given.

The cluster's workers say they are on two hosts (127.0.0.1 and 127.0.0.2), because Spark puts a speculative copy of a
task on another host or nowhere. Its Pythons do not read .pth files, so the editable install of this checkout is not
there: what a test brings is all there is.
"""

import os
import re
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import distribution
from pathlib import Path

import pyspark

from headrace.testing.child_process import ChildProcess
from headrace.testing.java import find_java

HOSTS = ("127.0.0.1", "127.0.0.2")
START_S_MAX = 60
SPARK_HOME = Path(pyspark.__file__).parent
ADDRESS = re.compile(r"spark://[\w.\-]+:\d+")

OF_SPARK = ("pyspark", "py4j", "pyarrow", "pandas", "numpy", "python-dateutil", "six")
"""What Spark's Python needs anyway for sources and functions that speak Arrow."""

OF_CONNECT = (
    "grpcio",
    "grpcio-status",
    "protobuf",
    "googleapis-common-protos",
    "zstandard",
    "typing-extensions",
)

OF_HEADRACE = ("aiokafka", "cramjam", "crc32c", "msgspec", "async-timeout", "packaging", "typing-extensions")
"""What the source imports on executors (docs/how-to/spark-on-a-cluster.md says so too), and what aiokafka needs."""


def link_packages(folder: Path, *names: str) -> Path:
    """A folder with just these packages, as `pip install --no-deps --target` would fill it."""
    folder.mkdir(exist_ok=True)
    for name in names:
        own = distribution(name)
        for top in {file.parts[0] for file in own.files or () if file.parts[0] not in ("..", "__pycache__")}:
            if not (folder / top).exists():
                (folder / top).symlink_to(Path(str(own.locate_file(top))))
    return folder


def python_with(folder: Path, *names: str) -> Path:
    """An interpreter that has these packages and no other."""
    folder.mkdir()
    packages = link_packages(folder / "packages", *names)
    wrapper = folder / "python"
    wrapper.write_text(f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{packages}" exec "{sys.executable}" -S "$@"\n')
    wrapper.chmod(0o755)
    return wrapper


def spark_environment(python: Path, **more: str) -> dict[str, str]:
    """For a process of Spark's that shall not inherit how this one finds its modules."""
    given = {
        "JAVA_HOME": str(find_java().home),
        "SPARK_HOME": str(SPARK_HOME),
        "PYSPARK_PYTHON": str(python),
        "PYTHONPATH": "",
        "SPARK_LOCAL_IP": HOSTS[0],
        "SPARK_DAEMON_MEMORY": "512m",
    }
    return {**os.environ, **given, **more}


class SparkProcess:
    """A process of Spark's that goes on, and the line by which it says that it is there."""

    def __init__(
        self, command: str, *arguments: str, output: Path, said: str, env: Mapping[str, str]
    ) -> None:
        self._said = re.compile(said)
        self._process = ChildProcess(
            [SPARK_HOME / "bin" / command, *arguments], output=output, env=env, cwd=output.parent
        )

    def wait(self) -> str:
        deadline = time.monotonic() + START_S_MAX
        while (found := self._said.search(self._process.output_text())) is None:
            assert self._process.is_running, self._process.output_tail()
            assert time.monotonic() < deadline, self._process.output_tail()
            time.sleep(0.1)  # a process tells by its log alone that it is ready
        return found[0]

    def stop(self) -> None:
        self._process.stop(10)


@contextmanager
def standalone_cluster(folder: Path, python: Path) -> Iterator[str]:
    """A master and a worker on each host, with room for two applications; the master's address."""
    master = SparkProcess(
        "spark-class",
        "org.apache.spark.deploy.master.Master",
        *("--host", HOSTS[0], "--port", "0", "--webui-port", "0"),
        output=folder / "master.log",
        said=r"Starting Spark master at spark://[\d.]+:\d+",
        env=spark_environment(python),
    )
    workers: list[SparkProcess] = []
    try:
        address = ADDRESS.search(master.wait())
        assert address is not None
        for host in HOSTS:
            place = folder / host
            place.mkdir()
            workers.append(
                SparkProcess(
                    "spark-class",
                    "org.apache.spark.deploy.worker.Worker",
                    *("--host", host, "--webui-port", "0", "--cores", "2", "--memory", "2g"),
                    *("--work-dir", str(place), address[0]),
                    output=folder / f"{host}.log",
                    said="Successfully registered with master",
                    env=spark_environment(python, SPARK_LOCAL_IP=host),
                )
            )
        for worker in workers:
            worker.wait()
        yield address[0]
    finally:
        for process in (*workers, master):
            process.stop()
