"""Limits of a group on Headrace's broker and on Apache Kafka: never more at a time, however many workers there are."""

import threading
from collections import Counter
from time import monotonic, sleep

from headrace.worker import Queue
from tests.conformance.steps import wait_for

LIMIT = 3


class Gauge:
    def __init__(self):
        self._lock = threading.Lock()
        self.now = self.most = 0
        self.done: Counter[int] = Counter()
        self.starts: list[float] = []
        self.workers: set[int] = set()

    def run(self, worker: int, number: int) -> None:
        with self._lock:
            self.starts.append(monotonic())
            self.workers.add(worker)
            self.now += 1
            self.most = max(self.most, self.now)
        sleep(0.01)  # the work, so that runs overlap
        with self._lock:
            self.now -= 1
            self.done[number] += 1


def declare(servers, group, topic, gauge, index, **options):
    queue = Queue(servers, group_id=group, drain_timeout=5)

    @queue.task(topic, **options)
    def work(number: int) -> None:
        gauge.run(index, number)

    return queue


def test_a_limit_holds_over_all_workers_while_they_come_and_go(queue, work, broker, unique):
    gauge = Gauge()
    queues = [
        declare(broker.bootstrap_servers, unique, unique, gauge, index, limit=LIMIT, concurrency=8)
        for index in range(3)
    ]
    queue.send_many(unique, range(300), key=str)
    first = work(queues[0])
    wait_for(lambda: len(gauge.done) >= 20, timeout_s=60)
    work(queues[1])
    wait_for(lambda: 1 in gauge.workers or len(gauge.done) == 300, timeout_s=60)
    first.stop()
    work(queues[2])
    queue.send_many(unique, range(300, 600), key=str)
    wait_for(lambda: len(gauge.done) == 600, timeout_s=120)

    assert gauge.most == LIMIT
    assert gauge.done == Counter(range(600))
    assert len(gauge.workers) >= 2


def test_a_group_rate_holds_over_all_workers(queue, work, broker, unique):
    gauge = Gauge()
    queues = [
        declare(broker.bootstrap_servers, unique, unique, gauge, index, group_rate="60/s", concurrency=8)
        for index in range(2)
    ]
    queue.send_many(unique, range(120), key=str)
    for each in queues:
        work(each)
    wait_for(lambda: len(gauge.done) == 120, timeout_s=120)

    starts = sorted(gauge.starts)
    for first, began in enumerate(starts):
        within = [each for each in starts[first:] if each - began <= 1.0]
        assert len(within) <= 60 + 12 + 12, (
            "the rate, a burst of each worker, and a slow machine's late starts"
        )
    assert gauge.done == Counter(range(120))
