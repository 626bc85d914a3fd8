"""Dramatiq on a share group, with Dramatiq's own workers: what its tests ask of RabbitMQ and Redis, and more."""

import logging
import signal
import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import pairwise
from pathlib import Path

import dramatiq
import pytest
from dramatiq.common import current_millis
from dramatiq.errors import ConnectionClosed, QueueJoinTimeout, QueueNotFound
from dramatiq.middleware import Retries

from headrace import Admin, Broker, Producer
from headrace.adapters.dramatiq import HeadraceBroker
from headrace.client.errors import GroupIdNotFoundError
from headrace.worker.errors import QueueError
from tests.conformance.steps import wait_for
from tests.worker_processes import process_group

WAIT_MS = 60_000
LOCK_MS = 4_000
KILLED_MESSAGES = 300
KILLED_S = 180.0
SECURED = {"listeners": "SASL_PLAINTEXT://localhost:0", "sasl.enabled.mechanisms": "SCRAM-SHA-512"}
APP = Path(__file__).with_name("dramatiq_app.py")


@pytest.fixture(scope="module")
def server() -> Iterator[Broker]:
    settings = {
        "group.share.min.record.lock.duration.ms": 1_000,
        "group.share.assignment.interval.ms": 0,
    }
    with Broker(settings=settings) as server:
        yield server


@pytest.fixture
def make_broker(server: Broker, unique: str) -> Iterator[Callable[..., HeadraceBroker]]:
    made: list[HeadraceBroker] = []

    def make(**options) -> HeadraceBroker:
        options.setdefault("middleware", [Retries(min_backoff=100, max_backoff=100)])
        broker = HeadraceBroker(server.bootstrap_servers, **{"group_id": unique, **options})
        made.append(broker)
        return broker

    yield make
    for broker in made:
        broker.close()


@pytest.fixture
def broker(make_broker) -> HeadraceBroker:
    return make_broker()


@pytest.fixture
def admin(server: Broker) -> Iterator[Admin]:
    with Admin(bootstrap_servers=server.bootstrap_servers) as admin:
        yield admin


@contextmanager
def working(broker: HeadraceBroker, threads: int = 4) -> Iterator[dramatiq.Worker]:
    worker = dramatiq.Worker(broker, worker_timeout=50, worker_threads=threads)
    worker.start()
    try:
        yield worker
    finally:
        worker.stop()


def finish(broker: HeadraceBroker, worker: dramatiq.Worker, queue: str = "default") -> None:
    broker.join(queue, timeout=WAIT_MS)
    worker.join()


def next_of(consumer: dramatiq.Consumer) -> dramatiq.MessageProxy:
    return wait_for(lambda: next(consumer))


class TestMessages:
    def test_actors_get_every_message_once(self, broker):
        got = Counter()

        @dramatiq.actor(broker=broker)
        def count(number):
            got[number] += 1

        with working(broker) as worker:
            for number in range(200):
                count.send(number)
            finish(broker, worker)
        assert got == Counter(range(200))

    def test_messages_sent_before_the_first_worker_are_done(self, broker):
        got = []

        @dramatiq.actor(broker=broker, queue_name="early")
        def note(text):
            got.append(text)

        note.send("żółw \U0001f422")
        with working(broker) as worker:
            finish(broker, worker, "early")
        assert got == ["żółw \U0001f422"]

    def test_a_queue_is_a_topic_with_the_groups_prefix(self, broker, make_broker, admin, unique):
        other = make_broker(topic_prefix=f"{unique}-own-", partitions=3)
        broker.declare_queue("mail")
        other.declare_queue("mail")
        for one in (broker, other):
            one.enqueue(dramatiq.Message("mail", "send", (), {}, {}))
        topics = {topic.name: len(topic.partitions) for topic in admin.list_topics()}
        assert topics[f"{unique}.mail"] == 1
        assert topics[f"{unique}-own-mail"] == 3
        assert broker.get_declared_queues() == {"mail"}
        assert broker.get_declared_delay_queues() == set()

    def test_two_applications_on_one_kafka_do_not_meet(self, broker, make_broker, unique):
        other, got = make_broker(group_id=f"{unique}-other"), []
        for number, one in enumerate((broker, other)):
            dramatiq.actor(
                lambda place, number=number: got.append((number, place)), actor_name="a", broker=one
            )
        with working(broker) as first, working(other) as second:
            broker.get_actor("a").send("first")
            other.get_actor("a").send("second")
            finish(broker, first)
            finish(other, second)
        assert sorted(got) == [(0, "first"), (1, "second")]

    def test_a_middleware_may_change_what_is_sent(self, make_broker):
        class Stamp(dramatiq.Middleware):
            def before_enqueue(self, broker, message, delay):
                message.options["stamp"] = delay

        broker = make_broker(middleware=[Stamp()])
        broker.declare_queue("default")
        broker.enqueue(dramatiq.Message("default", "a", (), {}, {}))
        consumer = broker.consume("default", timeout=100)
        message = next_of(consumer)
        assert (message.options, message.queue_name) == ({"stamp": None}, "default")
        consumer.ack(message)
        consumer.close()


