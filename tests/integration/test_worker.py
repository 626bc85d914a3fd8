"""A queue's tasks against the broker in process, with a clock that is turned: what becomes of every record.

The clock also runs by itself, so times here are long enough for a slow machine to be no part of them.
"""

import asyncio
import threading
import time
from dataclasses import dataclass

import msgspec
import pytest

from headrace import Broker
from headrace.client.admin import Admin
from headrace.client.cluster import Cluster
from headrace.client.dead_letters import read_dead_letters, redrive
from headrace.client.delivery import Delivery
from headrace.client.settings import ClientSettings
from headrace.share.states import RecordState
from headrace.worker import Backoff, DeliveryFacts, Queue, Reject, Retry
from headrace.worker.testing import QueueTest
from tests.conformance.steps import wait_for

WAIT_S = 60.0


@dataclass
class Email:
    to: str


@pytest.fixture
def queue():
    with Queue("localhost:1", group_id="mailers") as queue:
        yield queue


def only(test: QueueTest):
    (metrics,) = test.metrics().values()
    return metrics


def settled_states(test: QueueTest, topic: str) -> dict[RecordState, int]:
    """How the group's records of a topic ended, as the broker knows it."""
    state = test.broker.share_state("mailers")[topic, 0]
    return {each: state.count_of(each) for each in RecordState if state.count_of(each)}


def is_done(test: QueueTest, topic: str) -> bool:
    state = test.broker.share_state("mailers")[topic, 0]
    return state.in_flight == 0 or not any(
        state.count_of(each) for each in (RecordState.AVAILABLE, RecordState.ACQUIRED)
    )


