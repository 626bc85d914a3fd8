"""Celery and kombu on share groups: the transport by itself, and real workers on an embedded broker."""

import contextlib
import gc
import os
import socket
import threading
from collections import Counter
from datetime import UTC, datetime, timedelta

import celery
import kombu
import kombu.common
import pytest
from celery import signals
from celery.contrib.testing.worker import start_worker
from celery.exceptions import Reject
from kombu.exceptions import ChannelError, OperationalError

import headrace.adapters.kombu
from headrace import Admin, Broker, Producer
from headrace.adapters.kombu_options import read_options
from headrace.adapters.kombu_records import eta_of, to_message, to_record, topic_of
from headrace.client.errors import AuthenticationError
from headrace.share.states import RecordState
from headrace.wire.errors import KafkaError
from headrace.worker.schedule import Schedule
from tests.conformance.steps import wait_for

WAIT_S = 60
EMPTY_S = 0.3
QUICK = {"client": {"fetch.max.wait.ms": 50}, "get_timeout": WAIT_S}
"""An acknowledgement waits until the broker has answered the fetch before it. `get_nowait` may have to join first."""


@pytest.fixture(scope="module", autouse=True)
def logging_is_ours():
    """Celery does not configure it when somebody listens to this signal."""

    def leave(**_):
        pass

    signals.setup_logging.connect(leave)
    yield
    signals.setup_logging.disconnect(leave)


@pytest.fixture(scope="module")
def broker():
    with Broker() as broker:
        yield broker


@pytest.fixture
def admin(broker):
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        yield admin


@pytest.fixture
def url(broker, unique):
    return f"headrace://{broker.bootstrap_servers}/{unique}"


@pytest.fixture
def connection(url):
    with kombu.Connection(url, transport_options=QUICK) as connection:
        yield connection


def consume(connection, *queues, count=1, timeout=WAIT_S, **options):
    """The next messages of the queues, each acknowledged."""
    found = []

    def receive(message):
        found.append(message)
        if not options.get("no_ack"):
            message.ack()

    with kombu.Consumer(
        connection, queues, on_message=receive, accept=["json", "pickle", "text/plain"], **options
    ):
        while len(found) < count:
            connection.drain_events(timeout=timeout)
    return found


def put_and_get(connection):
    queue = connection.SimpleQueue("failover")
    queue.put({"hello": "world"})
    message = queue.get(timeout=WAIT_S)
    message.ack()
    queue.close()
    assert message.payload == {"hello": "world"}


def held(broker, group, topic):
    """How many records of a topic are locked."""
    states = [state for (name, _), state in broker.share_state(group).items() if name == topic]
    return sum(
        run.last - run.first + 1
        for state in states
        for run in state.runs
        if run.state is RecordState.ACQUIRED
    )


def renewals(broker, group):
    runs = [run for state in broker.share_state(group).values() for run in state.runs]
    return sum(run.renewals or 0 for run in runs)


