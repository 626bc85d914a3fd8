"""Producers around what goes wrong outside of them: brokers away, forks, full buffers, programs that just end."""

import asyncio
import contextlib
import itertools
import os
import subprocess
import sys
import textwrap
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from headrace import Admin, AsyncProducer, Broker, Producer, ProducerRecord, RecordMetadata, TopicPartition
from headrace.client.cluster import Cluster
from headrace.client.errors import (
    BufferFullError,
    ConfigError,
    IllegalStateError,
    RecordTooLargeError,
    RequestTimeoutError,
    SomeNotSentError,
    UnknownTopicOrPartitionError,
)
from headrace.client.plain_fetch import list_offsets, read_range
from headrace.client.producing import core
from headrace.client.producing.future import SendFuture
from headrace.client.settings import ClientSettings
from headrace.wire.enums import OffsetSpec
from headrace.wire.errors import KafkaError
from headrace.wire.records import read_records
from tests.chaos.server_process import ServerProcess

AWAY = "127.0.0.1:1"


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(settings={"auto.create.topics.enable": "false"}) as running:
        with Admin(bootstrap_servers=running.bootstrap_servers) as admin:
            admin.create_topic("t", 2)
        yield running


def end_offsets(broker: Broker) -> int:
    latest = OffsetSpec.LATEST
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        found = admin.list_offsets({TopicPartition("t", 0): latest, TopicPartition("t", 1): latest})
    return sum(each.offset or 0 for each in found.values())


def stored_in(broker: Broker, partition: int) -> list[bytes | None]:
    """The values of a partition of topic t, by their offsets."""

    async def read() -> list[bytes | None]:
        values: list[bytes | None] = []
        async with Cluster(ClientSettings.parse(bootstrap_servers=broker.bootstrap_servers)) as cluster:
            end = (await list_offsets(cluster, {("t", partition): OffsetSpec.LATEST}))["t", partition]
            if end:
                async for _, batch in read_range(cluster, "t", partition, 0, end - 1):
                    values += [record.value for record in read_records(batch)]
        return values

    return asyncio.run(read())


def send_many(broker: Broker, records: list[Any]) -> None:
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send_many("t", records)


def send_many_by_asyncio(broker: Broker, records: list[Any]) -> None:
    async def send() -> None:
        async with AsyncProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
            await producer.send_many("t", records)

    asyncio.run(send())


