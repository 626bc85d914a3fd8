"""Workers on both brokers. Time is real here: what can be tested with a turned clock is in tests/integration."""

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from threading import Thread
from typing import Any

import pytest

from headrace.client.admin import Admin
from headrace.worker import Queue
from tests.conformance.conftest import BrokerUnderTest
from tests.conformance.share.conftest import headrace
from tests.conformance.steps import wait_for

__all__ = ["headrace"]

START_S = 30.0


@pytest.fixture
def admin(broker: BrokerUnderTest) -> Iterator[Admin]:
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        yield admin


@pytest.fixture
def queue(broker: BrokerUnderTest, admin: Admin, unique: str) -> Iterator[Queue]:
    """A queue whose group is `unique`; the topics `unique` and `unique.dead` are there."""
    admin.create_topic(unique, partitions=2)
    admin.create_topic(f"{unique}.dead", partitions=1)
    with Queue(broker.bootstrap_servers, group_id=unique, drain_timeout=5) as queue:
        yield queue


class Worker:
    """A queue at work on a thread of its own."""

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self._started: Future[None] = Future()
        self._ended: Future[None] = Future()
        Thread(target=self._run, daemon=True).start()
        self._started.result(START_S)

    def _run(self) -> None:
        try:
            asyncio.run(self.queue.run_async(on_started=lambda: self._started.set_result(None)))
        except BaseException as error:
            (self._ended if self._started.done() else self._started).set_exception(error)
        else:
            self._ended.set_result(None)

    def wait_for(self, **wanted: int) -> Any:
        """Until the metrics of the only task are these, or more."""

        def look() -> bool:
            (metrics,) = self.queue.metrics().values()
            return all(getattr(metrics, name) >= least for name, least in wanted.items())

        wait_for(look, timeout_s=START_S)
        return next(iter(self.queue.metrics().values()))

    def stop(self) -> None:
        self.queue.stop()
        self._ended.result(START_S)


@pytest.fixture
def work() -> Iterator[Callable[[Queue], Worker]]:
    workers: list[Worker] = []

    def start(queue: Queue) -> Worker:
        workers.append(Worker(queue))
        return workers[-1]

    yield start
    for worker in workers:
        if worker.queue.crew is not None:
            worker.stop()
