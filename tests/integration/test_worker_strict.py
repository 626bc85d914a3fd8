"""Tasks with key_order="strict": the order of a key in a whole group of workers, whatever happens to them."""

import asyncio
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from concurrent.futures import Future
from pathlib import Path
from random import Random

import pytest
from confluent_kafka import Consumer, TopicPartition

from headrace import Broker
from headrace.client.admin import Admin
from headrace.client.cluster import Cluster
from headrace.client.producing.record import ProducerRecord
from headrace.client.producing.sync import Producer
from headrace.client.settings import ShareSettings
from headrace.client.tailing import Tail
from headrace.worker import Backoff, Batch, Breaker, Queue, Reject, Retry
from headrace.worker.completed import METADATA_CHARS, CompletedOffsets
from headrace.worker.owned import OwnedPartition
from headrace.worker.testing import QueueTest
from tests.conformance.steps import wait_for
from tests.integration import orphan_worker, strict_worker
from tests.key_order import RunEvent, done_of, violations
from tests.worker_processes import WorkerProcesses

KEYS = 12
HEARTBEATS = {
    "group.consumer.heartbeat.interval.ms": 200,
    "group.consumer.min.heartbeat.interval.ms": 100,
}
"""With a session that a slow machine does not miss."""
SHORT = {
    **HEARTBEATS,
    "group.consumer.session.timeout.ms": 4_000,
    "group.consumer.min.session.timeout.ms": 1_000,
}
"""With one that is over soon: for workers that are killed, or lose contact."""
ONCE = Backoff(first=100, most=100, jitter=0)


@pytest.fixture
def queue():
    with Queue("localhost:1", group_id="strict") as queue:
        yield queue


