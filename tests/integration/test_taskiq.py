"""Taskiq on a share group, with Taskiq's own receiver and worker processes."""

import asyncio
import base64
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractContextManager, asynccontextmanager
from functools import wraps
from pathlib import Path
from typing import Any

import pytest
from taskiq import (
    BrokerMessage,
    Context,
    InMemoryBroker,
    SendTaskError,
    SimpleRetryMiddleware,
    SmartRetryMiddleware,
    TaskiqDepends,
    TaskiqResult,
)
from taskiq.acks import AcknowledgeType
from taskiq.receiver import Receiver

from headrace import Admin, Broker, Producer
from headrace.adapters.taskiq import HeadraceBroker
from headrace.client.errors import GroupIdNotFoundError
from headrace.worker.errors import QueueError
from tests.conformance.steps import wait_for
from tests.worker_processes import process_group

LOCK_MS = 4_000
WAIT_S = 60.0
KILLED_TASKS = 300
KILLED_S = 180.0
SECURED = {"listeners": "SASL_PLAINTEXT://localhost:0", "sasl.enabled.mechanisms": "SCRAM-SHA-512"}
APP = Path(__file__).with_name("taskiq_app.py")


@pytest.fixture(scope="module")
def server() -> Iterator[Broker]:
    settings = {
        "group.share.min.record.lock.duration.ms": 1_000,
        "group.share.assignment.interval.ms": 0,
    }
    with Broker(settings=settings) as server:
        yield server


@pytest.fixture
def admin(server: Broker) -> Iterator[Admin]:
    with Admin(bootstrap_servers=server.bootstrap_servers) as admin:
        yield admin


@pytest.fixture
def make_broker(server: Broker, unique: str) -> Callable[..., HeadraceBroker]:
    def make(**options: Any) -> HeadraceBroker:
        return HeadraceBroker(
            server.bootstrap_servers, **{"group_id": unique, "queue_name": unique, **options}
        )

    return make


@pytest.fixture
def broker(make_broker) -> HeadraceBroker:
    return make_broker()


def on_a_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @wraps(test)
    def run(*arguments: Any, **keywords: Any) -> None:
        asyncio.run(test(*arguments, **keywords))

    return run


@asynccontextmanager
async def working(broker: HeadraceBroker, **options: Any):
    """A worker of Taskiq in this process."""
    receiver = Receiver(broker, **{"max_async_tasks": 10, **options})
    stopping = asyncio.Event()
    listening = asyncio.create_task(receiver.listen(stopping))
    try:
        yield receiver
    finally:
        stopping.set()
        await listening
        await broker.shutdown()


async def until(look: Callable[[], Any]) -> Any:
    return await asyncio.to_thread(wait_for, look, timeout_s=WAIT_S)


def lag(admin: Admin, group: str, topic: str | None = None) -> int | None:
    try:
        offsets = admin.share_group_offsets(group, [topic or group]).values()
    except GroupIdNotFoundError:
        return None
    lags = [one.lag for one in offsets]
    return None if None in lags else sum(lags)


