"""Records that are sent later, retries without a lock, periodic tasks: with a clock that is turned."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, aclosing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

from headrace import Admin, Broker, Producer
from headrace.client.producing.aio import AsyncProducer
from headrace.worker import Firing, Queue, QueueError, Retry
from headrace.worker.later import POSITIONS, STEPS, StepPositions, step_of
from headrace.worker.schedule import ReadLimit, Schedule
from headrace.worker.testing import QueueTest
from tests.conformance.steps import wait_for

WAIT_S = 60


@dataclass
class Email:
    to: str


@pytest.fixture
def queue():
    with Queue("localhost:1", group_id="mailers") as queue:
        yield queue


@pytest.fixture
def sent(queue):
    """What the task has got, and when, in seconds since the test began."""
    found: list[tuple[str, float]] = []
    begin_ms = queue.now_ms()

    @queue.task("emails")
    async def send(email: Email) -> None:
        found.append((email.to, (queue.now_ms() - begin_ms) / 1000))

    queue.send_email = send
    return found


def only(test: QueueTest):
    (metrics,) = test.metrics().values()
    return metrics


@contextmanager
def at_work(queue: Queue) -> Iterator[None]:
    """A worker of the queue, on a thread."""
    started = threading.Event()
    thread = threading.Thread(target=queue.run, kwargs={"on_started": started.set})
    thread.start()
    try:
        assert started.wait(WAIT_S)
        yield
    finally:
        queue.stop()
        thread.join()
        queue.close()


async def scan_while(schedule: Schedule, act: Callable[[], None]) -> list[bytes]:
    """The values of all scheduled records; `act` comes after the first."""
    found = []
    async with aclosing(schedule.scan()) as scheduled:
        async for each in scheduled:
            found.append(each.value)
            if len(found) == 1:
                await asyncio.to_thread(act)
    return found


class TestScan:
    def test_records_that_are_moved_and_deleted_meanwhile_are_still_found(self):
        with Broker() as broker, Queue(broker.bootstrap_servers, group_id="mailers") as queue:
            day, hour = step_of(86_400_000), step_of(3_600_000)
            queue.send("emails", "tomorrow", delay=86_400)
            for body in ("first", "second"):
                queue.send("emails", body, delay=3_600)

            def forward() -> None:
                """As a forwarder would have done it, half a day later."""
                queue.send("emails", "tomorrow", delay=3_600)
                with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
                    admin.delete_records({("mailers.later", hour): 1, ("mailers.later", day): 1})

            schedule = Schedule({"bootstrap.servers": broker.bootstrap_servers}, "mailers")
            found = asyncio.run(scan_while(schedule, forward))
            assert found == [b"tomorrow", b"second", b"tomorrow"]

    @pytest.mark.parametrize("limit", [ReadLimit(records=2, bytes=1 << 20), ReadLimit(records=9, bytes=100)])
    def test_a_limit_leaves_the_last_of_each_step_and_says_so(self, limit):
        with Broker() as broker, Queue(broker.bootstrap_servers, group_id="mailers") as queue:
            queue.send("emails", "tomorrow", delay=86_400)
            for body in ("first", "second", "third"):
                queue.send("emails", body, delay=3_600)
            schedule = Schedule({"bootstrap.servers": broker.bootstrap_servers}, "mailers")
            found = [each.value for each in asyncio.run(schedule.upcoming_async(9, limit))]
            assert limit.is_exceeded
            assert b"third" not in found
            assert {b"first", b"tomorrow"} <= set(found)

            enough = ReadLimit(records=3, bytes=1 << 20)
            assert len(asyncio.run(schedule.upcoming_async(9, enough))) == 4
            assert not enough.is_exceeded


class TestDelay:
    def test_a_record_comes_at_its_time_and_not_before(self, queue, sent):
        with QueueTest(queue) as test:
            queue.send_email.send(Email("ada"), delay=timedelta(minutes=10), key="k", headers={"trace": "7"})
            test.run_until_idle()
            test.advance(590)
            test.run_until_idle()
            assert sent == []
            test.advance(15)
            test.run_until_idle()

            ((name, after_s),) = sent
            assert name == "ada"
            assert after_s >= 600
            (record,) = test.records("emails")
            assert record.key == b"k"
            assert record.headers["trace"] == "7"
            assert "headrace.later.topic" not in record.headers

    def test_records_come_in_the_order_of_their_times(self, queue, sent):
        with QueueTest(queue) as test:
            now = datetime.fromtimestamp(queue.now_ms() / 1000, UTC)
            for minutes in (7, 1, 3, 20):
                queue.send("emails", Email(str(minutes)), at=now + timedelta(minutes=minutes))
            for _ in range(25):
                test.advance(60)
                test.run_until_idle()
            assert [name for name, _ in sent] == ["1", "3", "7", "20"]
            assert all(after_s >= 60 * int(name) for name, after_s in sent)

    def test_what_is_scheduled_can_be_listed_and_canceled(self, queue, sent):
        with QueueTest(queue) as test:
            first = queue.schedule("emails", Email("ada"), delay=3600, key="a")
            second = queue.send_email.schedule(Email("bob"), delay=60)
            assert [(each.id, each.topic, each.value) for each in queue.scheduled()] == [
                (second.id, "emails", b'{"to":"bob"}'),
                (first.id, "emails", b'{"to":"ada"}'),
            ]
            assert queue.scheduled()[1].at == first.at
            assert [each.id for each in queue.scheduled(1)] == [second.id]

            assert queue.cancel(second)
            assert [each.id for each in queue.scheduled()] == [first.id]
            test.advance(70)
            test.run_until_idle()
            assert sent == []
            assert not queue.cancel(second.id), "its time is over"
            with pytest.raises(QueueError, match="is not the ID of a scheduled record"):
                queue.cancel("nonsense")

    def test_a_time_without_a_zone_is_refused(self, queue, sent):
        with pytest.raises(ValueError, match="with a time zone"), QueueTest(queue):
            queue.send("emails", Email("ada"), at=datetime.now())


class TestTrouble:
    """What is wrong with one record, or with the topics, holds up no other record."""

    def test_a_record_that_its_topic_refuses(self, queue, sent, caplog):
        with QueueTest(queue) as test:
            with Admin(bootstrap_servers=test.broker.bootstrap_servers) as admin:
                admin.create_topic("compacted", configs={"cleanup.policy": "compact"})
            for _ in range(3):
                queue.send("compacted", Email("no key"), delay=10)
            queue.send("emails", Email("ada"), delay=10)
            test.advance(15)
            test.run_until_idle()
            assert [name for name, _ in sent] == ["ada"]
            assert caplog.text.count("could not be sent to topic compacted") == 3
            assert len(queue.scheduled()) == 3

    def test_records_for_a_topic_that_is_gone(self, queue, sent, caplog):
        with QueueTest(queue, settings={"auto.create.topics.enable": "false"}) as test:
            for _ in range(3):
                queue.send("gone", Email("nobody"), delay=10)
            queue.send("emails", Email("ada"), delay=10)
            test.advance(15)
            test.run_until_idle()
            assert [name for name, _ in sent] == ["ada"]
            assert "could not be sent to topic gone" in caplog.text
            assert len(queue.scheduled()) == 3

    def test_a_topic_that_is_gone_is_waited_for_once_and_used_when_it_is_back(self, queue, sent, caplog):
        with QueueTest(queue, settings={"auto.create.topics.enable": "false"}) as test:
            queue.send("gone", Email("nobody"), delay=10)
            test.advance(15)
            wait_for(lambda: "could not be sent to topic gone" in caplog.text)
            assert "UNKNOWN_TOPIC_OR_PARTITION" in caplog.text
            caplog.clear()
            test.advance(301)
            wait_for(lambda: "could not be sent to topic gone" in caplog.text)
            assert "retrying in 300 s: it does not exist" in caplog.text
            with Admin(bootstrap_servers=test.broker.bootstrap_servers) as admin:
                admin.create_topic("gone")
            test.advance(301)
            wait_for(lambda: test.records("gone"))
            assert queue.scheduled() == []

    @pytest.mark.parametrize("setting", [{"acks": "1"}, {"enable.idempotence": False}])
    def test_what_a_queue_sends_with_less_certainty_is_forwarded_all_the_same(self, setting):
        with Queue("localhost:1", group_id="mailers", settings=setting) as queue:
            sent = []

            @queue.task("emails")
            def send(email: str) -> None:
                sent.append(email)

            with QueueTest(queue) as test:
                send.send("ada", delay=60)
                test.advance(61)
                wait_for(lambda: sent)

    def test_trouble_that_lasts_is_logged_once(self, queue, sent, caplog, monkeypatch):
        tries = []
        begin = AsyncProducer.begin

        async def refused(producer: AsyncProducer) -> None:
            tries.append(producer)
            if len(tries) <= 3:
                raise ConnectionError("the coordinator is away")
            await begin(producer)

        monkeypatch.setattr(AsyncProducer, "begin", refused)
        monkeypatch.setattr("headrace.worker.forwarder.AGAIN_S", 0.01)
        with QueueTest(queue):
            queue.send("emails", Email("ada"), delay=1)
            wait_for(lambda: sent)
        assert caplog.text.count("scheduled records are delayed, retrying: the coordinator is away") == 1

    def test_a_group_without_a_schedule_has_nothing_to_cancel(self, queue, sent):
        with QueueTest(queue) as test:
            moment_ms = queue.now_ms() + 60_000
            with pytest.raises(QueueError, match=r"'mailers' has no schedule: .* mailers\.later\.control"):
                queue.cancel(f"{moment_ms:x}-00")
            with Admin(bootstrap_servers=test.broker.bootstrap_servers) as admin:
                assert "mailers.later.control" not in [topic.name for topic in admin.list_topics()]

    def test_a_periodic_task_whose_topic_is_gone(self, queue, sent, caplog):
        @queue.every(60)
        async def cleanup(firing: Firing) -> None: ...

        with QueueTest(queue, settings={"auto.create.topics.enable": "false"}) as test:
            queue.send("emails", Email("ada"), delay=90)
            with Admin(bootstrap_servers=test.broker.bootstrap_servers) as admin:
                admin.delete_topics(["mailers.cleanup"])
            test.advance(100)
            wait_for(lambda: sent)
            assert "could not be sent; this period is skipped" in caplog.text

    def test_positions_of_a_schedule_that_was_deleted(self, queue, sent):
        test = QueueTest(queue)
        with test.broker as broker:
            Schedule({"bootstrap.servers": broker.bootstrap_servers}, "mailers").prepare()
            topic_id = broker.call(lambda: broker.core.topics.get("mailers.later").id)
            with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
                positions = StepPositions(topic_id, (1_000,) * STEPS).write()
                producer.send("mailers.later.control", positions, key=POSITIONS, partition=0).result(WAIT_S)
            with test:
                queue.send("emails", Email("ada"), delay=1)
                wait_for(lambda: sent)

    def test_a_schedule_that_is_created_again_under_a_running_worker(self, queue, sent):
        """The old topic's positions say nothing about the new one, even if they fit."""
        with QueueTest(queue) as test:
            for name in ("ada", "bob", "cy"):
                queue.send("emails", Email(name), delay=60)
            test.advance(61)
            wait_for(lambda: len(sent) == 3)
            with Admin(bootstrap_servers=test.broker.bootstrap_servers) as admin:
                admin.delete_topics(["mailers.later"])
                admin.create_topic("mailers.later", STEPS)
            for name in ("dan", "eve", "fay"):
                queue.send("emails", Email(name), delay=60)
            assert len(queue.scheduled()) == 3
            test.advance(61)
            wait_for(lambda: [name for name, _ in sent[3:]] == ["dan", "eve", "fay"])

    def test_a_control_topic_that_is_created_again_under_a_running_worker(self, queue, sent):
        with QueueTest(queue) as test:
            queue.send("emails", Email("ada"), delay=60)
            test.advance(61)
            wait_for(lambda: sent)
            with Admin(bootstrap_servers=test.broker.bootstrap_servers) as admin:
                admin.delete_topics(["mailers.later.control"])
                admin.create_topic("mailers.later.control", 1, configs={"cleanup.policy": "compact"})
            bob, _ = [queue.schedule("emails", Email(name), delay=60) for name in ("bob", "cy")]
            assert queue.cancel(bob)
            test.advance(61)
            wait_for(lambda: [name for name, _ in sent] == ["ada", "cy"])

    def test_a_schedule_whose_positions_were_deleted(self, queue, sent):
        test = QueueTest(queue)
        with test.broker as broker:
            Schedule({"bootstrap.servers": broker.bootstrap_servers}, "mailers").prepare()
            step = step_of(1_000)
            with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
                producer.send("mailers.later", b"moved", partition=step).result(WAIT_S)
            with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
                admin.delete_records({("mailers.later", step): 1})
            with test:
                queue.send("emails", Email("ada"), delay=1)
                wait_for(lambda: sent)

    def test_a_topic_that_would_forget_what_waits_is_warned_of(self, queue, sent, caplog):
        with QueueTest(queue) as test:
            with Admin(bootstrap_servers=test.broker.bootstrap_servers) as admin:
                admin.create_topic("mailers.later", STEPS, configs={"retention.ms": "86400000"})
            queue.send("emails", Email("ada"), delay=1)
            assert "topic mailers.later has retention.ms=86400000" in caplog.text

    def test_a_record_that_would_write_to_the_schedule_itself(self, queue, sent, caplog):
        with QueueTest(queue) as test:
            queue.send("mailers.later.control", b"\xff" * 192, key="positions", delay=1)
            queue.send("emails", Email("ada"), delay=2)
            test.advance(5)
            test.run_until_idle()
            assert [name for name, _ in sent] == ["ada"]
            assert "is not a scheduled record and is skipped" in caplog.text

    def test_what_was_canceled_long_ago_is_not_sent_by_a_late_forwarder(self, queue, sent, monkeypatch):
        monkeypatch.setattr("headrace.worker.forward_plan.MOVES_MAX", 1)
        with QueueTest(queue):
            for name in ("ada", "bob", "canceled"):
                last = queue.schedule("emails", Email(name), delay=600)
            assert queue.cancel(last)
            now_ms = queue.now_ms() + 7_200_000
            queue.now_ms = lambda: now_ms
            wait_for(lambda: len(sent) == 2 and not queue.scheduled())
            assert [name for name, _ in sent] == ["ada", "bob"]