class TestRetriesAndDelays:
    def test_an_actor_is_retried_with_its_back_off(self, broker):
        runs = []

        @dramatiq.actor(broker=broker, min_backoff=300, max_backoff=300, max_retries=3)
        def fail():
            runs.append(current_millis())
            if len(runs) < 4:
                raise RuntimeError(f"run {len(runs)}")

        with working(broker) as worker:
            fail.send()
            finish(broker, worker)
        assert len(runs) == 4
        # Dramatiq takes half of the back-off and adds up to as much again.
        assert all(later - earlier >= 150 for earlier, later in pairwise(runs))

    def test_delayed_messages_come_and_never_early(self, broker):
        came = {}

        @dramatiq.actor(broker=broker)
        def note(name):
            came[name] = current_millis()

        with working(broker) as worker:
            begin = current_millis()
            delayed = note.send_with_options(args=("late",), delay=1_200)
            note.send_with_options(args=("soon",), delay=300)
            note.send("now")
            finish(broker, worker)
        assert came.keys() == {"now", "soon", "late"}
        assert came["soon"] - begin >= 300
        assert came["late"] - begin >= 1_200
        assert delayed.options["eta"] >= begin + 1_200
        assert delayed.queue_name == "default"

    def test_no_worker_holds_a_delayed_message(self, broker, admin, unique):
        @dramatiq.actor(broker=broker)
        def note(): ...

        for _ in range(20):
            note.send_with_options(delay=3_600_000)
        with working(broker) as worker:
            note.send()
            wait_for(lambda: lag(admin, unique) == 0)
            assert all(thread.delay_queue.empty() for thread in worker.consumers.values())
        assert len(broker.backend.schedule.upcoming()) == 20

    def test_a_message_whose_retry_cannot_be_enqueued_is_not_lost(self, broker, caplog, monkeypatch):
        runs, send = [], broker.backend.send

        def fail_once(topic, value, headers=(), delay_s=None):
            if delay_s is not None and len(runs) == 1:
                raise QueueError("the schedule is out of reach")
            return send(topic, value, headers, delay_s)

        monkeypatch.setattr("headrace.adapters.dramatiq.AGAIN_S", 0.1)
        monkeypatch.setattr(broker.backend, "send", fail_once)

        @dramatiq.actor(broker=broker, max_retries=3)
        def fail():
            runs.append(1)
            if len(runs) < 3:
                raise RuntimeError("again")

        with working(broker) as worker:
            fail.send()
            finish(broker, worker)
        assert len(runs) == 3
        assert "could not be enqueued again" in caplog.text


def lag(admin: Admin, group: str, queue: str = "default") -> int | None:
    try:
        offsets = admin.share_group_offsets(group, [f"{group}.{queue}"]).values()
    except GroupIdNotFoundError:
        return None
    lags = [one.lag for one in offsets]
    return None if None in lags else sum(lags)


