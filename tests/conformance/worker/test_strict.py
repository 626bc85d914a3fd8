"""Strict order by key on Headrace's broker and on Apache Kafka, while workers come and go."""

import asyncio
import threading
import time
from collections import Counter

from headrace.worker import Backoff, Queue, Reject
from tests.conformance.steps import wait_for
from tests.key_order import RunEvent, done_of, violations

KEYS = 10


def declare(servers: str, unique: str, index: int, events: list[RunEvent]) -> Queue:
    queue = Queue(servers, group_id=unique, drain_timeout=20)

    @queue.task(unique, key_order="strict", concurrency=50)
    async def work(step: list[int]) -> None:
        events.append(RunEvent(time.monotonic(), "begin", index, *step))
        await asyncio.sleep(0.005)  # the work, so that a rebalance finds some running
        events.append(RunEvent(time.monotonic(), "end", index, *step))

    return queue


def send(queue: Queue, topic: str, first: int, last: int) -> None:
    steps = [[key, number] for number in range(first, last) for key in range(KEYS)]
    queue.send_many(topic, steps, key=lambda step: str(step[0]))


def test_every_record_runs_once_in_order_while_workers_come_and_go(queue, work, broker, unique):
    events: list[RunEvent] = []
    queues = [declare(broker.bootstrap_servers, unique, index, events) for index in range(3)]
    send(queue, unique, 0, 30)
    first = work(queues[0])
    wait_for(lambda: len(events) > 50)
    work(queues[1])
    send(queue, unique, 30, 60)
    wait_for(lambda: queues[1].crew.runners[0].strict.partitions)
    first.stop()
    work(queues[2])
    send(queue, unique, 60, 90)
    wait_for(lambda: len(done_of(events)) == KEYS * 90)
    assert violations(events) == []
    assert Counter(event.what for event in events) == {"begin": KEYS * 90, "end": KEYS * 90}


def test_what_was_completed_out_of_order_is_not_run_again(queue, work, broker, unique):
    seen: list[tuple[int, int]] = []
    stuck = threading.Event()
    stuck.set()

    def one() -> Queue:
        own = Queue(broker.bootstrap_servers, group_id=unique, drain_timeout=0)

        @own.task(unique, key_order="strict", concurrency=50, waiting=10_000)
        async def handle(step: list[int]) -> None:
            if stuck.is_set() and step[0] == 0:
                await asyncio.Event().wait()
            seen.append((step[0], step[1]))

        return own

    send(queue, unique, 0, 30)
    first = work(one())
    first.wait_for(succeeded=(KEYS - 1) * 30)
    first.stop()
    stuck.clear()
    second = work(one())
    second.wait_for(succeeded=30)
    assert seen[(KEYS - 1) * 30 :] == [(0, number) for number in range(30)]
    assert len(seen) == KEYS * 30


def test_retries_and_dead_letters(queue, work, unique):
    runs: list[str] = []

    @queue.task(
        unique,
        key_order="strict",
        dead_letter=f"{unique}.dead",
        retries=Backoff(first=0.1, most=0.1, tries=2),
    )
    def handle(word: str) -> None:
        runs.append(word)
        if word == "reject":
            raise Reject("no")
        if word == "fail":
            raise RuntimeError("always")

    for word in ("reject", "fail", "good"):
        queue.send(unique, word, key="one key")
    metrics = work(queue).wait_for(succeeded=1, dead_lettered=2)
    assert runs == ["reject", "fail", "fail", "good"]
    assert metrics.retried == 1