class TestConnection:
    def test_it_connects_closes_and_connects_again(self, url):
        connection = kombu.Connection(url)
        for _ in range(2):
            assert connection.connect()
            assert connection.connected
            connection.close()
            assert not connection.connected
        assert connection.default_channel
        connection.close()

    def test_a_broker_that_is_not_there_is_an_error_that_may_pass(self):
        connection = kombu.Connection("headrace://localhost:1", connect_timeout=0.1)
        with pytest.raises(OperationalError) as raised:
            connection.ensure_connection(max_retries=1, interval_start=0, interval_step=0)
        assert isinstance(raised.value.__cause__, connection.recoverable_connection_errors)

    @pytest.mark.parametrize("use", ["ensure_connection", "default_channel"])
    def test_the_next_url_is_tried_when_a_broker_is_not_there(self, url, use):
        with kombu.Connection(f"headrace://localhost:1;{url}", transport_options=QUICK) as connection:
            channel = getattr(connection, use)
            if callable(channel):
                channel()
            assert connection.hostname == url.partition("://")[2].partition(":")[0]
            put_and_get(connection)

    def test_the_next_url_is_tried_when_a_host_accepts_connections_and_does_not_answer(self, url):
        with socket.create_server(("127.0.0.1", 0)) as silent:
            urls = f"headrace://127.0.0.1:{silent.getsockname()[1]};{url}"
            with kombu.Connection(urls, connect_timeout=4, transport_options=QUICK) as connection:
                put_and_get(connection)

    def test_a_task_is_sent_to_the_next_url_when_a_broker_is_not_there(self, url, admin, unique):
        app = celery.Celery("shop", broker=f"headrace://localhost:1;{url}", set_as_current=False)
        with app:
            app.send_task("add", (2, 3))
        (topic,) = admin.describe_topics([f"{unique}.celery"], offsets=True).values()
        assert sum(each.end_offset for each in topic.partitions) == 1

    def test_one_that_is_dropped_without_being_closed_ends_its_thread(self, url):
        def threads():
            return {each for each in threading.enumerate() if each.name == "headrace-kombu"}

        others = threads()
        connection = kombu.Connection(url)
        connection.default_channel.queue_declare("dropped")
        assert len(threads() - others) == 1
        del connection
        wait_for(lambda: gc.collect() >= 0 and not threads() - others)

    def test_the_child_of_a_fork_makes_its_own(self, connection):
        queue = kombu.Queue("forked", routing_key="forked")
        producer = connection.Producer()
        producer.publish("parent", routing_key="forked", declare=[queue])
        child = os.fork()
        if not child:
            with contextlib.suppress(BaseException):
                producer.publish("child", routing_key="forked", declare=[queue], retry=True)
                os._exit(0)
            os._exit(1)
        assert os.waitpid(child, 0) == (child, 0)
        assert {each.payload for each in consume(connection, queue, count=2)} == {"parent", "child"}

    def test_a_wrong_password_is_an_error_at_once(self):
        listener = {"listeners": "SASL_PLAINTEXT://127.0.0.1:0", "sasl.enabled.mechanisms": "SCRAM-SHA-256"}
        options = {"client": {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-256"}}
        with Broker(settings=listener, users={"ada": "secret"}) as broker:
            place = broker.bootstrap_servers
            with kombu.Connection(f"headrace://ada:secret@{place}", transport_options=options) as connection:
                connection.ensure_connection(max_retries=1)
            wrong = kombu.Connection(f"headrace://ada:wrong@{place}", transport_options=options)
            with pytest.raises(AuthenticationError):
                wrong.ensure_connection(max_retries=1)

    def test_it_is_found_by_its_import_path_too(self, broker, unique):
        connection = kombu.Connection(
            f"any://{broker.bootstrap_servers}/{unique}", transport="headrace.adapters.kombu:Transport"
        )
        assert isinstance(connection.transport, headrace.adapters.kombu.Transport)
        assert connection.as_uri().endswith(f"@{broker.bootstrap_servers}/{unique}")

    @pytest.mark.parametrize(
        ("options", "said"),
        [
            ({"grup_id": "shop"}, "unknown transport option 'grup_id'; did you mean 'group_id'?"),
            ({"group_id": ""}, "group_id must be a non-empty string, got ''"),
            ({"partitions": 0}, "partitions must be a whole number from 1 to 10000, got 0"),
            ({"max_held": True}, "max_held must be a whole number from 1 to "),
            ({"hold_max": -1}, "hold_max must be from 0 to "),
            ({"client": "x"}, "client must be a dict of client settings, got 'x'"),
            ({"client": {"security.protocl": "SSL"}}, "did you mean security.protocol?"),
        ],
    )
    def test_an_option_that_cannot_be_used_is_named_with_the_cure(self, options, said):
        with pytest.raises(ValueError, match=r", got |mean") as raised:
            kombu.Connection("headrace://localhost:9092", transport_options=options).transport  # noqa: B018
        assert said in str(raised.value)

    def test_what_would_be_sent_in_the_clear_is_refused(self):
        with pytest.raises(ValueError, match="has a user name, but SASL is not enabled"):
            read_options(kombu.Connection("headrace://ada:secret@localhost:9092", transport="memory"))
        with pytest.raises(ValueError, match="broker_use_ssl is not supported"):
            read_options(kombu.Connection("headrace://localhost:9092", transport="memory", ssl=True))

    def test_the_url_gives_the_user_and_the_names(self):
        sasl = {"client": {"security_protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-256"}}
        connection = kombu.Connection("headrace://ada:s%40crt@kafka:9093/shop", transport_options=sasl)
        options = read_options(connection)
        assert (options.servers, options.group_id, options.topic("mail")) == (
            "kafka:9093",
            "shop",
            "shop.mail",
        )
        assert (options.given["sasl.username"], options.given["sasl.password"]) == ("ada", "s@crt")


class TestRecords:
    def test_a_message_comes_back_as_it_was(self):
        message = {
            "body": "[[1], {}]",
            "content-type": "application/json",
            "content-encoding": "utf-8",
            "headers": {"task": "naïve", "when": datetime(2026, 1, 2, tzinfo=UTC)},
            "properties": {"delivery_info": {"routing_key": "q"}},
        }
        value, headers = to_record(message)
        assert to_message(value, headers) == {**message, "body": b"[[1], {}]"}

    @pytest.mark.parametrize("header", [b"", b"{", b"[]", b'{"properties": 3, "headers": 4}', b"\xff", None])
    def test_a_record_of_another_program_is_a_message_without_headers(self, header):
        message = to_message(b"x", (("kombu.message", header), ("other", b"1")))
        assert (message["body"], message["headers"], message["properties"]) == (
            b"x",
            {},
            {"delivery_info": {}},
        )
        assert to_message(None, ())["body"] == b""

    @pytest.mark.parametrize(
        ("eta", "moment"),
        [
            ("2026-01-02T03:04:05+00:00", datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)),
            ("2026-01-02T03:04:05", None),
            ("tomorrow", None),
            (None, None),
            (17, None),
        ],
    )
    def test_a_time_without_a_zone_is_left_to_celery(self, eta, moment):
        assert eta_of({"headers": {"eta": eta}}) == moment

    def test_names_that_kafka_does_not_take_stay_apart(self):
        names = ["mail", "post@büro", "post-büro", "post büro", ".", "..", "", "x" * 300, "x" * 301]
        topics = [topic_of(name) for name in names]
        assert topics[0] == "mail"
        assert len(set(topics)) == len(names)
        assert all(len(topic) <= 249 and topic.isascii() for topic in topics)


class TestTransport:
    def test_what_is_published_is_consumed(self, connection):
        queue = kombu.Queue("test", routing_key="test")
        with connection.channel() as channel:
            kombu.Producer(channel).publish(
                {"hello": "wörld"}, exchange=queue.exchange, routing_key="test", declare=[queue],
                serializer="pickle", headers={"k1": "v1 ☃"}, retry=True,
            )  # fmt: skip
        (message,) = consume(connection, queue)
        assert message.payload == {"hello": "wörld"}
        assert (message.content_type, message.headers) == ("application/x-python-serialize", {"k1": "v1 ☃"})
        assert message.delivery_info["routing_key"] == "test"
        with pytest.raises(socket.timeout):
            consume(connection, queue, timeout=EMPTY_S)

    @pytest.mark.parametrize("kind", ["SimpleQueue", "SimpleBuffer"])
    def test_simple_queues(self, connection, kind):
        with contextlib.closing(getattr(connection, kind)("simple")) as queue:
            queue.put({"Hello": "World"}, headers={"k1": "v1"})
            message = queue.get(timeout=WAIT_S)
            assert (message.payload, message.headers) == ({"Hello": "World"}, {"k1": "v1"})
            assert (message.content_type, message.content_encoding) == ("application/json", "utf-8")
            message.ack()
            with pytest.raises(queue.Empty):
                queue.get(timeout=EMPTY_S)

    def test_direct_exchanges_route_by_equal_keys(self, connection):
        exchange = kombu.Exchange("direct", type="direct")
        queues = [kombu.Queue(f"direct{n}", exchange=exchange, routing_key=f"d{n}") for n in (1, 2)]
        producer = kombu.Producer(connection.default_channel, exchange=exchange)
        producer.publish("one", declare=[*queues], routing_key="d1")
        producer.publish("lost", declare=[*queues], routing_key="d3")
        (message,) = consume(connection, *queues)
        assert (message.payload, message.delivery_info["routing_key"]) == ("one", "d1")
        with pytest.raises(socket.timeout):
            consume(connection, *queues, timeout=EMPTY_S)

    def test_topic_exchanges_route_by_patterns(self, connection):
        exchange = kombu.Exchange("topic", type="topic")
        keys = {"topic1": "t.*", "topic2": "t.#", "topic3": "t"}
        queues = [kombu.Queue(name, exchange=exchange, routing_key=key) for name, key in keys.items()]
        kombu.Producer(connection.default_channel, exchange=exchange).publish(
            "x", declare=[*queues], routing_key="t.1"
        )
        consume(connection, queues[0])
        consume(connection, queues[1])
        with pytest.raises(socket.timeout):
            consume(connection, queues[2], timeout=EMPTY_S)

    def test_fanout_exchanges_reach_every_queue_of_every_process(self, url):
        exchange = kombu.Exchange("fanout", type="fanout")
        queues = [kombu.Queue(f"fanout{n}", exchange=exchange) for n in (1, 2)]
        with kombu.Connection(url) as sender, kombu.Connection(url) as receiver:
            kombu.Producer(sender.default_channel, exchange=exchange).publish("before anybody is bound")
            for queue in queues:
                queue(receiver.default_channel).declare()
            kombu.Producer(sender.default_channel, exchange=exchange).publish("all")
            for queue in queues:
                assert [each.payload for each in consume(receiver, queue)] == ["all"]

    def test_a_broadcast_queue_needs_no_topic(self, connection, admin, unique, caplog):
        queue = kombu.common.Broadcast("news")
        queue(connection.default_channel).declare()
        with kombu.Consumer(connection, [queue], on_message=lambda message: message.ack()):
            connection.Producer().publish("x", exchange="news", routing_key="any")
            connection.drain_events(timeout=WAIT_S)
        assert [topic.name for topic in admin.list_topics() if topic.name.startswith(unique)] == [
            f"{unique}.broadcast.news"
        ]
        assert "does not exist" not in caplog.text

    def test_a_message_without_a_queue_is_dropped_and_the_log_says_so(self, connection, caplog):
        exchange = kombu.Exchange("nobody", type="topic")
        kombu.Producer(connection.default_channel, exchange=exchange).publish("x", routing_key="t.1")
        assert "a message for exchange 'nobody' with routing key 't.1' was not routed" in caplog.text

    def test_get_ack_reject_and_requeue(self, connection, broker, unique):
        with contextlib.closing(connection.SimpleQueue("answers")) as queue:
            for settle in ("ack", "reject"):
                queue.put({"Hello": "World"})
                getattr(queue.get_nowait(), settle)()
                wait_for(lambda: queue.qsize() == 0)
                with pytest.raises(queue.Empty):
                    queue.get_nowait()
            queue.put({"Hello": "World"})
            first = queue.get_nowait()
            first.requeue()
            second = queue.get_nowait()
            assert (first.body, second.body) == (b'{"Hello": "World"}', first.body)
            assert (first.delivery_info["redelivered"], second.delivery_info["redelivered"]) == (False, True)
            second.ack()

    @pytest.mark.parametrize("kind", ["SimpleQueue", "SimpleBuffer"])
    def test_an_expired_message_is_dropped(self, connection, kind):
        with contextlib.closing(getattr(connection, kind)("ttl")) as queue:
            queue.put("late", expiration=0.001)
            queue.put("later", expiration=60)
            assert queue.get(timeout=WAIT_S).payload == "later"

    def test_a_message_that_is_requeued_more_often_than_the_group_allows_is_not_lost(
        self, connection, broker, unique
    ):
        queue = connection.SimpleQueue("storm")
        queue.put({"n": 1}, headers={"k": "v"})
        redelivered = []
        for _ in range(7):
            message = queue.get(timeout=WAIT_S)
            redelivered.append(message.delivery_info["redelivered"])
            message.requeue()
        message = queue.get(timeout=WAIT_S)
        assert (message.payload, message.headers) == ({"n": 1}, {"k": "v"})
        assert redelivered == [False] + 6 * [True]
        message.ack()
        wait_for(lambda: queue.qsize() == 0)
        queue.close()

    def test_no_more_messages_are_locked_than_may_be_prefetched(self, connection, broker, unique):
        queue = kombu.Queue("many", routing_key="many")
        producer = kombu.Producer(connection.default_channel)
        for number in range(20):
            producer.publish(number, routing_key="many", declare=[queue])
        channel = connection.channel()
        got = []
        consumer = kombu.Consumer(channel, [queue], on_message=got.append, prefetch_count=3)
        with consumer:
            while len(got) < 3:
                connection.drain_events(timeout=WAIT_S)
            with pytest.raises(socket.timeout):
                connection.drain_events(timeout=EMPTY_S)
            assert held(broker, unique, f"{unique}.many") == 3
            consumer.qos(prefetch_count=5)
            while len(got) < 5:
                connection.drain_events(timeout=WAIT_S)
            for message in got[:2]:
                message.ack()
            while len(got) < 7:
                connection.drain_events(timeout=WAIT_S)
            assert held(broker, unique, f"{unique}.many") <= 5
        channel.close()
        assert held(broker, unique, f"{unique}.many") == 0
        rest = consume(connection, queue, count=18)
        assert sorted(each.payload for each in rest) == list(range(2, 20))

    def test_queues_are_counted_purged_and_deleted(self, connection, admin, unique):
        channel = connection.default_channel
        with pytest.raises(ChannelError, match="there is no topic"):
            channel.queue_declare("orders", passive=True)
        channel.queue_declare("orders")
        for number in range(3):
            kombu.Producer(channel).publish(number, routing_key="orders")
        assert channel.queue_declare("orders", passive=True).message_count == 3
        assert channel.queue_purge("orders") == 3
        assert channel.queue_declare("orders", passive=True).message_count == 0
        kombu.Producer(channel).publish(4, routing_key="orders")
        channel.queue_delete("orders", if_empty=True)
        assert channel.queue_declare("orders", passive=True).message_count == 1
        channel.queue_delete("orders")
        assert f"{unique}.orders" not in [topic.name for topic in admin.list_topics()]

    def test_a_queue_is_a_topic_as_the_options_say(self, url, admin, unique):
        options = {
            "partitions": 3,
            "topic_config": {"retention.ms": 1000},
            "topic_prefix": f"{unique}.tasks.",
        }
        with kombu.Connection(url, transport_options=options) as connection:
            connection.default_channel.queue_declare("mail")
            topic = f"{unique}.tasks.mail"
            assert len(admin.describe_topics([topic])[topic].partitions) == 3
            assert admin.topic_config(topic)["retention.ms"].value == "1000"
            with pytest.raises(ValueError, match=r"which group .* uses itself"):
                kombu.Connection(url).channel().queue_declare("later")

    def test_a_body_that_the_topic_does_not_take_is_an_error_at_once(self, connection):
        queue = connection.SimpleQueue("big")
        queue.put("x" * 900_000)
        with pytest.raises(KafkaError, match="MESSAGE_TOO_LARGE"):
            queue.put("x" * 2_000_000, retry=True)
        assert len(queue.get(timeout=WAIT_S).payload) == 900_000
        queue.close()

    def test_apps_with_different_names_share_a_cluster(self, broker, unique):
        with contextlib.ExitStack() as stack:
            urls = [f"headrace://{broker.bootstrap_servers}/{unique}-{n}" for n in (1, 2)]
            queues = [stack.enter_context(kombu.Connection(url)).SimpleQueue("celery") for url in urls]
            queues[0].put("one")
            with pytest.raises(queues[1].Empty):
                queues[1].get(timeout=EMPTY_S)
            assert queues[0].get(timeout=WAIT_S).payload == "one"
            for queue in queues:
                queue.close()

    def test_a_message_whose_lock_is_lost_can_still_be_acknowledged_which_the_log_reports(
        self, connection, url, broker, unique, caplog
    ):
        queue = connection.SimpleQueue("lost")
        queue.put("x")
        message = queue.get(timeout=WAIT_S)
        with kombu.Connection(url, transport_options=QUICK) as other:
            queue.consumer.cancel()
            broker.release_record(unique, f"{unique}.lost", 0, 0)
            (again,) = consume(other, kombu.Queue("lost", routing_key="lost"))
            assert again.payload == "x"
        message.ack()
        wait_for(lambda: "was refused, and the tasks may run again" in caplog.text)
        queue.close()


class Shop:
    """A Celery app whose tasks write down what they do."""

    def __init__(self, url, **config):
        self.app = app = celery.Celery("shop", broker=url, backend="rpc://", set_as_current=False)
        app.conf.update(broker_transport_options=QUICK, worker_prefetch_multiplier=1, **config)
        self.runs = runs = Counter()
        self.gate = gate = threading.Event()

        @app.task(shared=False)
        def add(first, second):
            runs["add"] += 1
            runs[first, second] += 1
            return first + second

        @app.task(shared=False, acks_late=True)
        def wait():
            runs["wait"] += 1
            gate.wait(WAIT_S)

        @app.task(shared=False, bind=True, max_retries=2)
        def flaky(task):
            runs["flaky"] += 1
            if task.request.retries < 2:
                raise task.retry(countdown=0.01)
            return task.request.retries

        @app.task(shared=False, bind=True, acks_late=True)
        def again(task):
            runs["again"] += 1
            if not task.request.delivery_info["redelivered"]:
                raise Reject("not yet", requeue=True)
            return "at last"

        @app.task(shared=False, acks_late=True)
        def refuse():
            runs["refuse"] += 1
            raise Reject("never", requeue=False)

        self.add, self.wait, self.flaky, self.again, self.refuse = add, wait, flaky, again, refuse

    def close(self):
        if self.app.backend.result_consumer._consumer is not None:
            self.app.backend.result_consumer.stop()
        self.app.pool.force_close_all()
        self.app.close()

    def worker(self, **options):
        return start_worker(
            self.app, pool="threads", concurrency=4, perform_ping_check=False, loglevel="ERROR", **options
        )


@pytest.fixture(scope="class")
def place():
    return "shop"


@pytest.fixture(scope="class")
def shop(broker, place):
    """With a worker that all tests of a class share."""
    shop = Shop(f"headrace://{broker.bootstrap_servers}/{place}")
    with shop.worker():
        yield shop
    shop.close()


class TestWorker:
    def test_a_task_runs_and_its_result_comes_back(self, shop):
        assert [shop.add.delay("ü" * n, "☃").get(timeout=WAIT_S) for n in range(5)] == [
            "ü" * n + "☃" for n in range(5)
        ]

    def test_a_task_is_retried(self, shop):
        assert shop.flaky.delay().get(timeout=WAIT_S) == 2
        assert shop.runs["flaky"] == 3

    def test_a_requeued_task_comes_again(self, shop):
        assert shop.again.delay().get(timeout=WAIT_S) == "at last"
        assert shop.runs["again"] == 2

    def test_a_rejected_task_does_not(self, shop, broker, place):
        shop.refuse.delay()
        wait_for(lambda: shop.runs["refuse"])
        wait_for(lambda: held(broker, place, f"{place}.celery") == 0)
        assert shop.add.delay(1, 2).get(timeout=WAIT_S) == 3
        assert shop.runs["refuse"] == 1

    def test_a_short_countdown_is_held_and_a_long_one_is_not(self, shop, broker, place):
        assert shop.add.apply_async((1, 2), countdown=0.2).get(timeout=WAIT_S) == 3
        shop.add.apply_async((1, 2), countdown=3600, headers={"k": "v"})
        schedule = Schedule({"bootstrap.servers": broker.bootstrap_servers}, place)
        (waiting,) = schedule.upcoming()
        assert waiting.topic == f"{place}.celery"
        assert timedelta(seconds=3590) < waiting.at - datetime.now(UTC) < timedelta(seconds=3600)
        wait_for(lambda: held(broker, place, f"{place}.celery") == 0)
        schedule.cancel(waiting.id)

    def test_an_eta_is_forwarded_when_it_is_due(self, shop):
        with shop.app.connection_for_write(transport_options={**QUICK, "hold_max": 0}) as connection:
            due = datetime.now(UTC) + timedelta(seconds=0.5)
            result = shop.add.apply_async((3, 4), eta=due, connection=connection)
            assert result.get(timeout=WAIT_S) == 7
        assert datetime.now(UTC) >= due

    def test_remote_control_reaches_the_worker(self, shop):
        ((answer,),) = [each.values() for each in shop.app.control.ping(timeout=WAIT_S, limit=1)]
        assert answer == {"ok": "pong"}

    def test_events_reach_who_listens(self, shop):
        seen = []
        with shop.app.connection_for_read() as connection:
            receiver = shop.app.events.Receiver(connection, handlers={"shop-opened": seen.append})
            with receiver.consumer_context(wakeup=False) as (listening, _, _):
                with shop.app.events.default_dispatcher() as dispatcher:
                    dispatcher.send("shop-opened", door="north")
                while not seen:
                    listening.drain_events(timeout=WAIT_S)
        assert seen[0]["door"] == "north"

    def test_a_record_of_another_program_does_not_stop_the_worker(self, shop, broker, place):
        with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            producer.send(f"{place}.celery", b"\xff", headers={"kombu.message": b"{"}).result()
            producer.send(f"{place}.celery", None, key=b"k").result()
        assert shop.add.delay(1, 2).get(timeout=WAIT_S) == 3
        wait_for(lambda: held(broker, place, f"{place}.celery") == 0)

    def test_many_tasks_from_many_threads_all_run_once(self, shop):
        before = shop.runs["add"]
        threads = [
            threading.Thread(target=lambda: [shop.add.delay(1, 1) for _ in range(25)]) for _ in range(4)
        ]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        wait_for(lambda: shop.runs["add"] == before + 100)


class TestStopping:
    def test_a_worker_that_is_stopped_at_once_gives_back_what_it_holds(self, broker, unique):
        shop = Shop(f"headrace://{broker.bootstrap_servers}/{unique}")
        with shop.worker():  # which ends without waiting for its tasks
            for _ in range(8):
                shop.wait.apply_async(ignore_result=True)
            wait_for(lambda: shop.runs["wait"] == 4)
        assert held(broker, unique, f"{unique}.celery") == 0
        shop.gate.set()
        with shop.worker(), shop.app.connection_for_read() as connection:
            channel = connection.default_channel
            wait_for(lambda: channel.queue_declare("celery", passive=True).message_count == 0)
        assert shop.runs["wait"] == 12
        shop.close()

    def test_a_task_that_takes_longer_than_its_lock_runs_once(self, unique):
        with Broker(settings={"group.share.min.record.lock.duration.ms": 1_000}) as broker:
            with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
                admin.set_group_config(unique, {"share.record.lock.duration.ms": "1000"})
            shop = Shop(f"headrace://{broker.bootstrap_servers}/{unique}")
            with shop.worker():
                shop.wait.apply_async(ignore_result=True)
                wait_for(lambda: shop.runs["wait"])
                wait_for(lambda: renewals(broker, unique) >= 3)
                shop.gate.set()
                wait_for(lambda: held(broker, unique, f"{unique}.celery") == 0)
            assert shop.runs["wait"] == 1
            shop.close()

    def test_a_worker_goes_on_when_the_broker_has_been_restarted(self, tmp_path, unique):
        with contextlib.ExitStack() as working:
            with Broker(data_dir=tmp_path) as first:
                port = int(first.bootstrap_servers.rpartition(":")[2])
                shop = Shop(f"headrace://{first.bootstrap_servers}/{unique}")
                working.enter_context(shop.worker())
                shop.add.apply_async((1, 2), ignore_result=True)
                wait_for(lambda: shop.runs[1, 2])
            with Broker(data_dir=tmp_path, port=port) as second:
                shop.add.apply_async((3, 4), ignore_result=True)
                wait_for(lambda: shop.runs[3, 4])
                wait_for(lambda: held(second, unique, f"{unique}.celery") == 0)
                working.close()
        shop.close()