class TestSettling:
    def test_a_record_whose_function_returns_is_accepted(self, queue):
        seen = []

        @queue.task("emails")
        async def send(email: Email, delivery: Delivery) -> None:
            seen.append((email, delivery.offset, delivery.delivery_count))

        with QueueTest(queue) as test:
            for name in ("ada", "bob"):
                test.send("emails", Email(name))
            test.run_until_idle()

            assert sorted(seen, key=lambda each: each[1]) == [(Email("ada"), 0, 1), (Email("bob"), 1, 1)]
            assert (only(test).received, only(test).succeeded, only(test).held) == (2, 2, 0)
            assert is_done(test, "emails")

    def test_a_failed_record_is_tried_again_when_its_delay_is_over_and_no_delivery_is_spent(self, queue):
        counts = []

        @queue.task("emails", retries=Backoff(first=100, factor=3, most=600, jitter=0))
        async def send(email: Email, delivery: Delivery) -> None:
            counts.append(delivery.delivery_count)
            if len(counts) < 3:
                raise ConnectionError("away")

        with QueueTest(queue) as test:
            test.send("emails", Email("ada"))
            test.run_until_idle()
            assert len(counts) == 1
            test.advance(40)
            test.run_until_idle()
            assert len(counts) == 1
            test.advance(60)
            test.run_until_idle()
            assert len(counts) == 2
            test.advance(300)
            test.run_until_idle()

            assert counts == [1, 1, 1]
            assert (only(test).failed, only(test).retried, only(test).succeeded) == (2, 2, 1)

    def test_a_delay_that_is_longer_than_the_lock_holds_the_record_by_renewing(self, queue):
        counts = []

        @queue.task("emails")
        async def send(email: Email, delivery: Delivery) -> None:
            counts.append(delivery.delivery_count)
            if len(counts) == 1:
                raise Retry(after=300)

        with QueueTest(queue) as test:
            test.send("emails", Email("ada"))
            test.run_until_idle()
            test.advance(200)
            test.run_until_idle()
            assert counts == [1]
            test.advance(100)
            test.run_until_idle()

            assert counts == [1, 1]
            assert only(test).lost == 0

    def test_a_rejected_record_goes_to_the_dead_letter_topic_with_its_cause(self, queue):
        @queue.task("emails", dead_letter="emails.dead")
        async def send(email: Email) -> None:
            raise Reject("no such mailbox")

        with QueueTest(queue) as test:
            test.send("emails", Email("ada"), key="k", headers={"trace": "7"})
            test.run_until_idle()

            (letter,) = test.dead_letters("emails.dead")
            assert (letter.key, letter.value) == (b"k", b'{"to":"ada"}')
            assert letter.headers["trace"] == "7"
            assert letter.headers["__dlq.errors.topic"] == "emails"
            assert letter.headers["__dlq.errors.offset"] == "0"
            assert letter.headers["__dlq.errors.group"] == "mailers"
            assert letter.headers["__dlq.errors.delivery.count"] == "1"
            assert letter.headers["__dlq.errors.message"] == "Rejected by the task: no such mailbox"
            assert letter.headers["headrace.dlq.cause"] == "rejected"
            assert (only(test).rejected, only(test).dead_lettered) == (1, 1)
            assert is_done(test, "emails")

    def test_a_body_that_cannot_be_read_is_dead_at_once(self, queue):
        seen = []

        @queue.task("emails", dead_letter="emails.dead")
        async def send(email: Email) -> None:
            seen.append(email)

        with QueueTest(queue) as test:
            test.send("emails", b"\xff not json")
            test.send("emails", None, key="k")
            test.send("emails", Email("ada"))
            test.run_until_idle()

            letters = test.dead_letters("emails.dead")
            assert [letter.headers["headrace.dlq.cause"] for letter in letters] == ["unreadable"] * 2
            assert {letter.value for letter in letters} == {b"\xff not json", None}  # sent at the same time
            assert seen == [Email("ada")]
            assert only(test).unreadable == 2

    def test_a_record_that_always_fails_is_dead_after_as_many_attempts_as_it_has(self, queue):
        tries = []

        @queue.task("emails", retries=Backoff(first=1, most=1, jitter=0, tries=5), dead_letter="emails.dead")
        async def send(email: Email) -> None:
            tries.append(email)
            raise ValueError("broken")

        with QueueTest(queue) as test:
            test.send("emails", Email("ada"))
            for _ in range(10):
                test.run_until_idle()
                test.advance(1)

            (letter,) = test.dead_letters("emails.dead")
            assert len(tries) == 5
            assert letter.headers["headrace.dlq.cause"] == "exhausted"
            assert letter.headers["headrace.dlq.attempts"] == "5"
            assert letter.headers["headrace.dlq.exception"] == "ValueError: broken"
            assert letter.headers["__dlq.errors.delivery.count"] == "1"

    def test_without_a_dead_letter_topic_and_retries_a_record_that_fails_is_archived(self, queue):
        @queue.task("emails", retries=None)
        async def send(email: Email) -> None:
            raise ValueError("broken")

        with QueueTest(queue) as test:
            test.send("emails", Email("ada"))
            test.run_until_idle()

            assert only(test).discarded == 1
            assert is_done(test, "emails")

    def test_the_brokers_own_dead_letter_queue_is_used_where_there_is_one(self, queue):
        @queue.task("emails", retries=None)
        async def send(email: Email) -> None:
            raise ValueError("broken")

        settings = {"errors.deadletterqueue.auto.create.topics.enable": True}
        test = QueueTest(queue, settings=settings)
        test.broker.start()
        with Admin(bootstrap_servers=test.broker.bootstrap_servers) as admin:
            admin.set_group_config("mailers", {"errors.deadletterqueue.topic.name": "dlq.mailers"})
        with test:
            test.send("emails", Email("ada"))
            test.run_until_idle()

            (letter,) = test.dead_letters("dlq.mailers")
            assert letter.headers["__dlq.errors.offset"] == "0"
            assert (only(test).dead_lettered, only(test).discarded) == (1, 0)

    def test_a_record_too_large_to_copy_is_dead_without_its_value(self, queue):
        @queue.task("emails", dead_letter="emails.dead")
        async def send(body: bytes) -> None:
            raise Reject("no")

        settings = {"message.max.bytes": 1_000}
        with QueueTest(queue, settings=settings) as test:
            test.send("emails", b"x" * 880, key="k")
            test.run_until_idle()

            (letter,) = test.dead_letters("emails.dead")
            assert (letter.key, letter.value) == (b"k", None)
            assert letter.headers["headrace.dlq.copied"] == "false"
            assert letter.headers["__dlq.errors.offset"] == "0"

    def test_a_record_whose_dead_letter_cannot_be_written_stays_until_it_can(self, queue, caplog):
        @queue.task("emails", dead_letter="emails.dead")
        async def send(email: Email) -> None:
            raise Reject("no")

        with QueueTest(queue) as test:
            # A topic that takes nothing: every copy is larger than it allows, with its value or without.
            with Admin(bootstrap_servers=test.broker.bootstrap_servers) as admin:
                admin.set_topic_config("emails.dead", {"max.message.bytes": 10})
                test.send("emails", Email("ada"))
                wait_for(lambda: any("MESSAGE_TOO_LARGE" in record.getMessage() for record in caplog.records))
                assert only(test).held == 1
                assert test.dead_letters("emails.dead") == []

                admin.set_topic_config("emails.dead", {"max.message.bytes": 100_000})
            test.advance(60)
            test.run_until_idle()

            assert len(test.dead_letters("emails.dead")) == 1
            assert only(test).held == 0

    def test_a_dead_letter_that_is_sent_back_is_run_again(self, queue):
        runs = []

        @queue.task("emails", retries=None, dead_letter="emails.dead")
        async def send(email: Email, delivery: Delivery) -> None:
            runs.append((email.to, delivery.key, dict(delivery.headers).get("trace")))
            if len(runs) == 1:
                raise ValueError("a fault that is mended later")

        async def send_back(servers: str):
            cluster = Cluster(ClientSettings.parse(bootstrap_servers=servers))
            await cluster.start()
            try:
                (cause,) = (await read_dead_letters(cluster, "emails.dead")).causes()
                return cause, await redrive(cluster, "emails.dead", cause=cause.id, dry_run=False)
            finally:
                await cluster.close()

        with QueueTest(queue) as test:
            test.send("emails", Email("ada"), key="k", headers={"trace": "7"})
            test.run_until_idle()
            cause, result = asyncio.run(send_back(test.broker.bootstrap_servers))
            test.run_until_idle()

            assert (cause.kind, cause.exception, cause.group_id) == ("exhausted", "ValueError", "mailers")
            assert result.redriven == 1
            assert runs == [("ada", b"k", b"7")] * 2
            assert only(test).succeeded == 1

    def test_a_last_delivery_is_dead_without_a_run(self, queue):
        begun = []

        @queue.task("emails", dead_letter="emails.dead", concurrency=1)
        async def send(email: Email) -> None:
            begun.append(email)
            await asyncio.sleep(1e6)  # until it is canceled

        with QueueTest(queue, settings={"group.share.delivery.count.limit": 2}) as test:
            test.send("emails", Email("ada"))
            wait_for(lambda: len(begun) == 1)
            test.broker.release_record("mailers", "emails", 0, 0)  # as if this worker had died
            test.advance(30)
            test.run_until_idle()

            (letter,) = test.dead_letters("emails.dead")
            assert letter.headers["headrace.dlq.cause"] == "last-delivery"
            assert letter.headers["__dlq.errors.delivery.count"] == "2"
            assert len(begun) == 1