class TestDeadLetters:
    def test_a_message_that_fails_for_good_is_rejected_and_dead_lettered(self, broker, admin, unique):
        admin.create_topic(f"dlq.{unique}", configs={"errors.deadletterqueue.group.enable": "true"})
        name = "errors.deadletterqueue"
        configs = {f"{name}.topic.name": f"dlq.{unique}", f"{name}.copy.record.enable": "true"}
        admin.set_group_config(unique, configs)

        @dramatiq.actor(broker=broker, max_retries=0)
        def fail():
            raise RuntimeError("never")

        with working(broker) as worker:
            sent = fail.send()
            finish(broker, worker)
        (letter,) = wait_for(lambda: admin.dead_letters(f"dlq.{unique}").letters)
        assert (letter.group_id, letter.source_topic) == (unique, f"{unique}.default")
        headers = dict(admin.dead_letter(letter.topic, letter.partition, letter.offset).headers)
        assert headers["dramatiq.message_id"] == sent.message_id.encode()

    @pytest.mark.parametrize("value", [b"\xff\x00 no message", b"[]", b"", None])
    def test_what_is_no_message_is_rejected_and_holds_up_nothing(self, broker, server, unique, caplog, value):
        got = []

        @dramatiq.actor(broker=broker)
        def note(text):
            got.append(text)

        with Producer(bootstrap_servers=server.bootstrap_servers) as producer, working(broker) as worker:
            note.send("before")
            producer.send(f"{unique}.default", value).result()
            note.send("after")
            finish(broker, worker)
        assert sorted(got) == ["after", "before"]  # which thread comes first is open
        assert "is not a Dramatiq message" in caplog.text

    def test_a_message_of_an_unknown_actor_is_rejected(self, broker):
        broker.declare_queue("default")
        broker.enqueue(dramatiq.Message("default", "nobody", (), {}, {}))
        with working(broker) as worker:
            finish(broker, worker)