class TestLeaders:
    """Of the workers of a group one forwards. The others do not disturb it."""

    def test_a_worker_that_is_fenced_within_a_transaction_stands_by(self, queue, sent, caplog, monkeypatch):
        """Whoever was fenced and led again at once would fence the new leader, and so on for ever."""
        caplog.set_level("INFO", logger="headrace.worker")
        with QueueTest(queue) as test:
            queue.send("emails", Email("ada"), delay=60)
            wait_for(lambda: "this worker forwards scheduled records" in caplog.text)
            send_soon, fenced = AsyncProducer.send_soon, []

            async def fence(*arguments, **keywords):
                """Another worker begins to lead while this one is about to send."""
                if not fenced:
                    fenced.append(True)
                    settings = {"bootstrap.servers": test.broker.bootstrap_servers}
                    async with AsyncProducer(settings, transactional_id="mailers.later") as other:
                        await other.begin()
                        await other.send("elsewhere", b"other")
                        await other.commit()
                return await send_soon(*arguments, **keywords)

            monkeypatch.setattr(AsyncProducer, "send_soon", fence)
            test.advance(61)
            wait_for(lambda: "another worker forwards scheduled records now" in caplog.text)
            test.advance(10)  # the other one does nothing, so this one leads again
            test.advance(10)
            wait_for(lambda: sent)
        assert "retrying" not in caplog.text

    def test_a_periodic_task_that_the_leader_does_not_have_is_sent_though_the_leader_is_busy(self):
        fired = []
        with Broker() as broker, ExitStack() as stack:
            servers = broker.bootstrap_servers
            ticks, others = Queue(servers, group_id="mailers"), Queue(servers, group_id="mailers")

            @ticks.every(1)
            def tick(firing: Firing) -> None:
                fired.append(firing.at)

            @others.task("others")
            def other(body: str) -> None: ...

            stack.enter_context(at_work(ticks))
            wait_for(lambda: fired)
            stack.enter_context(at_work(others))
            count = len(fired)
            wait_for(lambda: others.send("others", "x", delay=0) and len(fired) > count + 2)

    def test_workers_that_start_together_all_have_their_periodic_tasks_sent(self):
        """All but one are fenced before their first round, in which the group gets to know their tasks."""
        fired = []
        with Broker() as broker, ExitStack() as stack:
            queues = [Queue(broker.bootstrap_servers, group_id="mailers") for _ in range(2)]
            for number, queue in enumerate(queues):

                @queue.every(1, f"ticks{number}")
                def tick(firing: Firing, number: int = number) -> None:
                    fired.append(number)

            for queue in queues:
                stack.enter_context(at_work(queue))
            wait_for(lambda: {*fired} == {0, 1})