def test_a_topic_that_is_not_there_is_named_with_the_cure(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(core, "TOPIC_WAIT_MS", 200)
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        with pytest.raises(UnknownTopicOrPartitionError, match=r"topic 'nope'.*Create the topic"):
            producer.send("nope", b"x").result(30)
        assert producer.send("t", b"x").result(30).topic == "t"


def test_a_broker_that_is_away_fails_records_by_their_time() -> None:
    with (
        Producer(
            bootstrap_servers=AWAY, delivery_timeout_ms=300, max_block_ms=300, default_api_timeout_ms=10_000
        ) as producer,
        pytest.raises(TimeoutError, match=r"max\.block\.ms=300"),
    ):
        producer.send("t", b"x").result(30)


def test_a_first_connection_in_vain_is_tried_again_by_the_next_record() -> None:
    with Producer(bootstrap_servers=AWAY, default_api_timeout_ms=200) as producer:
        for _ in range(2):
            with pytest.raises(KafkaError, match="no broker could be reached"):
                producer.send("t", b"x").result(30)


def test_a_full_buffer_holds_the_sender_back_and_then_says_so(broker: Broker) -> None:
    with Producer(
        bootstrap_servers=broker.bootstrap_servers, buffer_memory=2_000, max_block_ms=200, linger_ms=60_000
    ) as producer:
        producer.send("t", b"x" * 1_500)
        with pytest.raises(BufferFullError, match=r"max\.block\.ms=200.*buffer\.memory=2000"):
            producer.send("t", b"x" * 1_500)
        producer.flush()
        producer.send("t", b"x" * 1_500)
    assert end_offsets(broker) == 2


def test_a_full_buffer_holds_a_task_back(broker: Broker) -> None:
    async def work() -> None:
        async with AsyncProducer(bootstrap_servers=broker.bootstrap_servers, buffer_memory=2_000) as producer:
            sent = await asyncio.gather(*(producer.send("t", b"x" * 900) for _ in range(50)))
            assert len(sent) == 50
            assert len(await producer.send_many("t", [b"x" * 900] * 50)) == 50

    asyncio.run(work())
    assert end_offsets(broker) == 100


def test_tasks_that_wait_for_room_keep_the_bound_of_the_buffer(broker: Broker, monkeypatch) -> None:
    put, peak = AsyncProducer._put, 0

    def noted(producer: AsyncProducer, *entry: Any) -> None:
        nonlocal peak
        put(producer, *entry)
        peak = max(peak, producer._buffered)

    monkeypatch.setattr(AsyncProducer, "_put", noted)

    async def work() -> None:
        async with AsyncProducer(bootstrap_servers=broker.bootstrap_servers, buffer_memory=2_000) as producer:
            await asyncio.gather(*(producer.send("t", b"x" * 1_500) for _ in range(20)))

    asyncio.run(work())
    assert peak <= 2_000


def test_who_is_canceled_while_it_is_let_in_leaves_its_room_to_the_next(broker: Broker) -> None:
    async def work() -> None:
        async with AsyncProducer(bootstrap_servers=broker.bootstrap_servers, buffer_memory=2_000) as producer:
            first = await producer.send_soon("t", b"x" * 1_500)
            waiting = [asyncio.create_task(producer.send("t", b"x" * 1_500)) for _ in range(3)]
            first.add_done_callback(lambda _: [task.cancel() for task in waiting[:2]])  # before they run
            async with asyncio.timeout(30):
                assert await waiting[2]
            assert [task.cancelled() for task in waiting[:2]] == [True, True]

    asyncio.run(work())
    assert end_offsets(broker) == 2


def test_a_full_buffer_is_emptied_while_send_many_goes_on(broker: Broker) -> None:
    with Producer(bootstrap_servers=broker.bootstrap_servers, buffer_memory=300_000) as producer:
        assert len(producer.send_many("t", (b"x" * 1_000 for _ in range(3_000)))) == 3_000


@pytest.mark.parametrize("send", [send_many, send_many_by_asyncio])
def test_send_many_says_where_each_record_is_whatever_it_is_made_of(
    broker: Broker, send: Callable[[Broker, list[Any]], None]
) -> None:
    values = [b"%d" % number for number in range(2_500)]
    records: list[Any] = [
        ProducerRecord(value, key=b"k") if number % 600 == 50 else value.decode() if number == 60 else value
        for number, value in enumerate(values)
    ]
    records.insert(300, b"x" * 2_000_000)
    with pytest.raises(SomeNotSentError, match="1 of 2501 records") as caught:
        send(broker, records)
    places = [place for place in caught.value.sent if place is not None]
    assert caught.value.sent.index(None) == 300
    stored = [stored_in(broker, partition) for partition in (0, 1)]
    assert [stored[place.partition][place.offset] for place in places] == values


def test_a_record_larger_than_a_request_is_refused_at_once(broker: Broker) -> None:
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        with pytest.raises(RecordTooLargeError, match=r"max\.request\.size=1048576"):
            producer.send("t", b"x" * 2_000_000)
        with pytest.raises(SomeNotSentError) as caught:
            producer.send_many("t", [b"a", b"x" * 2_000_000, b"b"])
        assert [place is None for place in caught.value.sent] == [False, True, False]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"value": 5}, "value must be bytes, str or None, got int"),
        ({"value": b"x", "key": 1.5}, "key must be bytes, str or None, got float"),
        ({"value": b"x", "headers": {"a": 1}}, "header 'a' must be bytes, str or None, got int"),
        ({"value": b"x", "partition": -1}, "partition must be an int >= 0 or None, got -1"),
        (
            {"value": b"x", "timestamp": 1.5},
            "timestamp must be milliseconds since 1970 as an int >= 0, got 1.5",
        ),
        ({"value": b"x", "topic": ""}, "topic must be a non-empty string, got ''"),
    ],
)
def test_wrong_arguments_are_refused_at_once(arguments: dict[str, object], text: str) -> None:
    with Producer(bootstrap_servers=AWAY) as producer, pytest.raises((TypeError, ValueError), match=text):
        producer.send(**{"topic": "t", **arguments})  # type: ignore[arg-type]