class TestConsumers:
    @pytest.fixture
    def numbers(self, broker):
        broker.declare_queue("default")

        def send(count: int) -> None:
            for number in range(count):
                broker.enqueue(dramatiq.Message("default", "a", (number,), {}, {}))

        return send

    def test_no_more_than_prefetch_is_held(self, broker, numbers, admin, unique):
        numbers(20)
        consumer = broker.consume("default", prefetch=3, timeout=100)
        held = [next_of(consumer) for _ in range(3)]
        assert next(consumer) is None
        other = broker.consume("default", prefetch=20, timeout=100)
        rest = [next_of(other) for _ in range(17)]
        consumer.ack(held[0])
        assert next(consumer) is None, "all others are held"
        assert sorted(message.args[0] for message in held + rest) == list(range(20))
        for one in (consumer, other):
            one.close()

    def test_what_is_requeued_goes_to_another_consumer_at_once(self, broker, numbers):
        numbers(5)
        consumer = broker.consume("default", prefetch=5, timeout=100)
        held = [next_of(consumer) for _ in range(5)]
        consumer.ack(held[0])
        consumer.requeue(held[1:])
        other = broker.consume("default", prefetch=5, timeout=100)
        assert {next_of(other).args[0] for _ in range(4)} == {1, 2, 3, 4}
        consumer.close()
        other.close()

    def test_requeuing_again_and_again_loses_nothing(self, broker, numbers, admin, unique):
        """Kafka gives up a record after five deliveries."""
        numbers(3)
        for _ in range(12):
            consumer = broker.consume("default", prefetch=3, timeout=100)
            consumer.requeue([next_of(consumer) for _ in range(3)])
            consumer.close()
        consumer = broker.consume("default", prefetch=3, timeout=100)
        held = [next_of(consumer) for _ in range(3)]
        assert {message.args[0] for message in held} == {0, 1, 2}
        for message in held:
            consumer.ack(message)
        consumer.close()
        wait_for(lambda: lag(admin, unique) == 0)

    def test_a_closed_consumer_acknowledges_what_is_still_running(
        self, broker, numbers, admin, unique, caplog
    ):
        """Dramatiq closes consumers when it pauses a worker."""
        numbers(4)
        consumer = broker.consume("default", prefetch=4, timeout=100)
        held = [next_of(consumer) for _ in range(2)]
        consumer.close()
        other = broker.consume("default", prefetch=4, timeout=100)
        rest = [next_of(other) for _ in range(2)]
        for message in held + rest:
            other.ack(message)
            other.nack(message)  # a second answer counts for nothing
        wait_for(lambda: lag(admin, unique) == 0)
        other.close()
        assert sorted(message.args[0] for message in held + rest) == [0, 1, 2, 3]
        assert "delivered again" not in caplog.text

    def test_an_acknowledgement_after_the_broker_was_closed_is_harmless(self, broker, numbers, caplog):
        numbers(1)
        consumer = broker.consume("default", timeout=100)
        message = next_of(consumer)
        broker.close()
        consumer.ack(message)
        assert "will be delivered again" in caplog.text
        other = broker.consume("default", timeout=100)
        assert next_of(other).message_id == message.message_id
        other.close()

    def test_the_lock_of_a_message_is_renewed_while_it_is_held(self, broker, numbers, admin, unique, caplog):
        admin.set_group_config(unique, {"share.record.lock.duration.ms": LOCK_MS})
        numbers(1)
        consumer = broker.consume("default", timeout=100)
        message = next_of(consumer)
        end = message.delivery.lock_deadline
        wait_for(lambda: message.delivery.lock_deadline > end + 1)
        consumer.ack(message)
        wait_for(lambda: lag(admin, unique) == 0)
        consumer.close()
        assert "delivered again" not in caplog.text

    def test_messages_not_begun_are_given_back_when_a_worker_stops(self, broker, make_broker):
        begun, done, go = threading.Event(), [], threading.Event()

        @dramatiq.actor(broker=broker)
        def work(number):
            begun.set()
            assert go.wait(60)
            done.append(number)

        for number in range(3):
            work.send(number)
        with working(broker, threads=1) as worker:
            assert begun.wait(60)
            wait_for(lambda: worker.work_queue.qsize() == 1)  # one is fetched, and waits

            def end_when_stopped() -> None:
                wait_for(lambda: not worker.workers[0].running)
                go.set()

            threading.Thread(target=end_when_stopped).start()
        assert len(done) == 1
        other = make_broker()
        other.declare_queue("default")
        consumer = other.consume("default", prefetch=2, timeout=100)
        assert {next_of(consumer).args[0] for _ in range(2)} == {0, 1, 2} - set(done)