def by_key(seen: list[list[int]]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = defaultdict(list)
    for key, number in seen:
        found[key].append(number)
    return found


class TestOneWorker:
    def test_keys_run_side_by_side_and_each_in_order(self, queue):
        seen, now, most = [], 0, 0
        all_run = asyncio.Event()

        @queue.task("steps", key_order="strict", concurrency=100, waiting=1_000)
        async def work(step: list[int]) -> None:
            nonlocal now, most
            now += 1
            most = max(most, now)
            if most == 30:
                all_run.set()
            await all_run.wait()  # records come in several fetches
            now -= 1
            seen.append(step)

        with QueueTest(queue, partitions=2) as test:
            steps = [[key, number] for number in range(20) for key in range(30)]
            queue.send_many("steps", steps, key=lambda step: str(step[0]))
            test.run_until_idle()
            assert by_key(seen) == {key: list(range(20)) for key in range(30)}
            assert most == 30, "every key ran at the same time"
            metrics = test.metrics()[work.name]
            assert (metrics.received, metrics.succeeded, metrics.held, metrics.lost) == (600, 600, 0, 0)

    def test_a_retry_holds_its_key_and_no_other(self, queue):
        seen = []

        @queue.task("steps", key_order="strict", concurrency=8, retries=ONCE)
        async def work(step: list[int]) -> None:
            seen.append(step)
            if step == [0, 0] and seen.count(step) == 1:
                raise Retry()

        with QueueTest(queue) as test:
            for number in range(3):
                for key in range(2):
                    test.send("steps", [key, number], key=str(key))
            test.run_until_idle()
            assert by_key(seen) == {0: [0], 1: [0, 1, 2]}
            test.advance(100)
            test.run_until_idle()
            assert by_key(seen)[0] == [0, 0, 1, 2]

    def test_outcomes_are_those_of_every_task(self, queue):
        runs: Counter[str] = Counter()

        @queue.task(
            "words",
            key_order="strict",
            dead_letter="dead",
            retries=Backoff(first=60, most=60, jitter=0, tries=2),
        )
        async def work(word: str) -> None:
            runs[word] += 1
            if word == "reject":
                raise Reject("no")
            if word == "fail":
                raise RuntimeError("always")

        with QueueTest(queue) as test:
            for word in ("good", "reject", "fail", "last"):
                test.send("words", word, key="one key")
            test.run_until_idle()
            assert runs == {"good": 1, "reject": 1, "fail": 1}
            test.advance(61)
            test.run_until_idle()
            assert runs == {"good": 1, "reject": 1, "fail": 2, "last": 1}
            dead = test.dead_letters("dead")
            assert [each.value for each in dead] == [b"reject", b"fail"]
            assert [each.headers["headrace.dlq.cause"] for each in dead] == ["rejected", "exhausted"]
            metrics = test.metrics()[work.name]
            assert (metrics.succeeded, metrics.dead_lettered, metrics.retried) == (2, 2, 1)

    def test_a_run_that_takes_too_long_holds_its_key(self, queue):
        runs: Counter[str] = Counter()

        @queue.task("words", key_order="strict", timeout=100, retries=Backoff(first=900, most=900, jitter=0))
        async def work(word: str) -> None:
            runs[word] += 1
            if word == "hang" and runs[word] == 1:
                await asyncio.Event().wait()

        with QueueTest(queue) as test:
            for word in ("hang", "last"):
                test.send("words", word, key="one key")
            wait_for(lambda: runs["hang"] == 1)
            test.advance(101)
            wait_for(lambda: test.metrics()[work.name].timed_out == 1)
            assert runs == {"hang": 1}
            wait_for(lambda: test.metrics()[work.name].waiting == 1)
            test.advance(901)
            test.run_until_idle()
            assert runs == {"hang": 2, "last": 1}

    def test_a_record_that_cannot_be_read_goes_to_the_dead_letters(self, queue):
        seen = []

        @queue.task("numbers", key_order="strict", dead_letter="dead")
        def work(number: int) -> None:
            seen.append(number)

        with QueueTest(queue) as test:
            test.send("numbers", "no number", key="k")
            test.send("numbers", 7, key="k")
            test.run_until_idle()
            assert (seen, len(test.dead_letters("dead"))) == ([7], 1)

    def test_the_breaker_pauses_the_task(self, queue):
        broken, seen = True, []

        @queue.task(
            "numbers", key_order="strict", breaker=Breaker(failures=3, first=10, most=10), retries=ONCE
        )
        async def work(number: int) -> None:
            seen.append(number)
            if broken:
                raise RuntimeError("away")

        with QueueTest(queue) as test:
            queue.send_many("numbers", range(6), key=str)
            wait_for(lambda: test.metrics()[work.name].paused)
            broken = False
            test.advance(101)
            wait_for(lambda: test.metrics()[work.name].succeeded == 6)
            assert test.metrics()[work.name].paused == 0

    def test_the_types_of_a_topic_share_the_order(self, queue):
        seen = []

        @queue.task("orders", key_order="strict", type="new")
        async def create(order: int) -> None:
            seen.append(("new", order))

        @queue.task("orders", key_order="strict", type="old")
        async def delete(order: int) -> None:
            seen.append(("old", order))

        with QueueTest(queue) as test:
            for order in range(5):
                create.send(order, key="k")
                delete.send(order, key="k")
            test.run_until_idle()
        assert seen == [(kind, order) for order in range(5) for kind in ("new", "old")]

    def test_scheduled_records_come_and_aborted_ones_do_not(self, queue):
        seen = []

        @queue.task("numbers", key_order="strict")
        async def work(number: int) -> None:
            seen.append(number)

        with QueueTest(queue) as test:
            queue.send("numbers", 1, key="k", delay=60)
            test.run_until_idle()
            assert seen == []
            test.advance(61)
            test.run_until_idle()
            assert seen == [1]

    def test_a_function_cannot_settle_its_record(self, queue):
        errors = []

        @queue.task("numbers", key_order="strict")
        async def work(number: int, delivery) -> None:
            try:
                delivery.accept()
            except Exception as error:
                errors.append(str(error))

        with QueueTest(queue) as test:
            test.send("numbers", 1, key="k")
            test.run_until_idle()
            assert "return, or raise Retry or Reject" in errors[0]
            assert test.metrics()[work.name].succeeded == 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"key_order": "always"}, "key_order must be True, False or 'strict', got 'always'"),
        (
            {"key_order": "strict", "limit": 3},
            "limit must be omitted with key_order='strict', got 3",
        ),
        (
            {"key_order": "strict", "group_rate": "3/s"},
            "group_rate must be omitted with key_order='strict', got '3/s'",
        ),
    ],
)
def test_what_is_not_possible_is_refused(queue, options, words):
    def work(number: int) -> None: ...

    with pytest.raises(ValueError, match=words):
        queue.task("numbers", **options)(work)