def test_wrong_settings_are_refused_before_anything_connects() -> None:
    with pytest.raises(ConfigError, match=r"did you mean linger\.ms"):
        Producer(bootstrap_servers=AWAY, lingers_ms=5)
    with pytest.raises(ConfigError, match=r"delivery\.timeout\.ms"):
        Producer(bootstrap_servers=AWAY, retries=5)
    with pytest.raises(ConfigError, match=r"shorter than linger\.ms"):
        Producer(bootstrap_servers=AWAY, delivery_timeout_ms=5, linger_ms=10)


def test_a_failure_that_nobody_asked_for_is_raised_by_flush(broker: Broker) -> None:
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send("t", b"x", partition=7)
        producer.send("t", b"x", partition=8)
        with pytest.raises(SomeNotSentError, match="2 records were not acknowledged; the first: topic 't'"):
            producer.flush()
        seen = producer.send("t", b"x", partition=7)
        assert isinstance(seen.exception(30), UnknownTopicOrPartitionError)
        producer.flush()


def test_callbacks_run_once_each_and_one_that_raises_harms_nobody(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    heard: list[int] = []
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:

        def callback(future: object) -> None:
            heard.append(1)
            raise ValueError("a bad callback")

        producer.send("t", b"x").add_done_callback(callback)
        producer.flush()
        done = producer.send("t", b"x")
        done.result(30)
        with pytest.raises(ValueError, match="a bad callback"):
            done.add_done_callback(callback)
    assert len(heard) == 2
    assert "a bad callback" in caplog.text


def test_a_callback_may_send(broker: Broker) -> None:
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send("t", b"x").add_done_callback(lambda _: producer.send("t", b"y"))
        producer.flush()
        producer.flush()
    assert end_offsets(broker) == 2


def test_linger_waits_for_more_records_and_flush_does_not(broker: Broker) -> None:
    with Producer(bootstrap_servers=broker.bootstrap_servers, linger_ms=60_000) as producer:
        future = producer.send("t", b"x")
        with pytest.raises(TimeoutError, match="still being sent"):
            future.result(0.2)
        producer.flush()
        assert future.done()


def test_a_closed_producer_says_so(broker: Broker) -> None:
    producer = Producer(bootstrap_servers=broker.bootstrap_servers)
    producer.send("t", b"x")
    producer.close()
    producer.close()
    assert end_offsets(broker) == 1
    with pytest.raises(IllegalStateError, match="closed"):
        producer.send("t", b"x")


def test_records_of_a_thread_that_sends_while_another_closes_the_producer_fail(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = Producer(bootstrap_servers=broker.bootstrap_servers)
    producer.send("t", b"first").result(30)
    engine = producer._engine
    background = engine._background
    assert background is not None
    close = background.close
    late: list[SendFuture] = []

    def send_late() -> None:
        """As a thread does that saw the producer open."""
        late.append(SendFuture(engine))
        entry = producer._maker.make("t", b"late", None, (), None, None, late[-1])
        engine.offer([entry], entry.cost)

    def close_between() -> None:
        send_late()
        close()
        send_late()

    monkeypatch.setattr(background, "close", close_between)
    with pytest.raises(SomeNotSentError, match="2 records were not acknowledged"):
        producer.close(30)
    for future in late:
        with pytest.raises(KafkaError, match="closed before the record was sent"):
            future.result(0)
    with pytest.raises(IllegalStateError, match="this producer is closed"):
        send_late()
    with pytest.raises(IllegalStateError, match="this producer is closed"):
        engine.flush(30)
    assert engine._offered == engine._settled
    assert end_offsets(broker) == 1


def test_closing_fails_what_cannot_be_sent_in_time() -> None:
    producer = Producer(bootstrap_servers=AWAY)
    future = producer.send("t", b"x")
    future.add_done_callback(lambda _: None)
    producer.close(timeout=0.1)
    with pytest.raises(KafkaError, match="closed"):
        future.result(5)


def test_the_child_of_a_fork_sends_for_itself(broker: Broker) -> None:
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send("t", b"parent").result(30)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # threads and fork: that is what is tested
            child = os.fork()
        if not child:
            try:
                producer.send("t", b"child").result(30)
                producer.close()
                os._exit(0)
            except BaseException:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        producer.send("t", b"parent").result(30)
    assert end_offsets(broker) == 3


def in_a_child(work: Callable[[], bool]) -> bool:
    """Whether `work` returned True in the child of a fork."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # threads and fork: that is what is tested
        child = os.fork()
    if not child:
        is_right = False
        with contextlib.suppress(BaseException):
            is_right = work()
        os._exit(0 if is_right else 1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def together(count: int, work: Callable[[], object]) -> None:
    """Calls `work` on some threads at the same time, which take turns as often as possible."""
    barrier = threading.Barrier(count)

    def run() -> None:
        barrier.wait()
        work()

    threads = [threading.Thread(target=run) for _ in range(count)]
    sys.setswitchinterval(1e-6)
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_threads_of_a_forked_child_that_send_at_the_same_time_share_one_producer(broker: Broker) -> None:
    with Producer(bootstrap_servers=broker.bootstrap_servers, linger_ms=60_000) as producer:
        producer.send("t", b"parent")
        producer.flush()

        def send() -> bool:
            together(8, lambda: producer.send("t", b"child"))
            names = [thread.name for thread in threading.enumerate()]
            producer.close()
            return names.count("headrace-producer") == 1

        assert all(in_a_child(send) for _ in range(8))
    assert end_offsets(broker) == 1 + 8 * 8


def test_what_threads_of_a_forked_child_have_sent_when_one_closes_the_producer_arrives(
    broker: Broker,
) -> None:
    sent, told = os.pipe()
    with Producer(bootstrap_servers=broker.bootstrap_servers, linger_ms=60_000) as producer:

        def send() -> None:
            with contextlib.suppress(IllegalStateError):
                future = producer.send("t", b"child")
                producer.close()
                if future.exception(30) is None:
                    os.write(told, b".")

        def run() -> bool:
            together(8, send)
            return True

        assert all(in_a_child(run) for _ in range(8))
    os.close(told)
    with os.fdopen(sent, "rb") as told_of:
        assert end_offsets(broker) == len(told_of.read())


def test_another_event_loop_is_refused(broker: Broker) -> None:
    producer = AsyncProducer(bootstrap_servers=broker.bootstrap_servers)

    async def send() -> None:
        await producer.send("t", b"x")

    with asyncio.Runner() as first, asyncio.Runner() as second:
        first.run(send())
        with pytest.raises(IllegalStateError, match="another event loop"):
            second.run(send())
        first.run(producer.close())


def test_a_dropped_producer_warns_and_sends_what_it_has(broker: Broker) -> None:
    producer = Producer(bootstrap_servers=broker.bootstrap_servers, linger_ms=60_000)
    future = producer.send("t", b"x")
    kept = [producer]
    del producer
    with pytest.warns(ResourceWarning, match="unclosed"):
        kept.clear()
    assert future.result(30).topic == "t"


def test_a_program_that_just_ends_loses_nothing(broker: Broker, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        textwrap.dedent(
            f"""
            from headrace import Producer
            producer = Producer(bootstrap_servers="{broker.bootstrap_servers}", linger_ms=60_000)
            for number in range(100):
                producer.send("t", str(number))
            """
        )
    )
    subprocess.run([sys.executable, program], check=True, timeout=60)
    assert end_offsets(broker) == 100


def test_every_acknowledged_record_is_there_once_and_in_order_across_kill_nine(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path / "data", tmp_path / "server.log", {"log.segment.bytes": 1048576})
    server.start()
    try:
        with Admin(bootstrap_servers=server.address) as admin:
            admin.create_topic("t", 1)
        producer = Producer(
            bootstrap_servers=server.address,
            reconnect_backoff_ms=20,
            reconnect_backoff_max_ms=100,
            retry_backoff_ms=20,
            retry_backoff_max_ms=100,
            batch_size=2_000,
        )
        futures = []
        for _ in range(3):
            futures += [producer.send("t", str(len(futures) + one)) for one in range(2_000)]
            futures[-1_000].result(60)
            server.kill()
            server.start()
        producer.flush(60)
        producer.close()
        assert [future.result().offset for future in futures] == list(range(6_000))
        assert values_of(server.address) == list(range(6_000))
    finally:
        server.close()


def values_of(address: str) -> list[int]:
    async def read() -> list[int]:
        found: list[int] = []
        async with Cluster(ClientSettings.parse(bootstrap_servers=address)) as cluster:
            end = (await list_offsets(cluster, {("t", 0): OffsetSpec.LATEST}))["t", 0]
            async for _, batch in read_range(cluster, "t", 0, 0, end - 1):
                found += [int(record.value or b"") for record in read_records(batch)]
        return found

    return asyncio.run(read())


def test_a_send_that_a_signal_handler_breaks_off_in_any_function_leaves_the_producer_usable(
    broker: Broker,
) -> None:
    """Handlers run when a function begins, among other moments: also when a lock is about to be released."""

    class Alarm(Exception):
        pass

    def send_until(calls: int) -> bool:
        """Breaks a send off in so many functions; False when there are fewer."""

        def trace(*_: object) -> None:
            nonlocal calls
            calls -= 1
            if calls < 0:
                sys.settrace(None)
                raise Alarm

        sys.settrace(trace)
        try:
            producer.send("t", b"perhaps")
        except Alarm:
            return True
        finally:
            sys.settrace(None)
        return False

    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send("t", b"first").result(30)
        calls = 0
        while send_until(calls):
            calls += 1
            assert producer.send("t", b"surely").result(30).topic == "t"
        producer.flush(30)
    assert calls > 2


def at_every_step(work: Callable[[Producer], None], handler: Callable[[Producer], None], servers: str) -> int:
    """Runs `handler` where a signal handler could run: in each run of `work` one step later, on a new producer.

    Returns the number of steps, once `work` has fewer.
    """
    for steps in itertools.count():
        left = steps
        has_run = False

        def run_handler(_: object, event: str, __: object) -> None:
            nonlocal left, has_run
            left -= event != "c_call"
            if left < 0:
                sys.setprofile(None)
                handler(producer)
                has_run = True

        with Producer(bootstrap_servers=servers) as producer:
            producer.send("t", b"first").result(30)
            sys.setprofile(run_handler)
            try:
                work(producer)
            finally:
                sys.setprofile(None)
        if not has_run:
            return steps
    raise AssertionError


def send_and_wait(producer: Producer) -> None:
    with contextlib.suppress(IllegalStateError, RequestTimeoutError):  # the handler has closed the producer
        future = producer.send("t", b"second")
        future.add_done_callback(id)
        future.result(30)
        producer.flush(30)


def test_a_signal_handler_may_flush_in_the_middle_of_any_call(broker: Broker) -> None:
    steps = at_every_step(send_and_wait, lambda producer: producer.flush(10), broker.bootstrap_servers)
    assert steps > 50


def test_a_signal_handler_may_send_in_the_middle_of_any_call(broker: Broker) -> None:
    sent: list[RecordMetadata] = []
    at_every_step(
        send_and_wait,
        lambda producer: sent.append(producer.send("t", b"third").result(10)),
        broker.bootstrap_servers,
    )
    assert len(sent) > 50
    assert end_offsets(broker) == 3 * len(sent) + 2


def test_a_signal_handler_may_close_the_producer_in_the_middle_of_any_call(broker: Broker) -> None:
    assert at_every_step(send_and_wait, lambda producer: producer.close(10), broker.bootstrap_servers) > 50


def test_a_signal_handler_may_send_and_close_while_the_first_record_starts_the_producer(
    broker: Broker,
) -> None:
    for close in (False, True):
        for steps in range(200):
            left = steps

            def run_handler(_: object, event: str, __: object, close: bool = close) -> None:
                nonlocal left
                left -= event != "c_call"
                if left < 0:
                    sys.setprofile(None)
                    producer.close(10) if close else producer.send("t", b"from the handler").result(10)

            with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
                sys.setprofile(run_handler)
                try:
                    with contextlib.suppress(IllegalStateError, RequestTimeoutError):
                        producer.send("t", b"first").result(30)
                finally:
                    sys.setprofile(None)


def test_flush_sends_a_record_whose_sender_was_broken_off_before_it_woke_the_producer(broker: Broker) -> None:
    class Alarm(Exception):
        pass

    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send("t", b"first").result(30)
        engine = producer._engine
        loop, awake = engine.driver.loop, engine.driver

        class Deaf:
            """The loop in the moment when the handler raises."""

            def call_soon_threadsafe(self, *_: object) -> None:
                raise Alarm

        awake.loop = Deaf()  # type: ignore[assignment]
        with pytest.raises(Alarm):
            producer.send("t", b"second")
        awake.loop = loop
        producer.flush(30)
        assert end_offsets(broker) == 2


def test_close_in_a_delivery_callback_is_refused_and_loses_nothing(broker: Broker) -> None:
    refused: list[Exception] = []
    is_over = threading.Event()
    producer = Producer(bootstrap_servers=broker.bootstrap_servers, linger_ms=60_000)

    def close(_: object) -> None:
        try:
            producer.close()
        except Exception as error:
            refused.append(error)
        is_over.set()

    producer.send("t", b"first", partition=0).add_done_callback(close)
    producer.flush(30)
    assert is_over.wait(30)
    assert "called from its own callback" in str(refused[0])
    producer.send("t", b"second", partition=0)
    producer.close(30)
    assert end_offsets(broker) == 2


def test_send_many_on_a_producer_that_another_task_closes_comes_back(broker: Broker) -> None:
    async def run() -> None:
        producer = AsyncProducer(
            bootstrap_servers=broker.bootstrap_servers, buffer_memory=20_000, batch_size=1_000
        )
        await producer.send("t", b"first")
        records = [ProducerRecord(b"x" * 100, key=b"k") for _ in range(10_000)]
        sending = asyncio.create_task(producer.send_many("t", records))
        await asyncio.sleep(0)
        await producer.close()
        with pytest.raises(SomeNotSentError, match="closed"):
            async with asyncio.timeout(30):
                await sending

    asyncio.run(run())


def test_a_callback_that_ends_the_program_does_so_in_the_next_call_and_loses_nothing(broker: Broker) -> None:
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send("t", b"x").add_done_callback(lambda _: sys.exit("stop"))
        with pytest.raises(SystemExit, match="stop"):
            producer.flush(30)
        assert producer.send("t", b"y").result(30).topic == "t"
    assert end_offsets(broker) == 2


@pytest.mark.parametrize("then", ["result", "exception", "send_many", "flush", "close"])
def test_what_would_wait_for_the_producers_own_thread_is_refused_in_a_delivery_callback(
    broker: Broker, then: str
) -> None:
    calls: dict[str, Callable[[Producer], object]] = {
        "result": lambda producer: producer.send("t", b"second").result(),
        "exception": lambda producer: producer.send("t", b"second").exception(),
        "send_many": lambda producer: producer.send_many("t", [b"second"]),
        "flush": lambda producer: producer.flush(),
        "close": lambda producer: producer.close(),
    }
    refused: Future[None] = Future()

    def call(_: SendFuture) -> None:
        try:
            calls[then](producer)
        except BaseException as error:
            refused.set_exception(error)

    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send("t", b"first").add_done_callback(call)
        with pytest.raises(IllegalStateError, match="called from its own callback"):
            refused.result(30)
        assert producer.send("t", b"third").result(30).topic == "t"
    assert end_offsets(broker) == (3 if then in ("result", "exception") else 2), "send_many queued nothing"


def test_a_callback_may_ask_for_the_outcome_that_it_is_called_with(broker: Broker) -> None:
    places: list[RecordMetadata] = []
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send("t", b"x").add_done_callback(lambda future: places.append(future.result()))
        producer.flush(30)
    assert [place.topic for place in places] == ["t"]


def test_the_outcome_of_a_record_is_refused_to_the_child_of_a_fork(broker: Broker) -> None:
    with Producer(bootstrap_servers=broker.bootstrap_servers, linger_ms=60_000) as producer:
        future = producer.send("t", b"parent")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # threads and fork: that is what is tested
            child = os.fork()
        if not child:
            try:
                future.result(30)
            except IllegalStateError:
                os._exit(0)
            finally:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        producer.flush()
        assert future.done()