class TestTasks:
    @on_a_loop
    async def test_every_task_runs_once(self, broker, admin, unique):
        got: Counter[int] = Counter()

        @broker.task
        async def count(number: int) -> None:
            got[number] += 1

        async with working(broker):
            await asyncio.gather(*(count.kiq(number) for number in range(200)))
            await until(lambda: len(got) == 200)
            await until(lambda: lag(admin, unique) == 0)
        assert got == Counter(range(200))

    @on_a_loop
    async def test_results_and_errors_reach_the_result_backend(self, broker):
        broker.with_result_backend(InMemoryBroker().result_backend)

        @broker.task
        def shout(text: str, data: str) -> str:
            return text.upper() + str(len(base64.b64decode(data)))

        @broker.task
        async def fail() -> None:
            raise ValueError("no")

        async with working(broker):
            done = await shout.kiq("żółw \U0001f422", base64.b64encode(bytes(range(256))).decode())
            failed = await fail.kiq()
            result = await done.wait_result(timeout=WAIT_S)
            assert result.return_value == "ŻÓŁW \U0001f422256"
            assert (await failed.wait_result(timeout=WAIT_S)).is_err

    @on_a_loop
    async def test_queues_are_topics_and_a_worker_consumes_those_of_its_tasks(
        self, broker, make_broker, admin, unique
    ):
        got: list[tuple[str, str]] = []

        @broker.task("plain")
        async def plain(text: str) -> None:
            got.append(("plain", text))

        @broker.task("mail", queue_name=f"{unique}-mail")
        async def mail(text: str) -> None:
            got.append(("mail", text))

        assert broker.topics() == [unique, f"{unique}-mail"]
        async with working(broker):
            await plain.kiq("a")
            await mail.kiq("b")
            await plain.kicker().with_labels(queue_name=f"{unique}-mail").kiq("c")
            await until(lambda: len(got) == 3)
        assert sorted(got) == [("mail", "b"), ("plain", "a"), ("plain", "c")]
        assert make_broker(queues=["only", "only", "these"]).topics() == ["only", "these"]
        names = {topic.name for topic in admin.list_topics()}
        assert {unique, f"{unique}-mail"} <= names

    @on_a_loop
    async def test_a_delayed_task_is_never_early(self, broker):
        ran: list[float] = []

        @broker.task
        async def note() -> None:
            ran.append(time.time())

        async with working(broker):
            begin = time.time()
            await note.kicker().with_labels(delay=0.5).kiq()
            await until(lambda: ran)
        assert ran[0] - begin >= 0.5

    @pytest.mark.parametrize("middleware", [SimpleRetryMiddleware(), SmartRetryMiddleware(default_delay=0.1)])
    @on_a_loop
    async def test_taskiqs_retries_work(self, broker, middleware):
        runs: list[int] = []
        broker.add_middlewares(middleware)

        @broker.task(retry_on_error=True, max_retries=5)
        async def fail() -> None:
            runs.append(1)
            if len(runs) < 3:
                raise RuntimeError("again")

        async with working(broker):
            await fail.kiq()
            await until(lambda: len(runs) == 3)

    @pytest.mark.parametrize("value", [b"\xff\x00", b"", None])
    @on_a_loop
    async def test_what_is_no_message_holds_up_nothing(self, broker, server, admin, unique, value):
        got: list[str] = []

        @broker.task
        async def note(text: str) -> None:
            got.append(text)

        async with working(broker):
            await note.kiq("before")
            with Producer(bootstrap_servers=server.bootstrap_servers) as producer:
                await producer.send(unique, value)
            await note.kiq("after")
            await until(lambda: len(got) == 2)
            await until(lambda: lag(admin, unique) == 0)

    @on_a_loop
    async def test_any_bytes_are_carried(self, broker, make_broker):
        data = bytes(range(256)) * 100
        await broker.kick(BrokerMessage(task_id="1", task_name="ą", message=data, labels={}))
        messages = broker.listen()
        message = await anext(messages)
        assert message.data == data
        await message.ack()
        await messages.aclose()
        await broker.shutdown()


