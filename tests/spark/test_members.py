"""A query among other members of its group: what each of them gets, while all live, when one joins and leaves.

Every kind of member there is takes part: a second query, our share consumer, a worker's queue, and Apache Kafka's own
share consumer for Java. What a member has taken and accepted counts as its effect; together they must have every
record exactly once.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from headrace import Broker, ShareConsumer
from headrace.share.states import RecordState
from headrace.worker import Queue as Tasks
from tests.share_consumers import JavaRuntime, JavaShareConsumer, java_runtime
from tests.spark.conftest import Effects, Queue, finish, make_queue, wait_for

pytestmark = pytest.mark.timeout(240)
SHORT_MS = 1_000
BACKLOG = 1_500
ENOUGH = 20
"""So many records show that a member takes part."""
MODES = pytest.mark.parametrize("acknowledge", ["commit", "handoff"])


@pytest.fixture
def queue(request: pytest.FixtureRequest, unique: str, tmp_path: Path) -> Queue:
    """On our broker, unless the test names another."""
    broker = request.getfixturevalue(getattr(request, "param", "broker"))
    return make_queue(broker.bootstrap_servers, unique, tmp_path / "queue")


@pytest.fixture(scope="module")
def java() -> Iterator[JavaRuntime]:
    with java_runtime() as runtime:
        yield runtime


def start(stream: DataFrame, effects: Callable[[DataFrame, int], None], checkpoint: str) -> Any:
    return stream.writeStream.foreachBatch(effects).option("checkpointLocation", checkpoint).start()


def free_records(broker: Broker, group: str) -> int:
    """How many records another member could have at once."""
    states = broker.share_state(group).values()
    waiting = sum(state.count_of(RecordState.AVAILABLE) for state in states)
    return waiting + sum(state.log_end_offset - (state.next_offset or 0) for state in states)


@MODES
def test_no_other_member_gets_a_record_while_its_query_lives_and_renews(
    spark: SparkSession, broker: Broker, queue: Queue, effects: Effects, acknowledge: str
) -> None:
    with queue.admin() as admin:
        admin.set_group_config(queue.group, {"share.record.lock.duration.ms": SHORT_MS})
    queue.send(100)
    entered, may_go_on = threading.Event(), threading.Event()

    def work_long(batch: DataFrame, batch_id: int) -> None:
        effects(batch, batch_id)
        entered.set()
        assert may_go_on.wait(60)

    # Of 100 records the micro-batch has 30; locks on the others are held for the next ones.
    query = start(
        queue.stream(spark, acknowledge=acknowledge, maxRecordsPerTrigger=30), work_long, queue.checkpoint
    )
    try:
        wait_for(entered.is_set)
        wait_for(lambda: free_records(broker, queue.group) == 0)
        with ShareConsumer(group_id=queue.group, bootstrap_servers=queue.bootstrap_servers) as hungry:
            hungry.subscribe([queue.topic])
            began = time.monotonic()
            while time.monotonic() - began < 5 * SHORT_MS / 1000:  # that nothing comes cannot be waited for
                assert hungry.poll(0.2) == []
            may_go_on.set()
            wait_for(lambda: len(effects.rows) == 100)
            wait_for(lambda: queue.lag() == 0)
            assert hungry.poll(0.2) == []
            query.stop()
            queue.send(10)
            wait_for(lambda: bool(hungry.poll(0.2)))  # it would have taken what there was
    finally:
        may_go_on.set()
        query.stop()
    assert effects.numbers == list(range(100))
    assert {row["deliveryCount"] for row in effects.rows} == {1}


class Polled:
    """A share consumer of either client that takes when it is asked to, and accepts what it takes."""

    def __init__(self, poll: Callable[[], list[Any]], accept: Callable[[Any], object]) -> None:
        self.numbers: list[int] = []
        self._poll, self._accept = poll, accept

    def take(self) -> int:
        for delivery in self._poll():
            self._accept(delivery)
            self.numbers.append(int(delivery.value))
        return len(self.numbers)


@contextmanager
def own_consumer(queue: Queue) -> Iterator[Polled]:
    with ShareConsumer(
        group_id=queue.group,
        bootstrap_servers=queue.bootstrap_servers,
        share_acknowledgement_mode="explicit",
        max_poll_records=10,
    ) as consumer:
        consumer.subscribe([queue.topic])
        yield Polled(lambda: consumer.poll(0.1), consumer.acknowledge)
        assert not any(consumer.commit_sync().values())


@contextmanager
def java_consumer(queue: Queue, runtime: JavaRuntime) -> Iterator[Polled]:
    consumer = JavaShareConsumer(
        runtime,
        queue.bootstrap_servers,
        queue.group,
        queue.topic,
        share_acknowledgement_mode="explicit",
        max_poll_records=10,
    )
    try:
        yield Polled(lambda: consumer.poll(0.1), consumer.acknowledge)
        assert not any(consumer.commit().values())
    finally:
        consumer.close()


class Worker:
    """A worker's queue in a thread of its own."""

    def __init__(self, queue: Queue) -> None:
        self.numbers: list[int] = []
        self._tasks = Tasks(queue.bootstrap_servers, group_id=queue.group)

        @self._tasks.task(queue.topic, concurrency=4)
        async def take(number: int) -> None:
            self.numbers.append(number)

        self._thread = threading.Thread(target=lambda: asyncio.run(self._tasks.run_async()))

    def take(self) -> int:
        return len(self.numbers)

    def __enter__(self) -> "Worker":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._tasks.stop()
        self._thread.join(30)
        self._tasks.close()
        assert not self._thread.is_alive()


