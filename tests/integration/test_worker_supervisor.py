"""`headrace worker` with several processes, several queues, and --reload."""

import os
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager

import httpx
import pytest

from headrace import Broker
from headrace.worker import Queue
from tests.conformance.steps import wait_for

WAIT_S = 120
MODULE = """
import os, pathlib
from headrace.worker import Queue

queue = Queue("localhost:1", group_id="first")
other = Queue("localhost:1", group_id="second")

@queue.task("jobs", dead_letter="jobs.dead")
def work(job: str) -> None:
    (pathlib.Path(__file__).parent / f"done-{job}-{os.getpid()}").touch()

@other.task("other", dead_letter="jobs.dead")
def work_other(job: str) -> None:
    (pathlib.Path(__file__).parent / f"done-{job}-{os.getpid()}").touch()
"""


@pytest.fixture
def broker():
    with Broker() as broker:
        yield broker


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "supervised_jobs.py").write_text(MODULE)
    return tmp_path


class Output:
    """What a process prints, line by line as it comes."""

    def __init__(self, stream) -> None:
        self.lines: list[str] = []
        self._thread = threading.Thread(target=self._read, args=(stream,), daemon=True)
        self._thread.start()

    def _read(self, stream) -> None:
        with stream:
            for line in stream:
                self.lines.append(line)

    def close(self) -> None:
        self._thread.join(WAIT_S)

    def count(self, text: str) -> int:
        return sum(text in line for line in self.lines)

    def wait_for(self, text: str, count: int = 1) -> None:
        wait_for(lambda: self.count(text) >= count, timeout_s=WAIT_S)


@contextmanager
def started(folder, broker, *arguments):
    process = subprocess.Popen(
        [sys.executable, "-m", "headrace", "worker", *arguments, "-b", broker.bootstrap_servers],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    output = Output(process.stdout)
    try:
        yield process, output
    finally:
        process.kill()
        process.wait()
        output.close()  # when its children have ended, too


def pids(folder) -> set[int]:
    return {int(path.name.rpartition("-")[2]) for path in folder.glob("done-*")}


def test_processes_share_the_work_and_one_that_dies_is_replaced(folder, broker):
    with started(folder, broker, "supervised_jobs:queue", "--processes", "2") as (process, output):
        output.wait_for("working for group first", 2)
        with Queue(broker.bootstrap_servers, group_id="first") as queue:
            queue.send("jobs", "one")
            wait_for(lambda: pids(folder), timeout_s=WAIT_S)
            os.kill(pids(folder).pop(), signal.SIGKILL)
            output.wait_for("ended with status -9; starting another")
            output.wait_for("working for group first", 3)
            queue.send("jobs", "two")
            wait_for(lambda: list(folder.glob("done-two-*")), timeout_s=WAIT_S)
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT_S) == 0
        output.wait_for("stopped: ", 2)
    assert output.count("Fatal Python error") == 0, output.lines


def test_processes_end_when_their_supervisor_is_killed(folder, broker):
    with started(folder, broker, "supervised_jobs:queue", "--processes", "2") as (process, output):
        output.wait_for("working for group first", 2)
        process.kill()
        output.wait_for("stopped: ", 2)


def test_a_mistake_in_the_setup_ends_all(folder, broker):
    with started(folder, broker, "supervised_jobs:queeu", "--processes", "2") as (process, output):
        assert process.wait(WAIT_S) == 1
        output.wait_for("has no 'queeu'")


def test_several_queues_run_in_one_process_with_their_metrics(folder, broker):
    places = ("supervised_jobs:queue", "supervised_jobs:other", "--http", "127.0.0.1:0")
    with started(folder, broker, *places) as (process, output):
        output.wait_for("working for group first")
        output.wait_for("working for group second")
        output.wait_for("metrics on ")
        line = next(line for line in output.lines if "metrics on " in line)
        url = line.strip().rpartition(" ")[2]
        with Queue(broker.bootstrap_servers, group_id="any") as queue:
            queue.send("jobs", "one")
            queue.send("other", "two")
        wait_for(lambda: len(list(folder.glob("done-*"))) == 2, timeout_s=WAIT_S)
        assert len(pids(folder)) == 1
        text = httpx.get(url, timeout=WAIT_S).text
        assert text.count("# TYPE headrace_worker_received") == 1
        assert 'group="first"' in text
        assert 'group="second"' in text
        status = httpx.get(f"{url.removesuffix('/metrics')}/api/v1/worker", timeout=WAIT_S).json()
        assert [each["group"] for each in status["queues"]] == ["first", "second"]
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT_S) == 0


def test_reload_starts_anew_when_a_file_changes(folder, broker):
    with started(folder, broker, "supervised_jobs:queue", "--reload") as (process, output):
        output.wait_for("working for group first")
        (folder / "supervised_jobs.py").write_text(MODULE.replace("done-", "done-anew-"))
        output.wait_for("files have changed; restarting")
        output.wait_for("working for group first", 2)
        with Queue(broker.bootstrap_servers, group_id="any") as queue:
            queue.send("jobs", "one")
        wait_for(lambda: list(folder.glob("done-anew-one-*")), timeout_s=WAIT_S)
        process.send_signal(signal.SIGINT)
        assert process.wait(WAIT_S) == 0


ENDLESS = """
import pathlib, time
from headrace.worker import Queue

queue = Queue("localhost:1", group_id="first", drain_timeout=3600)

@queue.task("jobs", dead_letter="jobs.dead")
def work(job: str) -> None:
    (pathlib.Path(__file__).parent / "done-begun-1").touch()
    time.sleep(3600)  # longer than any test
"""


def test_signals_end_a_reload_that_waits_for_a_long_function(folder, broker):
    (folder / "supervised_jobs.py").write_text(ENDLESS)
    with started(folder, broker, "supervised_jobs:queue", "--reload") as (process, output):
        output.wait_for("working for group first")
        with Queue(broker.bootstrap_servers, group_id="any") as queue:
            queue.send("jobs", "one")
        wait_for(lambda: list(folder.glob("done-begun-*")), timeout_s=WAIT_S)
        (folder / "supervised_jobs.py").write_text(ENDLESS + "\n")
        output.wait_for("files have changed; restarting")

        def is_hurried() -> bool:
            process.send_signal(signal.SIGINT)
            return output.count("is released while its function still runs") > 0

        wait_for(is_hurried, timeout_s=60)
        assert process.wait(WAIT_S) == 0
    assert output.count("working for group first") == 1