def test_batches_are_refused(queue):
    def work(numbers: list[int]) -> None: ...

    with pytest.raises(ValueError, match=r"batch must be omitted with key_order='strict', got Batch\("):
        queue.task("numbers", batch=Batch(), key_order="strict")(work)


class Worker:
    """A queue at work on a thread, which notes its runs."""

    def __init__(self, servers: str, index: int, events: list[RunEvent], **options) -> None:
        self.queue = Queue(servers, group_id="strict", drain_timeout=20)
        self.index, self._events = index, events
        self.gate = threading.Event()
        self.gate.set()

        @self.queue.task("steps", key_order="strict", concurrency=100, **options)
        async def work(step: list[int]) -> None:
            self._note("begin", step)
            try:
                await asyncio.sleep(0.002)  # the work, so that a rebalance finds some running
                if not self.gate.is_set():
                    await asyncio.to_thread(self.gate.wait)
            except BaseException:
                self._note("stop", step)
                raise
            self._note("end", step)

        self.task = work
        self._ended: Future[None] = Future()
        started = threading.Event()

        def run() -> None:
            try:
                asyncio.run(self.queue.run_async(on_started=started.set))
                self._ended.set_result(None)
            except BaseException as error:
                self._ended.set_exception(error)

        threading.Thread(target=run, daemon=True).start()
        wait_for(lambda: started.is_set() or self._ended.done())

    def _note(self, what: str, step: list[int]) -> None:
        self._events.append(RunEvent(time.monotonic(), what, self.index, *step))

    @property
    def metrics(self):
        return self.queue.metrics()[self.task.name]

    def partitions(self) -> int:
        return len(self.queue.crew.runners[0].strict.partitions)

    def stop(self, *, now: bool = False) -> None:
        self.queue.stop(now=now)
        self._ended.result(60)
        self.queue.close()


def send(queue: Queue, first: int, last: int) -> None:
    steps = [[key, number] for number in range(first, last) for key in range(KEYS)]
    queue.send_many("steps", steps, key=lambda step: str(step[0]))


def create(servers: str, partitions: int) -> None:
    with Admin(bootstrap_servers=servers) as admin:
        admin.create_topic("steps", partitions)


def expected(count: int) -> set[tuple[int, int]]:
    return {(key, number) for key in range(KEYS) for number in range(count)}


def test_workers_come_and_go_and_every_record_runs_once_in_order():
    events: list[RunEvent] = []
    with Broker(settings=HEARTBEATS) as broker, Queue(broker.bootstrap_servers, group_id="strict") as queue:
        create(broker.bootstrap_servers, 4)
        send(queue, 0, 40)
        workers = [Worker(broker.bootstrap_servers, 0, events)]
        wait_for(lambda: len(events) > 50)
        for index in (1, 2):
            workers.append(Worker(broker.bootstrap_servers, index, events))
            wait_for(lambda: workers[-1].partitions() > 0)
            send(queue, 40 * index, 40 * index + 40)
        wait_for(lambda: sum(worker.partitions() for worker in workers) == 4)
        wait_for(lambda: {1, 2} & {event.worker for event in events})
        workers.pop(0).stop()
        send(queue, 120, 160)
        wait_for(lambda: done_of(events) == expected(160))
        for worker in workers:
            worker.stop()
    assert violations(events) == []
    assert Counter(event.what for event in events) == {"begin": KEYS * 160, "end": KEYS * 160}


def test_what_is_completed_out_of_order_is_not_run_again_by_the_next_worker():
    seen: list[tuple[str, int]] = []
    with Broker(settings=HEARTBEATS) as broker, Queue(broker.bootstrap_servers, group_id="strict") as queue:
        create(broker.bootstrap_servers, 1)
        send(queue, 0, 30)

        def start(name: str, is_stuck: bool):
            own = Queue(broker.bootstrap_servers, group_id="strict", drain_timeout=0)

            @own.task("steps", key_order="strict", concurrency=50, waiting=10_000)
            async def work(step: list[int]) -> None:
                if is_stuck and step[0] == 0:
                    await asyncio.Event().wait()
                seen.append((name, *step))

            thread = threading.Thread(target=lambda: asyncio.run(own.run_async()))
            thread.start()
            return own, thread, work

        own, thread, work = start("first", is_stuck=True)
        others = (KEYS - 1) * 30
        wait_for(lambda: own.metrics()[work.name].succeeded == others if own.metrics() else False)
        own.stop(now=True)
        thread.join()
        assert len(seen) == others
        own, thread, work = start("second", is_stuck=False)
        wait_for(lambda: len(seen) == KEYS * 30)
        own.stop()
        thread.join()
    assert [each for each in seen if each[0] == "second"] == [("second", 0, number) for number in range(30)]


