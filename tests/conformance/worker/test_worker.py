"""Tasks on Headrace's broker and on Apache Kafka: everything is done once, retries are free, the dead are kept."""

import asyncio
import threading
from collections import Counter

from aiokafka import AIOKafkaConsumer

from headrace.client.delivery import Delivery
from headrace.worker import Backoff, Queue, Reject
from tests.conformance.steps import wait_for


def read(servers: str, topic: str, count: int) -> list[dict[str, str]]:
    """Headers of a topic's records, with an ordinary client."""

    async def consume() -> list[dict[str, str]]:
        consumer = AIOKafkaConsumer(topic, bootstrap_servers=servers, auto_offset_reset="earliest")
        await consumer.start()
        try:
            found = [await asyncio.wait_for(consumer.getone(), 15) for _ in range(count)]
            return [{name: value.decode() for name, value in record.headers} for record in found]
        finally:
            await consumer.stop()

    return asyncio.run(consume())


def lag(admin, group: str) -> int | None:
    """None while no partition's is known; one that has never had a record has none."""
    lags = [offset.lag for offset in admin.share_group_offsets(group).values() if offset.lag is not None]
    return sum(lags) if lags else None


def test_every_record_is_done_once_and_the_group_has_no_backlog(queue, work, admin, unique):
    done: Counter[int] = Counter()

    @queue.task(unique, concurrency=20)
    async def count(number: int) -> None:
        await asyncio.sleep(0.001)  # the task's work, so that tasks overlap
        done[number] += 1

    for number in range(200):
        queue.send(unique, number, key=str(number))
    worker = work(queue)
    worker.wait_for(succeeded=200)
    worker.stop()

    assert done == Counter(range(200))
    wait_for(lambda: lag(admin, unique) == 0)


def test_retries_hold_the_record_beyond_its_lock_and_spend_no_delivery(queue, work, admin, unique):
    admin.set_group_config(unique, {"share.record.lock.duration.ms": 3_000})
    deliveries = []

    @queue.task(unique, retries=Backoff(first=2.5, most=2.5, jitter=0))
    async def fail_twice(body: bytes, delivery: Delivery) -> None:
        deliveries.append(delivery.delivery_count)
        if len(deliveries) < 3:
            raise ConnectionError("away")

    queue.send(unique, b"x")
    metrics = work(queue).wait_for(succeeded=1)

    assert deliveries == [1, 1, 1]
    assert (metrics.received, metrics.retried, metrics.lost) == (1, 2, 0)


def test_a_task_longer_than_its_lock_runs_once(queue, work, admin, unique):
    admin.set_group_config(unique, {"share.record.lock.duration.ms": 3_000})
    runs = []

    @queue.task(unique, concurrency=4)
    def long(body: bytes) -> None:
        runs.append(body)
        threading.Event().wait(4)

    queue.send(unique, b"x")
    metrics = work(queue).wait_for(succeeded=1)

    assert (len(runs), metrics.received, metrics.lost) == (1, 1, 0)


def test_dead_letters_are_written_before_their_records_are_rejected(queue, work, broker, admin, unique):
    @queue.task(unique, retries=Backoff(first=0.01, most=0.01, tries=2), dead_letter=f"{unique}.dead")
    async def judge(body: dict) -> None:
        if "reject" in body:
            raise Reject("as asked")
        raise ValueError("broken")

    queue.send(unique, {"reject": True}, key="a")
    queue.send(unique, {}, key="b")
    queue.send(unique, b"garbage", key="c")
    work(queue).wait_for(dead_lettered=3)

    letters = read(broker.bootstrap_servers, f"{unique}.dead", 3)
    assert sorted(letter["headrace.dlq.cause"] for letter in letters) == [
        "exhausted",
        "rejected",
        "unreadable",
    ]
    assert {letter["__dlq.errors.group"] for letter in letters} == {unique}
    wait_for(lambda: lag(admin, unique) == 0)


def test_two_workers_share_one_partition_and_none_hoards(queue, work, broker, admin, unique):
    topic = f"{unique}-one"
    admin.create_topic(topic, partitions=1)
    running = [0, 0]
    both_full = threading.Event()
    queues = [Queue(broker.bootstrap_servers, group_id=unique, drain_timeout=5) for _ in range(2)]

    def declare(index: int) -> None:
        @queues[index].task(topic, concurrency=5)
        def hold(number: int) -> None:
            running[index] += 1
            if running[0] >= 5 and running[1] >= 5:
                both_full.set()
            both_full.wait(30)

    for index in (0, 1):
        declare(index)
    workers = [work(each) for each in queues]
    for number in range(10):
        queue.send(topic, number)

    assert both_full.wait(30), f"one had it all: {running}"
    for worker in workers:
        worker.wait_for(succeeded=5)


def test_a_drained_worker_leaves_its_records_to_the_next(queue, work, broker, unique):
    first_seen = threading.Event()

    @queue.task(unique, retries=Backoff(first=50, most=50))
    async def fail(body: bytes) -> None:
        first_seen.set()
        raise ConnectionError("away")

    queue.send(unique, b"x")
    worker = work(queue)
    worker.wait_for(waiting=1)
    worker.stop()

    seen = []
    with Queue(broker.bootstrap_servers, group_id=unique) as other:

        @other.task(unique)
        async def take(body: bytes, delivery: Delivery) -> None:
            seen.append((body, delivery.delivery_count))

        work(other).wait_for(succeeded=1)

    assert first_seen.is_set()
    assert seen == [(b"x", 2)]


def test_a_topic_that_the_broker_creates_by_itself_is_waited_for(queue, unique):
    assert queue.send(f"{unique}-new", b"x").offset == 0
    sent = queue.send_many(f"{unique}-newer", [b"x"] * 1_200)
    assert sorted(each.offset for each in sent) == list(range(1_200))
