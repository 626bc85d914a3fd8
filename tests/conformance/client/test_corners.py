"""Signals, forks, threads, loops that end, consumers that are forgotten: the corners of a program's life."""

import asyncio
import gc
import logging
import signal
import subprocess
import sys
import threading
import warnings
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headrace.client.aio import AsyncShareConsumer
from headrace.client.delivery import AcknowledgeType
from headrace.client.errors import IllegalStateError, RecordDeserializationError
from headrace.client.sync import ShareConsumer
from tests.conformance.client.conftest import NewConsumer
from tests.conformance.client.steps import one_poll, take
from tests.conformance.client.test_lifecycle import members
from tests.conformance.conftest import BrokerUnderTest
from tests.conformance.share.share_client import fill, new_queue
from tests.conformance.steps import new_topic, wait_for
from tests.conformance.wire_client import WireClient

EXPLICIT = {"share_acknowledgement_mode": "explicit"}
HELD_OVER = {**EXPLICIT, "max_unacknowledged": 10}


@pytest.fixture
def on_alarm() -> Any:
    """Says what SIGALRM does; restored at the end."""
    before = signal.getsignal(signal.SIGALRM)

    def arrange(handler: Callable[[], Any], after_s: float) -> None:
        signal.signal(signal.SIGALRM, lambda *_: handler())
        signal.setitimer(signal.ITIMER_REAL, after_s)

    yield arrange
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("timeout", [None, 30.0])
def test_close_in_a_signal_handler_ends_the_poll_that_waits(
    timeout: float | None, wire: WireClient, consumer: NewConsumer, unique: str, on_alarm: Any
) -> None:
    new_queue(wire, unique)
    mine = consumer()
    mine.poll(0.1)
    on_alarm(mine.close, 0.3)
    assert mine.poll(timeout) == []
    with pytest.raises(IllegalStateError, match="closed"):
        mine.poll(0)
    assert members(wire, unique) == []