def test_a_partition_is_given_up_only_when_its_runs_have_ended():
    events: list[RunEvent] = []
    with Broker(settings=HEARTBEATS) as broker, Queue(broker.bootstrap_servers, group_id="strict") as queue:
        create(broker.bootstrap_servers, 2)
        first = Worker(broker.bootstrap_servers, 0, events)
        first.gate.clear()
        send(queue, 0, 5)
        wait_for(lambda: first.metrics.running == KEYS)
        second = Worker(broker.bootstrap_servers, 1, events)
        wait_for(lambda: first.partitions() == 1)
        send(queue, 5, 10)
        assert second.partitions() == 0
        assert {event.worker for event in events} == {0}
        first.gate.set()
        wait_for(lambda: second.partitions() == 1)
        wait_for(lambda: done_of(events) == expected(10))
        first.stop()
        second.stop()
    assert violations(events) == []
    assert {event.worker for event in events} == {0, 1}


def test_the_broker_restarts_and_the_order_stays(tmp_path: Path):
    events: list[RunEvent] = []
    with Broker(data_dir=tmp_path, settings=HEARTBEATS) as broker:
        servers = broker.bootstrap_servers
        with Queue(servers, group_id="strict") as queue:
            create(servers, 4)
            workers = [Worker(servers, index, events) for index in range(2)]
            for turn in range(3):
                send(queue, 40 * turn, 40 * turn + 40)
                so_far = len(events)
                wait_for(lambda so_far=so_far: len(events) > so_far + 100)
                broker.stop()
                broker = Broker(
                    data_dir=tmp_path, port=int(servers.rpartition(":")[2]), settings=HEARTBEATS
                ).start()
            wait_for(lambda: done_of(events) == expected(120))
            for worker in workers:
                worker.stop()
        broker.stop()
    assert violations(events) == []


def test_a_worker_that_loses_its_partitions_stops_its_runs_and_counts_nothing_of_them():
    events: list[RunEvent] = []
    with Broker(settings=SHORT) as broker, Queue(broker.bootstrap_servers, group_id="strict") as queue:
        create(broker.bootstrap_servers, 2)
        worker = Worker(broker.bootstrap_servers, 0, events)
        worker.gate.clear()
        send(queue, 0, 3)
        wait_for(lambda: worker.metrics.running == KEYS)
        broker.stop()  # for longer than the lease
        wait_for(lambda: worker.metrics.lost >= KEYS)
        wait_for(lambda: worker.metrics.running == 0)
        assert done_of(events) == set()
        assert worker.partitions() == 0
        worker.gate.set()
        worker.stop(now=True)
    assert violations(events) == []


@pytest.mark.parametrize("is_async", [False, True])
def test_a_worker_whose_function_cannot_be_stopped_does_not_leave_the_group(is_async):
    """Others would run the next record of its key beside it. The session is longer than the test."""
    begun, go_on = threading.Event(), threading.Event()
    with Broker() as broker, Queue(broker.bootstrap_servers, group_id="strict", drain_timeout=0) as queue:
        create(broker.bootstrap_servers, 1)

        async def wait_async(step: list[int]) -> None:
            begun.set()
            await asyncio.Event().wait()

        def wait_on_thread(step: list[int]) -> None:
            begun.set()
            go_on.wait()

        queue.task("steps", key_order="strict")(wait_async if is_async else wait_on_thread)
        thread = threading.Thread(target=lambda: asyncio.run(queue.run_async()))
        thread.start()
        queue.send("steps", [0, 0], key="0")
        assert begun.wait(60)
        queue.stop(now=True)
        thread.join()
        with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            members = admin.describe_consumer_group("strict.steps.strict").members
        go_on.set()
        assert len(members) == (0 if is_async else 1)


