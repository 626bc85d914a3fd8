"""What the calls of a consumer take and refuse, and what wakes them up."""

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from headrace import Admin, Broker
from headrace.client.aio import AsyncShareConsumer
from headrace.client.delivery import TopicPartition
from headrace.client.errors import IllegalStateError, WakeupError
from headrace.client.sync import ShareConsumer
from headrace.worker import Queue
from tests.conformance.client.conftest import NewConsumer
from tests.conformance.client.steps import one_poll
from tests.conformance.share.share_client import fill, new_queue
from tests.conformance.steps import wait_for
from tests.conformance.wire_client import WireClient

needs_signals = pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="there is no SIGUSR1 here")
NOWHERE: dict[str, Any] = {"bootstrap_servers": "127.0.0.1:1", "group_id": "g"}
BAD = [
    ("x", TypeError, "timeout must be a number of seconds or None, got 'x'"),
    (timedelta(seconds=1), TypeError, "timeout must be a number of seconds or None, got .*timedelta"),
    (-1, ValueError, "timeout must be >= 0 seconds, or None .*, got -1"),
    (float("nan"), ValueError, "timeout must be >= 0 seconds, or None .*, got nan"),
]


@pytest.mark.parametrize("method", ["poll", "commit_sync", "close"])
@pytest.mark.parametrize(("timeout", "error", "words"), BAD)
def test_a_time_that_is_none_is_refused_with_what_to_give(
    method: str, timeout: Any, error: type[Exception], words: str
) -> None:
    with ShareConsumer(**NOWHERE) as consumer:
        consumer.subscribe(["t"])
        with pytest.raises(error, match=rf"{method}: {words}"):
            getattr(consumer, method)(timeout)

    async def with_asyncio() -> None:
        twin = AsyncShareConsumer(**NOWHERE)
        twin.subscribe(["t"])
        with pytest.raises(error, match=rf"{method}: {words}"):
            await getattr(twin, method)(timeout)
        await twin.close()

    asyncio.run(with_asyncio())


@pytest.mark.parametrize("timeout", [None, float("inf"), 1e300])
def test_a_poll_without_an_end_waits_for_the_record(
    timeout: float | None, wire: WireClient, consumer: NewConsumer, unique: str
) -> None:
    new_queue(wire, unique)
    mine = consumer()
    timer = threading.Timer(0.3, lambda: fill(wire, unique, 1))
    timer.start()
    assert len(mine.poll(timeout)) == 1
    timer.join()


@pytest.mark.parametrize("timeout", [None, float("inf")])
def test_a_poll_without_an_end_waits_on_a_loop_too(
    timeout: float | None, wire: WireClient, consumer: NewConsumer, unique: str
) -> None:
    new_queue(wire, unique)

    async def scenario() -> None:
        servers = consumer().settings.bootstrap_servers
        async with AsyncShareConsumer(
            bootstrap_servers=",".join(map(str, servers)), group_id=f"{unique}-2"
        ) as mine:
            mine.subscribe([unique])
            polling = asyncio.create_task(mine.poll(timeout))
            done, _ = await asyncio.wait([polling], timeout=0.3)
            assert not done
            mine.wakeup()
            with pytest.raises(WakeupError):
                await polling

    asyncio.run(scenario())


def stop_in_its_tracks(broker: Broker, go_on: threading.Event) -> None:
    """It answers nobody until the event is set."""
    stands = threading.Event()
    broker.submit(lambda: (stands.set(), go_on.wait()))
    assert stands.wait(10)


@pytest.fixture
def stoppable() -> Iterator[tuple[Broker, threading.Event]]:
    """A broker with a record in "t", and the event that lets it go on."""
    go_on = threading.Event()
    with Broker() as broker:
        with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            admin.create_topic("t")
            admin.set_group_config("g", {"share.auto.offset.reset": "earliest"})
        with Queue(broker.bootstrap_servers, group_id="g") as queue:
            queue.send("t", b"one")
        yield broker, go_on
        go_on.set()