class TestLocks:
    def test_a_long_task_keeps_its_record_while_it_runs(self, queue):
        runs = []

        @queue.task("emails")
        async def send(email: Email) -> None:
            runs.append(email)
            await asyncio.sleep(600)  # until it is canceled

        with QueueTest(queue) as test:
            test.send("emails", Email("ada"))
            wait_for(lambda: len(runs) == 1)
            test.advance(500)
            assert (only(test).running, only(test).lost) == (1, 0)
            test.advance(100)
            test.run_until_idle()

            assert len(runs) == 1
            assert only(test).succeeded == 1

    def test_a_lost_lock_cancels_the_task_and_its_result_does_not_count(self, queue):
        log = []

        @queue.task("emails", concurrency=1)
        async def send(email: Email, delivery: Delivery) -> None:
            try:
                log.append(f"begun {delivery.delivery_count}")
                await asyncio.sleep(60 if delivery.delivery_count == 1 else 0)  # on the turned clock
            except asyncio.CancelledError:
                log.append("canceled")
                raise

        with QueueTest(queue) as test:
            test.send("emails", Email("ada"))
            wait_for(lambda: log == ["begun 1"])
            test.broker.release_record("mailers", "emails", 0, 0)
            test.advance(20)
            test.run_until_idle()

            assert log == ["begun 1", "canceled", "begun 2"]
            assert (only(test).lost, only(test).succeeded) == (1, 1)


class TestTimeouts:
    def test_an_async_function_is_canceled_and_tried_again(self, queue):
        log = []

        @queue.task("emails", timeout=5, retries=Backoff(first=1, most=1, jitter=0))
        async def send(email: Email) -> None:
            try:
                log.append("begun")
                await asyncio.sleep(10 if len(log) == 1 else 0)  # on the turned clock
            except asyncio.CancelledError:
                log.append("canceled")
                raise

        with QueueTest(queue) as test:
            test.send("emails", Email("ada"))
            wait_for(lambda: log == ["begun"])
            test.advance(5)
            test.run_until_idle()
            assert log == ["begun", "canceled"]
            test.advance(1)
            test.run_until_idle()

            assert (only(test).timed_out, only(test).failed, only(test).succeeded) == (1, 1, 1)

    def test_a_thread_goes_on_keeps_its_slot_and_its_record_is_tried_elsewhere(self, queue):
        go_on = threading.Event()
        begun = []

        @queue.task("emails", timeout=5, concurrency=2, retries=Backoff(first=1, most=1, jitter=0))
        def send(email: Email) -> None:
            begun.append(threading.current_thread().name)
            if len(begun) == 1:
                assert go_on.wait(WAIT_S)

        with QueueTest(queue) as test:
            test.send("emails", Email("ada"))
            wait_for(lambda: len(begun) == 1)
            test.advance(5)
            test.run_until_idle()
            assert (only(test).timed_out, only(test).abandoned) == (1, 1)
            test.advance(1)
            test.run_until_idle()
            go_on.set()

            assert len(set(begun)) == 2
            assert only(test).succeeded == 1

    def test_a_process_is_killed(self):
        with QueueTest(in_processes) as test:
            test.send("sleeps", 60.0)
            wait_for(lambda: only(test).running == 1)
            test.advance(3)
            test.run_until_idle()

            assert (only(test).timed_out, only(test).abandoned, only(test).discarded) == (1, 0, 1)