class TestBroker:
    def test_join_times_out_while_no_broker_answers(self):
        broker = HeadraceBroker("localhost:1", group_id="shop", default_api_timeout_ms=3_000)
        broker.declare_queue("default")
        with pytest.raises(QueueJoinTimeout):
            broker.join("default", timeout=100)
        broker.close()

    def test_join_times_out_and_knows_its_queues(self, broker):
        broker.declare_queue("default")
        broker.enqueue(dramatiq.Message("default", "a", (), {}, {}))
        with pytest.raises(QueueJoinTimeout):
            broker.join("default", timeout=200)
        with pytest.raises(QueueNotFound):
            broker.join("unknown")
        with pytest.raises(QueueNotFound):
            broker.consume("unknown")

    def test_flush_drops_what_is_queued_and_what_is_delayed(self, broker, admin, unique):
        @dramatiq.actor(broker=broker)
        def work(): ...

        @dramatiq.actor(broker=broker, queue_name="other")
        def other(): ...

        for delay in (None, 3_600_000):
            work.send_with_options(delay=delay)
            other.send_with_options(delay=delay)
        broker.flush("default")
        broker.join("default", timeout=WAIT_MS)
        assert [each.topic for each in broker.backend.schedule.upcoming()] == [f"{unique}.other"]
        with pytest.raises(QueueJoinTimeout):
            broker.join("other", timeout=200)
        broker.flush_all()
        broker.join("other", timeout=WAIT_MS)
        with working(broker) as worker:
            work.send()
            finish(broker, worker)

    def test_the_groups_own_topics_are_no_queues(self, broker):
        with pytest.raises(QueueError, match="use another name"):
            broker.declare_queue("later")

    def test_nothing_is_connected_until_it_is_needed(self):
        broker = HeadraceBroker("localhost:1", default_api_timeout_ms=200)
        broker.declare_queue("default")
        with pytest.raises(ConnectionClosed, match="was not enqueued"):
            broker.enqueue(dramatiq.Message("default", "a", (), {}, {}))
        broker.close()

    @pytest.mark.parametrize("options", [{"group_id": ""}, {"partitions": 0}])
    def test_options_that_cannot_be_are_refused(self, options):
        with pytest.raises(QueueError, match=r"(group_id|partitions) must be .*, got"):
            HeadraceBroker("localhost:1", **options)

    def test_settings_reach_every_client(self):
        """A login that any of them did not have would be refused."""
        with Broker(settings=SECURED, users={"shop": "secret"}) as server:
            broker = HeadraceBroker(
                server.bootstrap_servers,
                settings={"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-512"},
                sasl_username="shop",
                sasl_password="secret",
            )
            got = []
            dramatiq.actor(got.append, actor_name="note", broker=broker)
            with working(broker) as worker:
                broker.get_actor("note").send("now")
                broker.get_actor("note").send_with_options(args=("later",), delay=100)
                finish(broker, worker)
            broker.flush_all()
            broker.close()
        assert sorted(got) == ["later", "now"]

    def test_workers_go_on_when_the_broker_restarts(self, tmp_path, caplog):
        caplog.set_level(logging.CRITICAL, "headrace")
        got = Counter()
        server = Broker(data_dir=tmp_path).start()
        port = int(server.bootstrap_servers.rpartition(":")[2])
        broker = HeadraceBroker(server.bootstrap_servers, group_id="shop")

        @dramatiq.actor(broker=broker)
        def count(number):
            got[number] += 1

        try:
            with working(broker) as worker:
                for number in range(20):
                    count.send(number)
                wait_for(lambda: len(got) == 20)
                server.stop()
                server = Broker(data_dir=tmp_path, port=port).start()
                for number in range(20, 40):
                    count.send(number)
                finish(broker, worker)
        finally:
            broker.close()
            server.stop()
        assert set(got) == set(range(40))


def worker_process(
    server: Broker, group: str, folder: Path
) -> AbstractContextManager["subprocess.Popen[bytes]"]:
    """Dramatiq's own command with two processes."""
    settings = {"SERVERS": server.bootstrap_servers, "GROUP": group, "FOLDER": str(folder)}
    command = ("dramatiq", "dramatiq_app", "--path", str(APP.parent), "-p", "2", "-t", "4")
    return process_group(*command, environment=settings)


def done_in(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


@pytest.mark.timeout(600)
def test_no_message_is_lost_when_worker_processes_are_killed(server, make_broker, admin, unique, tmp_path):
    """Some are done at once, some fail and are retried, some are delayed; all processes are killed, again and again."""
    admin.set_group_config(
        unique, {"share.record.lock.duration.ms": LOCK_MS, "share.delivery.count.limit": 10}
    )
    broker = make_broker()
    broker.declare_queue("default")
    for number in range(KILLED_MESSAGES):
        message = dramatiq.Message("default", ("note", "flaky")[number % 2], (str(number),), {}, {})
        broker.enqueue(message, delay=500 if number % 5 == 0 else None)
    for share in (0.1, 0.3, 0.5):
        with worker_process(server, unique, tmp_path):
            wait_for(
                lambda share=share: len(done_in(tmp_path)) >= share * KILLED_MESSAGES, timeout_s=KILLED_S
            )
    with worker_process(server, unique, tmp_path) as last:
        wait_for(lambda: len(done_in(tmp_path)) == KILLED_MESSAGES, timeout_s=KILLED_S)
        broker.join("default", timeout=WAIT_MS)
        last.send_signal(signal.SIGTERM)
        assert last.wait(60) == 0
    assert done_in(tmp_path) == {str(number) for number in range(KILLED_MESSAGES)}