def test_wakeup_ends_a_commit_that_waits_and_one_that_is_to_come(
    stoppable: tuple[Broker, threading.Event],
) -> None:
    """As in Java. What was sent is sent: its answer comes in the end, also without another commit."""
    broker, go_on = stoppable
    with ShareConsumer(bootstrap_servers=broker.bootstrap_servers, group_id="g") as consumer:
        told: list[Any] = []
        consumer.set_acknowledgement_commit_callback(lambda offsets, error: told.append((offsets, error)))
        consumer.subscribe(["t"])
        one_poll(consumer)
        stop_in_its_tracks(broker, go_on)
        timer = threading.Timer(0.3, consumer.wakeup)
        timer.start()
        with pytest.raises(WakeupError):
            consumer.commit_sync(30)
        timer.join()
        consumer.wakeup()
        with pytest.raises(WakeupError):
            consumer.commit_sync(30)
        go_on.set()
        wait_for(lambda: consumer.poll(0.1) or told)
        assert told == [({TopicPartition("t", 0): {0}}, None)]


def test_wakeup_ends_a_commit_on_a_loop_too(stoppable: tuple[Broker, threading.Event]) -> None:
    broker, go_on = stoppable

    async def scenario() -> None:
        async with AsyncShareConsumer(bootstrap_servers=broker.bootstrap_servers, group_id="g") as consumer:
            consumer.subscribe(["t"])
            while not await consumer.poll(0.5):
                pass
            stop_in_its_tracks(broker, go_on)
            committing = asyncio.create_task(consumer.commit_sync(30))
            done, _ = await asyncio.wait([committing], timeout=0.1)
            assert not done
            consumer.wakeup()
            with pytest.raises(WakeupError):
                await committing
            go_on.set()
            assert await consumer.commit_sync() in ({TopicPartition("t", 0): None}, {})

    asyncio.run(scenario())


NOTHING_HAPPENS = {
    "group.share.heartbeat.interval.ms": "3000000",
    "group.share.max.heartbeat.interval.ms": "3000000",
    "group.share.session.timeout.ms": "3600000",
    "group.share.max.session.timeout.ms": "3600000",
}
"""No member has to say anything for most of an hour, so its loop sleeps until something wakes it."""


@pytest.mark.parametrize("by_signal", [False, pytest.param(True, marks=needs_signals)])
def test_wakeup_from_elsewhere_ends_a_poll_on_a_loop_that_sleeps(by_signal: bool) -> None:
    async def scenario(broker: Broker) -> None:
        consumer = AsyncShareConsumer(
            bootstrap_servers=broker.bootstrap_servers,
            group_id="g",
            fetch_max_wait_ms=3_000_000,
            request_timeout_ms=3_000_000,
            default_api_timeout_ms=3_000_000,
        )
        consumer.subscribe(["t"])
        assert await consumer.poll(0.5) == []
        elsewhere: Callable[[], object] = consumer.wakeup
        if by_signal:
            signal.signal(signal.SIGUSR1, lambda *_: consumer.wakeup())
            elsewhere = partial(os.kill, os.getpid(), signal.SIGUSR1)
        timer = threading.Timer(0.3, elsewhere)
        timer.start()
        with pytest.raises(WakeupError):
            await consumer.poll(None)
        timer.join()
        await consumer.close()

    with (
        Broker(settings=NOTHING_HAPPENS) as broker,
        Admin(bootstrap_servers=broker.bootstrap_servers) as admin,
    ):
        admin.create_topic("t", 1)
        before = signal.getsignal(signal.SIGUSR1) if by_signal else None
        try:
            asyncio.run(scenario(broker), debug=True)
        finally:
            if by_signal:
                signal.signal(signal.SIGUSR1, before)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_an_answer_given_in_a_forked_process_is_refused_there(
    wire: WireClient, consumer: NewConsumer, unique: str
) -> None:
    new_queue(wire, unique, 1)
    mine = consumer(share_acknowledgement_mode="explicit")
    (delivery,) = one_poll(mine)
    child = os.fork()
    if child == 0:
        try:
            delivery.accept()
        except IllegalStateError as error:
            os._exit(0 if "make a consumer of its own" in str(error) else 1)
        os._exit(2)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    delivery.accept()
    assert mine.commit_sync() == {TopicPartition(unique, 0): None}
