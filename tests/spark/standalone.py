"""A Spark standalone cluster on this machine: a master, two workers, and on request a Connect server in front of it.

Its processes know only what they are given: their Python is a wrapper that does not read .pth files, so the editable
install of this checkout is not there unless a test brings the package.
"""

import os
import re
import sys
import sysconfig
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pyspark

from headrace.testing.child_process import ChildProcess
from headrace.testing.java import find_java

WORKERS = 2
START_S_MAX = 60
JARS = Path(pyspark.__file__).parent / "jars"
ADDRESS = re.compile(r"spark://[\w.\-]+:\d+")


def bare_python(folder: Path) -> Path:
    """An interpreter with every package of ours but Headrace itself."""
    wrapper = folder / "bare-python"
    packages = sysconfig.get_path("purelib")
    wrapper.write_text(f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{packages}" exec "{sys.executable}" -S "$@"\n')
    wrapper.chmod(0o755)
    return wrapper


def spark_environment(python: Path, **more: str) -> dict[str, str]:
    """For a process of Spark's that shall not inherit how this one finds its modules."""
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "SPARK_HOME")}
    return kept | {"JAVA_HOME": str(find_java().home), "PYSPARK_PYTHON": str(python), **more}


class SparkProcess:
    """A daemon of Spark's own, and the line it says when it is there."""

    def __init__(self, main: str, *arguments: str, folder: Path, said: str, env: Mapping[str, str]) -> None:
        self.log = folder / f"{main.rsplit('.', 1)[-1]}-{time.monotonic_ns()}.log"
        command = [str(find_java().executable), "-Xmx512m", "-cp", f"{JARS}/*", main, *arguments]
        self._said = re.compile(said)
        self.process = ChildProcess(command, output=self.log, env=dict(env), cwd=folder)

    def wait(self) -> str:
        deadline = time.monotonic() + START_S_MAX
        while (found := self._said.search(self.log.read_text(errors="replace"))) is None:
            assert self.process.is_running and time.monotonic() < deadline, self.log.read_text()[-3000:]
            time.sleep(0.1)  # a process tells by its log alone that it is ready
        return found[0]

    def stop(self) -> None:
        self.process.stop(10)


@contextmanager
def standalone_cluster(folder: Path, *, env: Mapping[str, str]) -> Iterator[tuple[str, list[SparkProcess]]]:
    """The master's address, and the workers."""
    quiet = {**env, "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_NO_DAEMONIZE": "1"}
    master = SparkProcess(
        "org.apache.spark.deploy.master.Master",
        *("--host", "127.0.0.1", "--port", "0", "--webui-port", "0"),
        folder=folder,
        said=r"Starting Spark master at spark://127.0.0.1:\d+",
        env=quiet,
    )
    workers: list[SparkProcess] = []
    try:
        found = ADDRESS.search(master.wait())
        assert found is not None
        for number in range(WORKERS):
            place = folder / f"worker-{number}"
            place.mkdir()
            workers.append(
                SparkProcess(
                    "org.apache.spark.deploy.worker.Worker",
                    *("--host", "127.0.0.1", "--webui-port", "0", "--cores", "1", "--memory", "1g"),
                    *("--work-dir", str(place), found[0]),
                    folder=place,
                    said="Successfully registered with master",
                    env=quiet,
                )
            )
        for worker in workers:
            worker.wait()
        yield found[0], workers
    finally:
        for process in (*workers, master):
            process.stop()