in_processes = Queue("localhost:1", group_id="mailers")


@in_processes.task("sleeps", pool="process", timeout=3, retries=None)
def sleep_in_another_process(seconds: float, delivery: DeliveryFacts) -> None:
    assert delivery.topic == "sleeps"
    time.sleep(seconds)  # until its process is killed


class TestOrder:
    def test_records_of_one_key_run_in_order_even_while_one_waits_for_its_backoff(self, queue):
        log = []

        @queue.task("steps", key_order=True, concurrency=8, retries=Backoff(first=100, most=100, jitter=0))
        async def step(number: int, delivery: Delivery) -> None:
            log.append((delivery.key, number))
            if number == 1 and log.count((delivery.key, 1)) == 1:
                raise ConnectionError("away")
            await asyncio.sleep(0)

        with QueueTest(queue) as test:
            for number in range(4):
                for key in ("a", "b"):
                    test.send("steps", number, key=key)
            test.run_until_idle()
            assert log.count((b"a", 1)) == 1
            assert (b"a", 2) not in log
            test.advance(100)
            test.run_until_idle()

            for key in (b"a", b"b"):
                assert [number for each, number in log if each == key] == [0, 1, 1, 2, 3]


class TestBounds:
    def test_no_more_records_are_held_than_could_run(self, queue):
        @queue.task("emails", concurrency=3, waiting=100)
        async def send(email: Email) -> None:
            await asyncio.sleep(1)  # on the turned clock

        with QueueTest(queue) as test:
            for number in range(20):
                test.send("emails", Email(str(number)))
            wait_for(lambda: only(test).running == 3)

            assert settled_states(test, "emails")[RecordState.ACQUIRED] == 3
            deadline = time.monotonic() + WAIT_S
            while only(test).succeeded < 20:
                test.advance(1)
                assert only(test).running <= 3
                assert time.monotonic() < deadline

    def test_when_too_many_records_wait_for_another_try_nothing_new_is_fetched_and_nothing_is_burned(
        self, queue
    ):
        counts = []

        @queue.task("emails", concurrency=2, waiting=3, retries=Backoff(first=60, most=60, jitter=0))
        async def send(email: Email, delivery: Delivery) -> None:
            counts.append(delivery.delivery_count)
            raise ConnectionError("away")

        with QueueTest(queue) as test:
            for number in range(20):
                test.send("emails", Email(str(number)))
            test.run_until_idle()

            assert (only(test).waiting, only(test).received) == (5, 5)
            assert set(counts) == {1}