def test_a_poll_that_is_closed_at_its_end_does_not_return_what_was_given_back(
    wire: WireClient, consumer: NewConsumer, unique: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    new_queue(wire, unique, 1)
    mine = consumer()
    register = mine._consumption._register

    def register_and_close(now_ms: int) -> bool:
        has_lost = register(now_ms)
        mine.close()  # as a signal handler would
        return has_lost

    monkeypatch.setattr(mine._consumption, "_register", register_and_close)
    with pytest.raises(IllegalStateError, match="closed"):
        one_poll(mine)
    assert one_poll(consumer())[0].delivery_count == 2


def test_close_in_a_signal_handler_ends_an_iteration(
    wire: WireClient, consumer: NewConsumer, unique: str, on_alarm: Any
) -> None:
    new_queue(wire, unique)
    mine = consumer()
    on_alarm(mine.close, 0.3)
    assert list(mine) == []


def test_a_handler_that_closes_and_exits_leaves_the_group(
    wire: WireClient, consumer: NewConsumer, unique: str, on_alarm: Any
) -> None:
    new_queue(wire, unique)
    mine = consumer()
    mine.poll(0.1)

    def end() -> None:
        mine.close()
        raise SystemExit(0)

    on_alarm(end, 0.3)
    with pytest.raises(SystemExit):
        mine.poll(30)
    assert members(wire, unique) == []


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # it may hit a finalizer
def test_a_time_limit_that_raises_in_a_poll_rejects_and_accepts_nothing(
    wire: WireClient, consumer: NewConsumer, unique: str, on_alarm: Any
) -> None:
    new_queue(wire, unique, 2_000)
    mine = consumer(max_poll_records=2_000)
    seen: list[int] = []
    interruptions = 0

    def give_up() -> None:
        interrupted = sys._getframe(2)  # below this function and the handler
        if interrupted.f_code.co_filename != __file__:  # else the poll has returned, or has not begun
            raise TimeoutError("time limit")

    for number in range(200):
        on_alarm(give_up, 0.0005 + number % 20 / 4_000)
        try:
            seen += [one.offset for one in mine.poll(5.0)]
        except TimeoutError:
            interruptions += 1
            continue
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        if len(seen) >= 2_000:
            break
    signal.setitimer(signal.ITIMER_REAL, 0)
    while len(seen) < 2_000:
        seen += [one.offset for one in one_poll(mine)]
    assert sorted(seen) == list(range(2_000))
    assert interruptions


def test_a_record_may_be_accepted_right_after_its_renewal(
    wire: WireClient, consumer: NewConsumer, unique: str
) -> None:
    new_queue(wire, unique, 5)
    mine = consumer(**HELD_OVER)
    for delivery in take(mine, 5):
        delivery.renew()
        delivery.accept()
    assert list(mine.commit_sync().values()) == [None]


def test_the_answer_to_a_bad_record_can_be_changed_though_the_poll_has_waited_for_it(
    wire: WireClient, consumer: NewConsumer, unique: str
) -> None:
    new_queue(wire, unique)

    def refuse(_: bytes) -> None:
        raise ValueError("never")

    mine = consumer(**EXPLICIT, value_deserializer=refuse)
    mine.poll(0.5)
    timer = threading.Timer(0.2, fill, (wire, unique, 1))
    timer.start()
    with pytest.raises(RecordDeserializationError) as caught:
        one_poll(mine)
    timer.join()
    bad = caught.value.delivery
    mine.commit_sync()  # and whatever else happens before the next poll
    mine.acknowledge_offset(bad.topic, bad.partition, bad.offset, AcknowledgeType.REJECT)
    assert list(mine.commit_sync().values()) == [None]


def test_a_consumer_that_is_dropped_is_collected_and_leaves_its_group(
    wire: WireClient, broker: BrokerUnderTest, unique: str
) -> None:
    new_queue(wire, unique, 5)
    mine = ShareConsumer(bootstrap_servers=broker.bootstrap_servers, group_id=unique)
    mine.subscribe([unique])
    deliveries = one_poll(mine)
    parts = weakref.ref(mine._consumption)
    threads = threading.active_count()
    box = [mine]
    del mine
    with pytest.warns(ResourceWarning, match="was not closed"):
        box.clear()
    wait_for(lambda: members(wire, unique) == [])
    wait_for(lambda: threading.active_count() < threads)
    del deliveries
    wait_for(lambda: gc.collect() is not None and parts() is None)


def test_a_closed_consumer_with_records_in_hand_is_freed(
    wire: WireClient, broker: BrokerUnderTest, unique: str
) -> None:
    new_queue(wire, unique, 5)
    with ShareConsumer(bootstrap_servers=broker.bootstrap_servers, group_id=unique) as mine:
        mine.subscribe([unique])
        one_poll(mine)
    parts = weakref.ref(mine._consumption)
    del mine
    wait_for(lambda: gc.collect() is not None and parts() is None)


def test_a_program_that_forgets_to_close_leaves_its_group_at_its_end(
    wire: WireClient, broker: BrokerUnderTest, unique: str
) -> None:
    new_queue(wire, unique, 1)
    program = (
        "import sys; from headrace import ShareConsumer\n"
        "consumer = ShareConsumer(bootstrap_servers=sys.argv[1], group_id=sys.argv[2])\n"
        "consumer.subscribe([sys.argv[2]])\n"
        "while not consumer.poll(1.0): pass\n"
    )
    subprocess.run([sys.executable, "-c", program, broker.bootstrap_servers, unique], check=True, timeout=60)
    assert members(wire, unique) == []


def test_a_consumer_made_after_the_main_thread_has_ended_joins(
    wire: WireClient, broker: BrokerUnderTest, unique: str
) -> None:
    new_queue(wire, unique, 1)
    program = (
        "import sys, threading; from headrace import ShareConsumer\n"
        "def work():\n"
        "    threading.main_thread().join()\n"
        "    with ShareConsumer(bootstrap_servers=sys.argv[1], group_id=sys.argv[2]) as consumer:\n"
        "        consumer.subscribe([sys.argv[2]])\n"
        "        while not (found := consumer.poll(1.0)): pass\n"
        "    print(found[0].offset)\n"
        "threading.Thread(target=work).start()\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program, broker.bootstrap_servers, unique],
        check=True, timeout=60, capture_output=True, text=True,
    )  # fmt: skip
    assert ended.stdout.strip() == "0"


def test_a_fork_within_with_leaves_the_parents_consumer_alone(
    wire: WireClient, broker: BrokerUnderTest, unique: str, tmp_path: Path
) -> None:
    new_queue(wire, unique, 1)
    program = (
        "import os, sys; from headrace import ShareConsumer\n"
        "with ShareConsumer(bootstrap_servers=sys.argv[1], group_id=sys.argv[2]) as consumer:\n"
        "    consumer.subscribe([sys.argv[2]])\n"
        "    while not consumer.poll(1.0): pass\n"
        "    child = os.fork()\n"
        "    if child:\n"
        "        assert os.waitpid(child, 0)[1] == 0\n"
        "        assert list(consumer.commit_sync().values()) == [None]\n"
    )
    subprocess.run([sys.executable, "-c", program, broker.bootstrap_servers, unique], check=True, timeout=60)
    assert members(wire, unique) == []


def test_on_lost_that_exits_ends_the_poll_and_not_the_client(
    wire: WireClient, consumer: NewConsumer, unique: str
) -> None:
    new_queue(wire, unique, 1, record_lock_duration_ms="1000")

    def end(*_: object) -> None:
        sys.exit("lock lost")

    mine = consumer(**HELD_OVER, on_lost=end)
    one_poll(mine)
    with pytest.raises(SystemExit, match="lock lost"):
        one_poll(mine)
    assert one_poll(mine)[0].delivery_count == 2


def test_a_topic_that_does_not_exist_is_said_once_with_the_nearest_name(
    wire: WireClient, consumer: NewConsumer, unique: str, caplog: pytest.LogCaptureFixture
) -> None:
    new_queue(wire, unique)
    new_topic(wire, f"{unique}-orders")
    with caplog.at_level(logging.WARNING, "headrace.client"):
        mine = consumer(f"{unique}-ordesr")
        wait_for(lambda: mine.poll(0.2) or caplog.records, timeout_s=30)
        mine.poll(1.5)
    (record,) = caplog.records
    assert f"'{unique}-ordesr'" in record.getMessage()
    assert f"the nearest name is '{unique}-orders'" in record.getMessage()
    assert f"`headrace topic create {unique}-ordesr`" in record.getMessage()
    assert "create it" in record.getMessage()


def new_async(broker: BrokerUnderTest, unique: str, **settings: Any) -> AsyncShareConsumer:
    return AsyncShareConsumer(bootstrap_servers=broker.bootstrap_servers, group_id=unique, **settings)


async def some(consumer: AsyncShareConsumer, count: int = 1) -> list[Any]:
    found: list[Any] = []
    async with asyncio.timeout(60):
        while len(found) < count:
            found += await consumer.poll(0.5)
    return found


def test_a_canceled_start_leaves_no_tasks_behind() -> None:
    async def scenario() -> set[asyncio.Task[Any]]:
        with pytest.raises(TimeoutError):
            async with (
                asyncio.timeout(0.2),
                AsyncShareConsumer(bootstrap_servers="127.0.0.1:9", group_id="g"),
            ):
                pass
        return asyncio.all_tasks() - {asyncio.current_task()}  # type: ignore[arg-type]

    assert asyncio.run(scenario()) == set()


def test_deliveries_of_an_asyncio_consumer_may_be_answered_in_threads(
    wire: WireClient, broker: BrokerUnderTest, unique: str
) -> None:
    new_queue(wire, unique, 5)

    async def scenario() -> None:
        told: list[Any] = []
        async with new_async(broker, unique, **HELD_OVER) as mine:
            mine.set_acknowledgement_commit_callback(lambda offsets, error: told.append((offsets, error)))
            mine.subscribe([unique])
            for delivery in await some(mine, 5):
                await asyncio.to_thread(delivery.accept)
            async with asyncio.timeout(30):
                while sum(len(*offsets.values()) for offsets, _ in told) < 5:
                    await mine.poll(0.05)
        assert {error for _, error in told} == {None}

    asyncio.run(scenario())


def test_a_consumer_on_a_second_loop_says_so_and_can_be_closed(
    wire: WireClient, broker: BrokerUnderTest, unique: str
) -> None:
    new_queue(wire, unique, 1)
    mine = new_async(broker, unique)

    async def first() -> None:
        mine.subscribe([unique])
        await some(mine)

    async def second() -> None:
        for _ in range(2):
            with pytest.raises(IllegalStateError, match="event loop"):
                await mine.poll(0.1)
        await mine.close()

    with pytest.warns(ResourceWarning, match="was not closed"):
        asyncio.run(first())
    asyncio.run(second())
    assert members(wire, unique) == []


@pytest.mark.parametrize("is_kept", [False, True])
def test_a_loop_that_ends_without_close_gives_the_records_back_at_once(
    is_kept: bool, wire: WireClient, broker: BrokerUnderTest, unique: str, consumer: NewConsumer
) -> None:
    new_queue(wire, unique, 3)
    kept: list[Any] = []

    async def scenario() -> None:
        mine = new_async(broker, unique, **EXPLICIT)
        mine.subscribe([unique])
        found = await some(mine)
        if is_kept:
            kept.extend((mine, found))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        asyncio.run(scenario())
        gc.collect()
    assert members(wire, unique) == []
    assert {one.delivery_count for one in take(consumer(), 3)} == {2}


def test_a_canceled_close_leaves_the_group_all_the_same(
    wire: WireClient, broker: BrokerUnderTest, unique: str
) -> None:
    new_queue(wire, unique, 1)

    async def scenario() -> None:
        mine = new_async(broker, unique)
        mine.subscribe([unique])
        await some(mine)
        closing = asyncio.create_task(mine.close())
        await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing

    asyncio.run(scenario())
    assert members(wire, unique) == []


def test_an_asyncio_consumer_that_is_dropped_leaves_its_group(
    wire: WireClient, broker: BrokerUnderTest, unique: str
) -> None:
    new_queue(wire, unique, 1)

    async def scenario() -> None:
        mine = new_async(broker, unique)
        mine.subscribe([unique])
        await some(mine)
        box = [mine]
        del mine
        with pytest.warns(ResourceWarning, match="was not closed"):
            box.clear()
        await asyncio.to_thread(wait_for, lambda: members(wire, unique) == [])

    asyncio.run(scenario())


def test_a_hundred_consumers_have_one_thread_each(broker: BrokerUnderTest, unique: str) -> None:
    before = threading.active_count()
    made = [ShareConsumer(bootstrap_servers=broker.bootstrap_servers, group_id=unique) for _ in range(10)]
    try:
        for each in made:
            each.subscribe([unique])
            each.poll(0.05)
        assert threading.active_count() - before == len(made)
    finally:
        for each in made:
            each.close()


def test_a_consumer_needs_no_long_import_after_it_was_made(broker: BrokerUnderTest, unique: str) -> None:
    """The first record would wait for it."""
    program = (
        "import sys; from headrace import ShareConsumer\n"
        "consumer = ShareConsumer(bootstrap_servers=sys.argv[1], group_id=sys.argv[2])\n"
        "assert 'aiokafka.record.default_records' in sys.modules\n"
        "consumer.close()\n"
    )
    subprocess.run([sys.executable, "-c", program, broker.bootstrap_servers, unique], check=True, timeout=60)