def test_a_group_that_starts_at_the_latest_offset_stays_there():
    seen = []
    with Broker() as broker, Queue(broker.bootstrap_servers, group_id="strict", start_from="latest") as queue:

        @queue.task("numbers", key_order="strict")
        async def work(number: int) -> None:
            seen.append(number)

        def working() -> threading.Thread:
            thread = threading.Thread(target=lambda: asyncio.run(queue.run_async()))
            thread.start()
            return thread

        with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            admin.create_topic("numbers", 1)
        queue.send("numbers", 0, key="k")
        thread = working()
        wait_for(
            lambda: (
                queue.crew and queue.crew.runners and queue.crew.runners[0].strict.open_records([(0, 1)]) == 0
            )
        )
        queue.stop()
        thread.join()
        queue.send("numbers", 1, key="k")
        thread = working()
        wait_for(lambda: seen == [1])
        queue.stop()
        thread.join()


def test_a_partition_whose_new_position_is_known_is_not_looked_for_again():
    """It may not be asked for records until then: others had enough."""

    async def scenario(servers: str) -> None:
        arrived = asyncio.Event()
        settings = ShareSettings.parse(bootstrap_servers=servers, group_id="g")
        async with Cluster(settings) as cluster:
            await cluster.refresh(["numbers"])
            topic = cluster.topic("numbers")
            assert topic is not None
            tail = Tail(cluster, settings, arrived=arrived.set)
            owned = OwnedPartition(
                "numbers", topic.topic_id, 0, tail,
                on_lost=lambda lost, error: None, on_committed=lambda offsets, error: None, changed=lambda: None,
            )  # fmt: skip

            async def records() -> list[int]:
                while (first := owned.next(METADATA_CHARS)) is None and not owned.is_out_of_range:
                    arrived.clear()
                    await arrived.wait()
                rest = iter(lambda: owned.next(METADATA_CHARS), None)
                return [each.offset for each in (first, *rest) if each is not None]

            owned.load(CompletedOffsets(0), is_new=False)
            assert (await records(), owned.is_out_of_range) == ([], True)
            owned.skip_to(5)
            assert not owned.is_out_of_range
            assert (await records(), owned.is_out_of_range) == ([5, 6, 7], False)
            await tail.close()

    with Broker() as broker, Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_topic("numbers", 1)
        with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            producer.send_many("numbers", [b"%d" % number for number in range(8)])
        admin.delete_records({("numbers", 0): 5})
        asyncio.run(scenario(broker.bootstrap_servers))