@contextmanager
def flow(queue: Queue, taken: Callable[[], int]) -> Iterator[None]:
    """Sends as fast as the members take."""
    is_over = threading.Event()

    def send() -> None:
        while not is_over.wait(0.02):
            if queue.sent - taken() < BACKLOG:
                queue.send(50)

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join(30)


@pytest.mark.needs_kafka
@pytest.mark.parametrize(
    ("queue", "acknowledge"),
    [
        ("broker", "commit"),
        pytest.param("broker", "handoff", marks=pytest.mark.thorough),
        pytest.param("apache", "commit", marks=pytest.mark.thorough),
    ],
    indirect=["queue"],
)
def test_members_of_every_kind_join_and_leave_while_micro_batches_run(
    spark: SparkSession, java: JavaRuntime, queue: Queue, effects: Effects, acknowledge: str
) -> None:
    second = Effects()
    members: list[Any] = []

    def taken() -> list[int]:
        return [
            *effects.numbers,
            *second.numbers,
            *(number for each in members for number in each.numbers),
        ]

    def stream(checkpoint: str) -> DataFrame:
        return queue.stream(
            spark, acknowledge=acknowledge, maxRecordsPerTrigger=100, checkpointLocation=checkpoint
        )

    query = start(stream(queue.checkpoint), effects, queue.checkpoint)
    try:
        with flow(queue, lambda: len(taken())):
            wait_for(lambda: bool(effects.rows))
            for join in (own_consumer, lambda queue: java_consumer(queue, java), Worker):
                with join(queue) as member:
                    members.append(member)
                    wait_for(lambda: members[-1].take() >= ENOUGH)
            with own_consumer(queue) as staying:
                members.append(staying)
                other = str(queue.folder / "second")
                joined = stream(other).writeStream.foreachBatch(second).option("checkpointLocation", other)
                joined = joined.trigger(availableNow=True)
                wait_for(lambda: finish(joined.start()) is not None and bool(second.rows))
                wait_for(lambda: staying.take() >= ENOUGH)
        wait_for(lambda: len(taken()) >= queue.sent)
        wait_for(lambda: queue.lag() == 0)
    finally:
        query.stop()
    assert sorted(taken()) == list(range(queue.sent))