class TestAcknowledgements:
    @pytest.mark.parametrize("kind", [each for each in AcknowledgeType if each is not AcknowledgeType.MANUAL])
    @on_a_loop
    async def test_each_type_of_acknowledgement_settles_the_message(self, broker, admin, unique, kind):
        settled: dict[str, bool] = {}

        class Backend(type(broker.result_backend)):
            async def set_result(self, task_id: str, result: TaskiqResult[Any]) -> None:
                settled["saving"] = await asyncio.to_thread(lag, admin, unique) == 0

        broker.with_result_backend(Backend())

        @broker.task(ack_type=kind.value)
        async def look() -> None:
            settled["running"] = await asyncio.to_thread(lag, admin, unique) == 0

        async with working(broker):
            await look.kiq()
            await until(lambda: "saving" in settled)
            await until(lambda: lag(admin, unique) == 0)
        # An acknowledgement has arrived before Taskiq goes on.
        wanted = {"when_received": (True, True), "when_executed": (False, True), "when_saved": (False, False)}
        assert (settled["running"], settled["saving"]) == wanted[kind.value]

    @on_a_loop
    async def test_a_task_may_acknowledge_itself(self, broker, admin, unique):
        acknowledged = threading.Event()

        @broker.task(ack_type=AcknowledgeType.MANUAL.value)
        async def settle(context: Context = TaskiqDepends()) -> None:
            await context.ack()
            acknowledged.set()

        async with working(broker):
            await settle.kiq()
            await until(acknowledged.is_set)
            assert await asyncio.to_thread(lag, admin, unique) == 0

    @on_a_loop
    async def test_no_more_messages_are_held_than_can_be_started(self, broker, make_broker, unique):
        """The other worker gets all that the busy one has not begun."""
        begun, done, go = [], [], asyncio.Event()

        @broker.task("work")
        async def work(number: int) -> None:
            begun.append(number)
            await go.wait()

        other = make_broker()

        @other.task("work")
        async def work_too(number: int) -> None:
            done.append(number)

        async with working(broker, max_async_tasks=2), working(other):
            for number in range(10):
                await work.kiq(number)
            await until(lambda: len(begun) + len(done) == 10)
            go.set()
        assert len(begun) <= 2

    @on_a_loop
    async def test_locks_are_renewed_while_a_task_blocks_the_event_loop(self, broker, admin, unique, caplog):
        admin.set_group_config(unique, {"share.record.lock.duration.ms": LOCK_MS})
        await broker.kick(BrokerMessage(task_id="t", task_name="t", message=b"", labels={}))
        messages = broker.listen()
        message = await anext(messages)
        (delivery,) = message.ack.args
        end = delivery.lock_deadline
        wait_for(lambda: delivery.lock_deadline > end + 1)  # nothing else runs on this loop meanwhile
        await message.ack()
        assert lag(admin, unique) == 0
        await messages.aclose()
        await broker.shutdown()
        assert "delivered again" not in caplog.text

    @pytest.mark.parametrize("prefetch", [1, 5])
    @on_a_loop
    async def test_what_is_not_acknowledged_goes_to_others_at_shutdown(self, make_broker, prefetch):
        broker, other = make_broker(prefetch=prefetch), make_broker()
        for number in range(5):
            await broker.kick(
                BrokerMessage(task_id=str(number), task_name="t", message=b"%d" % number, labels={})
            )
        messages = broker.listen()
        first, second = await anext(messages), await anext(messages)
        await first.ack()
        await messages.aclose()
        rest = other.listen()
        if prefetch > 1:  # what was fetched and not asked for is given back before the shutdown
            assert {(await anext(rest)).data for _ in range(3)} == {b"2", b"3", b"4"}
        await broker.shutdown()
        await second.ack()  # too late: it is logged
        left = {(await anext(rest)).data for _ in range(1 if prefetch > 1 else 4)}
        assert second.data in left
        await rest.aclose()
        await other.shutdown()

    @on_a_loop
    async def test_a_canceled_wait_keeps_no_message(self, broker, make_broker):
        """Whatever the moment: Taskiq cancels its wait for the next message when it stops."""
        other = make_broker()
        for round in range(6):
            messages = broker.listen()
            waiting = asyncio.ensure_future(anext(messages))
            kicking = asyncio.create_task(
                broker.kick(BrokerMessage(task_id="t", task_name="t", message=b"%d" % round, labels={}))
            )
            await (kicking if round % 2 else asyncio.sleep(0))
            waiting.cancel()
            got = (await asyncio.gather(waiting, return_exceptions=True))[0]
            await kicking
            await messages.aclose()
            if isinstance(got, BaseException):
                rest = other.listen()
                got = await asyncio.wait_for(anext(rest), WAIT_S)
                await rest.aclose()
            assert got.data == b"%d" % round
            await got.ack()
        await broker.shutdown()
        await other.shutdown()