class TestLongRetries:
    def test_a_long_wait_keeps_no_lock_and_its_attempts_go_on(self, queue):
        seen = []

        @queue.task("emails")
        async def send(email: Email, delivery) -> None:
            seen.append(dict(delivery.headers).get("headrace.attempts"))
            if len(seen) < 3:
                raise Retry(after=86_400 * 0.01)

        with QueueTest(queue) as test:
            test.send("emails", Email("ada"))
            test.run_until_idle()
            assert (only(test).held, only(test).scheduled) == (0, 1)
            assert len(queue.scheduled()) == 1
            for _ in range(2):
                test.advance(870)
                test.run_until_idle()
            assert seen == [None, b"1", b"2"]
            assert (only(test).succeeded, only(test).lost, len(queue.scheduled())) == (1, 0, 0)

    def test_short_waits_and_those_in_key_order_keep_their_lock(self, queue):
        @queue.task("emails", key_order=True)
        async def send(email: Email) -> None:
            raise Retry(after=7200)

        with QueueTest(queue) as test:
            test.send("emails", Email("ada"), key="k")
            test.run_until_idle()
            assert (only(test).held, only(test).scheduled) == (1, 0)


class TestEvery:
    def test_a_periodic_task_is_sent_once_a_period(self, queue):
        firings = []

        @queue.every("*/5 * * * *")
        async def cleanup(firing: Firing) -> None:
            firings.append(firing.at)

        with QueueTest(queue) as test:
            for _ in range(10):
                test.advance(120)
                test.run_until_idle()
            assert len(firings) in (4, 5)
            assert firings == sorted(set(firings))
            assert all(at.minute % 5 == 0 and at.second == 0 for at in firings)
            assert {b - a for a, b in pairwise(firings)} == {timedelta(minutes=5)}

    def test_a_wrong_expression_is_refused_at_the_declaration(self, queue):
        with pytest.raises(ValueError, match="is not a cron expression"):
            queue.every("every day")