def test_partitions_take_turns_when_one_record_is_taken_at_a_time(queue):
    seen: list[int] = []

    @queue.task("numbers", key_order="strict", concurrency=1)
    async def work(number: int) -> None:
        seen.append(number)

    with QueueTest(queue, partitions=2) as test:
        with Producer(bootstrap_servers=test.broker.bootstrap_servers) as producer:
            producer.send_many(
                "numbers",
                [ProducerRecord(b"%d" % number, partition=number // 1_000) for number in range(2_000)],
            )
        test.run_until_idle(timeout=60)
    assert sorted(seen) == list(range(2_000))
    first = seen[0] // 1_000
    assert [number // 1_000 for number in seen].index(1 - first) < 900, "one waited for all of the other"


def test_a_topic_that_does_not_exist_is_said_and_waited_for(caplog):
    seen = []
    settings = {**HEARTBEATS, "auto.create.topics.enable": False}
    with Broker(settings=settings) as broker, Queue(broker.bootstrap_servers, group_id="strict") as queue:

        @queue.task("numbres", key_order="strict")
        async def work(number: int) -> None:
            seen.append(number)

        def warnings() -> list[str]:
            return [one.getMessage() for one in caplog.records if "numbres'" in one.getMessage()]

        with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            admin.create_topic("numbers", 1)
            thread = threading.Thread(target=lambda: asyncio.run(queue.run_async()), daemon=True)
            with caplog.at_level("WARNING", "headrace.client"):
                thread.start()
                said = wait_for(warnings)
            assert said == [
                "Topic 'numbres', to which group 'strict.numbres.strict' is subscribed, does not exist; the nearest "
                "name is 'numbers'. The consumer waits for it: create it "
                "(`headrace topic create numbres`), or subscribe to another one."
            ]
            admin.create_topic("numbres", 1)
        queue.send("numbres", 1, key="k")
        wait_for(lambda: seen == [1])
        queue.stop()
        thread.join()


def test_aborted_records_are_not_run_and_do_not_hold_the_offset(queue):
    seen = []

    @queue.task("numbers", key_order="strict")
    async def work(number: int) -> None:
        seen.append(number)

    with QueueTest(queue) as test:
        servers = test.broker.bootstrap_servers
        with Producer(bootstrap_servers=servers, transactional_id="writer") as producer:
            producer.begin()
            producer.send("numbers", b"1", key="k").result()
            producer.abort()
            producer.begin()
            producer.send("numbers", b"2", key="k").result()
            producer.commit()
        wait_for(lambda: seen == [2])
        test.run_until_idle()
        assert test.metrics()[work.name].received == 1
        wait_for(lambda: committed(servers, "strict.numbers.strict", "numbers") == (4, ""))


def committed(servers: str, group: str, topic: str) -> tuple[int, str]:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": group})
    (found,) = consumer.committed([TopicPartition(topic, 0)], timeout=30)
    consumer.close()
    return found.offset, found.metadata or ""


@pytest.mark.parametrize("chars", [0, 60, 200])
def test_a_broker_that_takes_less_metadata_makes_the_task_slower_and_nothing_else(queue, chars):
    seen, is_stuck = [], True

    @queue.task("steps", key_order="strict", concurrency=50, waiting=1_000, breaker=None, retries=ONCE)
    async def work(step: list[int]) -> None:
        if is_stuck and step[0] == 0:
            raise Retry()
        seen.append(step)

    with QueueTest(queue, settings={"offset.metadata.max.bytes": chars}) as test:
        steps = [[key, number] for number in range(60) for key in range(KEYS)]
        queue.send_many("steps", steps, key=lambda step: str(step[0]))
        wait_for(lambda: test.metrics()[work.name].waiting == 1)
        is_stuck = False
        test.advance(101)
        test.run_until_idle(timeout=60)
        assert by_key(seen) == {key: list(range(60)) for key in range(KEYS)}
        assert test.metrics()[work.name].lost == 0


def test_processes_of_a_killed_worker_end_with_it(tmp_path: Path):
    note = tmp_path / "pid"
    with Broker() as broker, Queue(broker.bootstrap_servers, group_id="orphans") as queue:
        create(broker.bootstrap_servers, 1)
        command = [sys.executable, orphan_worker.__file__, broker.bootstrap_servers]
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        queue.send("steps", str(note), key="k")
        child = wait_for(lambda: note.exists() and note.read_text())
        process.kill()
        process.wait()
        wait_for(lambda: not is_alive(int(child)))


def is_alive(pid: int) -> bool:
    """Not gone, and not a zombie that nobody has waited for yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


class StrictProcesses(WorkerProcesses):
    def __init__(self, servers: str, notes: Path, kind: str) -> None:
        super().__init__(strict_worker.__file__, servers, str(notes), kind)
        self._notes = notes

    def events(self) -> list[RunEvent]:
        lines = self._notes.read_text().splitlines() if self._notes.exists() else []
        return [RunEvent.parse(line) for line in lines]


@pytest.mark.parametrize("kind", ["async", "thread"])
def test_killed_workers_lose_nothing_and_keep_the_order(tmp_path: Path, kind: str):
    rng = Random(kind)
    with Broker(settings=SHORT) as broker, Queue(broker.bootstrap_servers, group_id="strict") as queue:
        create(broker.bootstrap_servers, 4)
        programs = StrictProcesses(broker.bootstrap_servers, tmp_path / "notes", kind)
        sent = 0
        try:
            for _ in range(3):
                programs.start()
            for _ in range(3):
                before = len(programs.events())
                send(queue, sent, sent + 30)
                sent += 30
                wait_for(
                    lambda before=before: len(programs.events()) > before + rng.randrange(10, 300),
                    every_s=0.02,
                )
                programs.kill(rng.randrange(len(programs.running)))
                programs.start()
            wait_for(lambda: done_of(programs.events()) == expected(sent), every_s=0.05)
        finally:
            programs.stop()
    assert violations(programs.events(), programs.killed) == []
