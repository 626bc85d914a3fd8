"""`headrace worker` as a process: it says when it works, drains at SIGTERM, hurries at the second, and leaves nothing
locked behind."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headrace import Broker
from headrace.share.states import RecordState
from headrace.worker import Queue
from tests.conformance.steps import wait_for

WAIT_S = 60.0
MODULE = """
import asyncio, os, pathlib, time
from headrace.worker import Backoff, Queue

queue = Queue("localhost:1", group_id="workers", drain_timeout=600)
folder = pathlib.Path(__file__).parent

def note(name):
    (folder / name).touch()

@queue.task("jobs", concurrency=4, retries=Backoff(first=50, most=50))
async def work(job: str) -> None:
    note(f"begun-{job}-{os.getpid()}")
    if job.startswith("fails"):
        raise ConnectionError("away")
    while job.startswith("waits") and not (folder / "go-on").exists():
        await asyncio.sleep(0.01)  # the pace of looking: the test is another process
    note(f"done-{job}")
"""


class Worker:
    def __init__(self, folder: Path, servers: str, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "headrace", "worker", "jobs_module:queue", "-b", servers, *arguments],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )

    @property
    def pid(self) -> int:
        return self.process.pid

    def first_line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def end(self) -> tuple[int, str, str]:
        out, err = self.process.communicate(timeout=WAIT_S)
        return self.process.returncode, out.strip(), err


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture
def start(tmp_path, broker):
    (tmp_path / "jobs_module.py").write_text(MODULE)
    started: list[Worker] = []

    def start(*arguments: str) -> Worker:
        started.append(Worker(tmp_path, broker.bootstrap_servers, *arguments))
        return started[-1]

    yield start
    for worker in started:
        if worker.process.poll() is None:
            worker.process.kill()
        worker.process.communicate()


@contextmanager
def sender(broker: Broker) -> Iterator[Queue]:
    with Queue(broker.bootstrap_servers, group_id="unused") as queue:
        yield queue


def counts(broker: Broker) -> dict[RecordState, int]:
    state = broker.share_state("workers")["jobs", 0]
    return {each: state.count_of(each) for each in RecordState}


def test_it_works_until_it_is_told_to_stop_and_says_what_it_did(start, broker, tmp_path):
    with sender(broker) as queue:
        for number in range(20):
            queue.send("jobs", f"quick{number}")
    worker = start()
    assert worker.first_line() == (
        f"working for group workers on {broker.bootstrap_servers}: jobs (4 at a time)"
    )
    wait_for(lambda: len(list(tmp_path.glob("done-*"))) == 20)

    worker.process.send_signal(signal.SIGTERM)
    status, out, err = worker.end()

    assert status == 0, err
    assert out == (
        "stopped: 20 received, 20 succeeded, 0 retried, 0 dead-lettered, 0 discarded, 0 released, 0 lost"
    )
    assert "Traceback" not in err


def test_sigterm_finishes_what_runs_and_releases_what_waits(start, broker, tmp_path):
    with sender(broker) as queue:
        queue.send("jobs", "waits1")
        queue.send("jobs", "fails1")
    worker = start()
    wait_for(lambda: list(tmp_path.glob("begun-waits1-*")) and list(tmp_path.glob("begun-fails1-*")))

    worker.process.send_signal(signal.SIGTERM)
    wait_for(lambda: counts(broker)[RecordState.AVAILABLE] == 1)  # released while the other still runs
    (tmp_path / "go-on").touch()
    status, out, err = worker.end()

    assert status == 0, err
    assert "1 succeeded" in out
    assert "1 released" in out
    assert counts(broker)[RecordState.ACQUIRED] == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_does_not_wait(start, broker, tmp_path, number):
    with sender(broker) as queue:
        queue.send("jobs", "waits1")
        queue.send("jobs", "fails1")
    worker = start()
    wait_for(lambda: list(tmp_path.glob("begun-waits1-*")) and list(tmp_path.glob("begun-fails1-*")))

    worker.process.send_signal(number)  # two signals at once are one, so wait until the first is heard
    wait_for(lambda: counts(broker)[RecordState.AVAILABLE] == 1)
    worker.process.send_signal(number)
    status, out, err = worker.end()

    assert status == 0, err
    assert "2 released" in out
    wait_for(lambda: counts(broker)[RecordState.AVAILABLE] == 2)


def test_two_workers_share_the_records_of_one_partition(start, broker, tmp_path):
    workers = [start(), start()]
    for worker in workers:
        assert worker.first_line().startswith("working for group")
    with sender(broker) as queue:
        for number in range(8):
            queue.send("jobs", f"waits{number}")

    # Four at a time in each: both must be busy, though one could have fetched all of them.
    begun = wait_for(lambda: len(found := list(tmp_path.glob("begun-*"))) == 8 and found)
    pids = [int(re.fullmatch(r"begun-waits\d-(\d+)", path.name)[1]) for path in begun]
    (tmp_path / "go-on").touch()

    assert {pids.count(worker.pid) for worker in workers} == {4}


def test_a_killed_workers_records_go_to_the_others(start, broker, tmp_path):
    with sender(broker) as queue:
        queue.send("jobs", "waits1")
    first = start()
    wait_for(lambda: list(tmp_path.glob(f"begun-waits1-{first.pid}")))
    second = start()
    assert second.first_line().startswith("working")
    first.process.kill()

    wait_for(lambda: list(tmp_path.glob(f"begun-waits1-{second.pid}")))
    (tmp_path / "go-on").touch()
    wait_for(lambda: (tmp_path / "done-waits1").exists())


def test_no_broker_is_an_error_that_names_the_address(start, tmp_path):
    worker = start("-b", "127.0.0.1:1", "-X", "default.api.timeout.ms=500")
    status, _, err = worker.end()

    assert status == 1
    assert "127.0.0.1:1" in err