class TestDrain:
    def test_a_record_whose_dead_letter_is_not_written_yet_goes_back_to_the_group(self, queue):
        @queue.task("emails", dead_letter="emails.dead")
        async def send(email: Email) -> None:
            raise Reject("no")

        with QueueTest(queue) as test:
            with Admin(bootstrap_servers=test.broker.bootstrap_servers) as admin:
                admin.set_topic_config("emails.dead", {"max.message.bytes": 10})
            test.send("emails", Email("ada"))
            wait_for(lambda: only(test).rejected == 1)
            queue.stop(now=True)
            wait_for(lambda: queue.crew is None)

            assert settled_states(test, "emails") == {RecordState.AVAILABLE: 1}
            assert (only(test).released, only(test).dead_lettered) == (1, 0)

    def test_a_function_that_ends_in_time_is_settled_and_one_that_does_not_is_cut_and_released(self, queue):
        begun, ended = [], []

        @queue.task("emails")
        async def send(email: Email) -> None:
            begun.append(email.to)
            try:
                await asyncio.sleep(float(email.to))  # on the turned clock
            finally:
                ended.append(email.to)

        with QueueTest(queue) as test:
            test.send("emails", Email("10"))
            test.send("emails", Email("1000"))
            wait_for(lambda: len(begun) == 2)
            queue.stop()
            wait_for(lambda: queue.crew.runners[0].scheduler.room() == 0)
            test.advance(10)
            wait_for(lambda: ended == ["10"])
            test.advance(21)  # drain_timeout is 30 s
            wait_for(lambda: queue.crew is None)

            assert ended == ["10", "1000"]
            assert (only(test).succeeded, only(test).released) == (1, 1)
            assert settled_states(test, "emails").get(RecordState.AVAILABLE) == 1

    def test_a_thread_that_does_not_end_does_not_keep_the_worker(self, queue):
        begun, go_on = threading.Event(), threading.Event()

        @queue.task("emails")
        def send(email: Email) -> None:
            begun.set()
            go_on.wait(WAIT_S)

        with QueueTest(queue) as test:
            test.send("emails", Email("ada"))
            assert begun.wait(WAIT_S)
            queue.stop(now=True)
            wait_for(lambda: queue.crew is None)
            go_on.set()

            assert settled_states(test, "emails") == {RecordState.AVAILABLE: 1}

    def test_a_worker_that_is_stopped_while_it_has_no_room_and_polls_nothing_ends_in_order(self, queue):
        """The wakeup of `stop` finds no poll to end; it must not end what the drain does."""
        begun, may_go_on = threading.Event(), threading.Event()

        @queue.task("emails", concurrency=1)
        def send(email: Email) -> None:
            begun.set()
            assert may_go_on.wait(WAIT_S)

        with Broker() as broker:
            queue.configure(bootstrap_servers=broker.bootstrap_servers)
            queue.send("emails", Email("ada"))
            failures = []

            def run() -> None:
                try:
                    asyncio.run(queue.run_async())
                except BaseException as error:
                    failures.append(error)

            thread = threading.Thread(target=run)
            thread.start()
            assert begun.wait(WAIT_S)
            (runner,) = queue.crew.runners
            wait_for(lambda: runner.scheduler.room() == 0)
            queue.stop()
            wait_for(runner._stopping.is_set)
            may_go_on.set()
            thread.join(WAIT_S)
            assert failures == []
            state = broker.share_state("mailers")["emails", 0]
            assert state.count_of(RecordState.ACKNOWLEDGED) == 1


class TestBodies:
    def test_msgpack_and_structs_come_through(self):
        class Order(msgspec.Struct):
            number: int
            items: list[str]

        seen = []
        with Queue("localhost:1", group_id="mailers", content_type="msgpack") as queue:

            @queue.task("orders")
            def work(order: Order) -> None:
                seen.append(order)

            with QueueTest(queue) as test:
                sent = work.send(Order(1, ["tea"]), key=b"k")
                test.run_until_idle()

                assert seen == [Order(1, ["tea"])]
                (record,) = test.records("orders")
                assert sent.offset == record.offset == 0
                assert record.headers == {"content-type": "application/msgpack"}


class TestQueueTest:
    def test_what_is_sent_is_found_also_by_a_queue_that_starts_at_the_end(self):
        seen = []
        with Queue("localhost:1", group_id="mailers", start_from="latest") as queue:

            @queue.task("emails")
            async def send(email: Email) -> None:
                seen.append(email)

            with QueueTest(queue) as test:
                test.send("emails", Email("ada"))
                test.run_until_idle()

        assert seen == [Email("ada")]

    def test_a_task_that_does_not_end_is_named(self, queue):
        has_begun = threading.Event()

        @queue.task("emails")
        async def send(email: Email) -> None:
            has_begun.set()
            await asyncio.sleep(3600)  # until it is canceled

        with QueueTest(queue) as test:
            test.send("emails", Email("ada"))
            assert has_begun.wait(60)
            with pytest.raises(TimeoutError, match="send runs 1 records"):
                test.run_until_idle(timeout=0.3)

    def test_the_clock_moves_also_when_the_worker_has_ended(self, queue):
        @queue.task("emails")
        async def send(email: Email) -> None: ...

        with QueueTest(queue) as test:
            queue.stop()
            wait_for(lambda: not test._thread.is_alive())
            before = test.broker.call(test.broker.core.clock.wall_ms)
            test.advance(30)
            assert test.broker.call(test.broker.core.clock.wall_ms) - before >= 30_000

    def test_the_queue_is_where_it_was_afterward(self, queue):
        @queue.task("emails")
        async def send(email: Email) -> None: ...

        with QueueTest(queue) as test:
            assert queue.bootstrap_servers == test.broker.bootstrap_servers

        assert queue.bootstrap_servers == "localhost:1"
        assert queue.crew is None
