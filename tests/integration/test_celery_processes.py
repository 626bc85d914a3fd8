"""`celery worker` as programs, with a pool of processes: stopped, and killed with -9."""

import os
import signal
import subprocess
import sys
from collections import Counter

import kombu
import pytest

from headrace import Broker
from tests.conformance.steps import wait_for
from tests.integration import celery_shop
from tests.integration.test_celery import held


class Workers:
    """Real workers, each in a process group of its own, and what their tasks have noted."""

    def __init__(self, broker, folder):
        self.broker = broker
        self.url = f"headrace://{broker.bootstrap_servers}/shop"
        self.notes, self.gate, self._log = folder / "notes", folder / "gate", folder / "log"
        self.notes.touch()
        self._running = []

    def start(self, *options):
        command = [
            sys.executable,
            "-W",
            "ignore",
            "-m",
            "celery",
            "-A",
            "tests.integration.celery_shop",
            "worker",
        ]
        with self._log.open("a") as log:
            process = subprocess.Popen(
                [*command, "--concurrency=2", "--loglevel=INFO", *options],
                env={**os.environ, "SHOP_BROKER": self.url}, start_new_session=True, stdout=log, stderr=log,
            )  # fmt: skip
        self._running.append(process)
        return process

    def send(self, task, *arguments):
        with kombu.Connection(self.url) as connection:
            task.apply_async((str(self.notes), *arguments), connection=connection)

    def noted(self):
        return self.notes.read_text().splitlines()

    def wait_for_note(self, text):
        try:
            wait_for(lambda: text in self.noted(), timeout_s=90)
        except AssertionError:
            raise AssertionError(
                f"no {text!r} in {self.noted()}; the workers say:\n{self._log.read_text()}"
            ) from None

    def kill_all(self):
        for process in self._running:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


@pytest.fixture
def workers(tmp_path):
    with Broker() as broker:
        workers = Workers(broker, tmp_path)
        yield workers
        workers.kill_all()


def test_the_tasks_of_a_worker_that_is_killed_run_elsewhere(workers):
    workers.send(celery_shop.hold, "long", str(workers.gate))
    for number in range(10):
        workers.send(celery_shop.note, str(number))
    workers.start()
    workers.wait_for_note("long begins")
    workers.kill_all()
    workers.gate.touch()
    workers.start()
    workers.wait_for_note("long ends")
    for number in range(10):
        workers.wait_for_note(str(number))
    wait_for(lambda: held(workers.broker, "shop", "shop.celery") == 0)
    assert Counter(workers.noted())["long begins"] == 2


def test_a_worker_that_is_asked_to_stop_finishes_what_runs(workers):
    """Its processes end after each task, so that new ones are forked while the transport's thread runs."""
    worker = workers.start("--max-tasks-per-child=1")
    for number in range(4):
        workers.send(celery_shop.send_on, str(number))
    for number in range(4):
        workers.wait_for_note(str(number))
    workers.send(celery_shop.hold, "long", str(workers.gate))
    workers.wait_for_note("long begins")
    worker.terminate()
    workers.gate.touch()
    assert worker.wait(60) == 0
    assert sorted(workers.noted()) == ["0", "1", "2", "3", "long begins", "long ends"]
    with kombu.Connection(workers.url) as connection:
        assert connection.default_channel.queue_declare("celery", passive=True).message_count == 0