class TestBroker:
    @on_a_loop
    async def test_sending_needs_no_startup_and_says_what_is_wrong(self):
        broker = HeadraceBroker("localhost:1", default_api_timeout_ms=200)

        @broker.task
        async def note() -> None: ...

        with pytest.raises(SendTaskError) as caught:
            await note.kiq()
        assert "localhost:1" in str(caught.value.__cause__)
        await broker.shutdown()

    @pytest.mark.parametrize(
        "options",
        [
            {"group_id": ""},
            {"partitions": 0},
            {"prefetch": 0},
            {"prefetch": 1_001},
            {"queues": []},
            {"queues": "name"},
        ],
    )
    def test_options_that_cannot_be_are_refused(self, options):
        with pytest.raises(QueueError, match=r"must be .*, got"):
            HeadraceBroker("localhost:1", **options)

    @on_a_loop
    async def test_a_delay_that_is_no_number_is_refused(self, broker):
        with pytest.raises(QueueError, match="label delay must be a number of seconds, got 'soon'"):
            await broker.kick(
                BrokerMessage(task_id="t", task_name="t", message=b"", labels={"delay": "soon"})
            )

    def test_the_groups_own_topics_are_no_queues(self):
        with pytest.raises(QueueError, match="use another name"):
            HeadraceBroker("localhost:1", group_id="shop", queue_name="shop.later")

    @on_a_loop
    async def test_a_worker_waits_for_a_broker_and_stops_without_one(self, caplog):
        broker = HeadraceBroker("localhost:1", default_api_timeout_ms=200)
        async with working(broker):
            await until(lambda: "cannot be consumed yet" in caplog.text)

    @on_a_loop
    async def test_settings_reach_every_client(self):
        """A login that any of them did not have would be refused."""
        server = await asyncio.to_thread(Broker(settings=SECURED, users={"shop": "secret"}).start)
        broker = HeadraceBroker(
            server.bootstrap_servers,
            settings={"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-512"},
            sasl_username="shop",
            sasl_password="secret",
        )
        got: list[str] = []

        @broker.task
        async def note(text: str) -> None:
            got.append(text)

        async with working(broker):
            await note.kiq("now")
            await note.kicker().with_labels(delay=0.1).kiq("later")
            await until(lambda: len(got) == 2)
        await asyncio.to_thread(server.stop)

    @on_a_loop
    async def test_workers_go_on_when_the_broker_restarts(self, tmp_path):
        got: Counter[int] = Counter()
        server = await asyncio.to_thread(Broker(data_dir=tmp_path).start)
        port = int(server.bootstrap_servers.rpartition(":")[2])
        broker = HeadraceBroker(server.bootstrap_servers, group_id="shop")

        @broker.task
        async def count(number: int) -> None:
            got[number] += 1

        try:
            async with working(broker):
                for number in range(20):
                    await count.kiq(number)
                await until(lambda: len(got) == 20)
                await asyncio.to_thread(server.stop)
                server = await asyncio.to_thread(Broker(data_dir=tmp_path, port=port).start)
                for number in range(20, 40):
                    await count.kiq(number)
                await until(lambda: len(got) == 40)
        finally:
            await asyncio.to_thread(server.stop)


def worker_processes(
    server: Broker, group: str, folder: Path
) -> AbstractContextManager["subprocess.Popen[bytes]"]:
    """Taskiq's own command with two processes."""
    settings = {"SERVERS": server.bootstrap_servers, "GROUP": group, "FOLDER": str(folder)}
    command = ("taskiq", "worker", "taskiq_app:broker", "--app-dir", str(APP.parent), "--workers", "2")
    return process_group(*command, environment=settings)


def done_in(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


@pytest.mark.timeout(600)
def test_no_task_is_lost_when_worker_processes_are_killed(server, broker, admin, unique, tmp_path):
    """Some are done at once, some fail and are retried, some are delayed; all processes are killed, again and again."""
    admin.set_group_config(
        unique, {"share.record.lock.duration.ms": LOCK_MS, "share.delivery.count.limit": 10}
    )
    folder = tmp_path / "done"
    folder.mkdir()
    (tmp_path / "tried").mkdir()

    async def send() -> None:
        note = broker.task("note")(lambda name: None)
        flaky = broker.task("flaky", retry_on_error=True)(lambda name: None)
        for number in range(KILLED_TASKS):
            kicker = (note, flaky)[number % 2].kicker()
            await (kicker.with_labels(delay=0.5) if number % 5 == 0 else kicker).kiq(str(number))
        await broker.shutdown()

    asyncio.run(send())
    for share in (0.1, 0.3, 0.5):
        with worker_processes(server, unique, folder):
            wait_for(lambda share=share: len(done_in(folder)) >= share * KILLED_TASKS, timeout_s=KILLED_S)
    with worker_processes(server, unique, folder) as last:
        wait_for(lambda: len(done_in(folder)) == KILLED_TASKS, timeout_s=KILLED_S)
        wait_for(lambda: lag(admin, unique) == 0)
        last.send_signal(signal.SIGTERM)
        last.wait(60)
    assert done_in(folder) == {str(number) for number in range(KILLED_TASKS)}
