"""A worker lives through its broker's restarts: nothing is left undone, and what could not be helped is counted."""

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer

from headrace import Broker
from headrace.client.errors import KafkaError
from headrace.worker import Backoff, Queue, QueueError, Reject
from tests.conformance.steps import wait_for

WAIT_S = 60.0


@contextmanager
def working(queue: Queue) -> Iterator[None]:
    ended: Future[None] = Future()
    started = threading.Event()

    def run() -> None:
        try:
            asyncio.run(queue.run_async(on_started=started.set))
            ended.set_result(None)
        except BaseException as error:
            ended.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    wait_for(lambda: started.is_set() or ended.done())
    try:
        yield
    finally:
        queue.stop()
        ended.result(WAIT_S)


def test_every_record_is_done_though_the_broker_restarts_twice(tmp_path: Path):
    done: Counter[int] = Counter()
    count = 400
    with Broker(data_dir=tmp_path) as broker:
        servers = broker.bootstrap_servers
        queue = Queue(servers, group_id="workers")

        @queue.task("jobs", concurrency=20, retries=Backoff(first=0.05, most=0.05), dead_letter="jobs.dead")
        async def work(number: int) -> None:
            await asyncio.sleep(0.02)  # the task's work, so that a restart finds some running
            if number % 40 == 7:
                raise Reject("seven")
            done[number] += 1

        for number in range(count):
            queue.send("jobs", number)
        with working(queue):
            for _ in range(2):
                so_far = done.total()
                wait_for(lambda so_far=so_far: done.total() > so_far + 50)
                broker.stop()
                broker = Broker(data_dir=tmp_path, port=int(servers.rpartition(":")[2])).start()
            dead = [number for number in range(count) if number % 40 == 7]
            wait_for(lambda: len(done) == count - len(dead))
            wait_for(lambda: queue.metrics()[work.name].dead_lettered >= len(dead))
            wait_for(lambda: queue.metrics()[work.name].held == 0)
            metrics = queue.metrics()[work.name]

        twice = done.total() - len(done)
        assert twice <= metrics.lost, "a record ran again that was not lost"
        assert metrics.discarded == 0
        topic = broker.core.topics.get("jobs.dead")
        assert broker.call(lambda: sum(each.log.end_offset for each in topic.partitions)) >= len(dead)
        queue.close()
        broker.stop()


def test_a_group_that_is_no_share_group_ends_the_worker_with_an_error():
    with Broker() as broker, Queue(broker.bootstrap_servers, group_id="taken") as queue:
        queue.send("jobs", 1)
        settings = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "taken"}
        consumer = Consumer({**settings, "auto.offset.reset": "earliest"})
        consumer.subscribe(["jobs"])
        assert consumer.poll(WAIT_S).error() is None

        @queue.task("jobs")
        async def work(number: int) -> None: ...

        with pytest.raises(KafkaError, match="taken is not a share group"):
            asyncio.run(asyncio.wait_for(queue.run_async(), WAIT_S))
        consumer.close()


def test_a_dead_letter_topic_that_cannot_be_is_an_error_at_the_start():
    settings = {"auto.create.topics.enable": False}
    with Broker(settings=settings) as broker, Queue(broker.bootstrap_servers, group_id="workers") as queue:
        queue.configure(settings={"request.timeout.ms": 500})  # that is how long aiokafka looks for a topic

        @queue.task("jobs", dead_letter="jobs.dead")
        async def work(number: int) -> None: ...

        with pytest.raises(QueueError, match=r"headrace topic create jobs\.dead"):
            asyncio.run(asyncio.wait_for(queue.run_async(), WAIT_S))


def test_a_queue_runs_once_at_a_time():
    with Broker() as broker, Queue(broker.bootstrap_servers, group_id="workers") as queue:

        @queue.task("jobs")
        async def work(number: int) -> None: ...

        with working(queue):
            with pytest.raises(QueueError, match="running already"):
                queue.run()
            with pytest.raises(QueueError, match="running"):
                queue.configure(bootstrap_servers="elsewhere:9092")


def test_a_stop_before_any_broker_was_reached_is_heard():
    queue = Queue("127.0.0.1:1", group_id="workers")

    @queue.task("jobs")
    async def work(number: int) -> None: ...

    async def run_and_stop() -> None:
        running = asyncio.create_task(queue.run_async())
        while queue.crew is None:  # noqa: ASYNC110
            await asyncio.sleep(0)
        queue.stop()
        await asyncio.wait_for(running, WAIT_S)

    asyncio.run(run_and_stop())

    assert queue.metrics() == {}
