"""`ShareConsumer` reads and writes its sockets on the application's thread: how connections change hands.

`tests/simulation/path/threads.py` disturbs a consumer at random moments; here is one test for each kind of moment.
"""

import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from headrace import Admin, Broker, Producer, ShareConsumer
from headrace.client import direct
from headrace.client.connection import Connection
from headrace.client.delivery import Delivery
from headrace.client.direct import DirectIO
from headrace.client.errors import IllegalStateError, WakeupError
from headrace.client.member import now_ms
from headrace.wire.errors import KafkaError

TOPIC, GROUP = "orders", "g"
GIVE_UP_S = 30.0

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="connections are not lent on Windows")


class Alarm(Exception):
    """Raised by a signal handler."""


@pytest.fixture
def servers() -> Iterator[str]:
    settings = {
        "headrace.share.initial.rebalance.delay.ms": 0,
        "group.share.heartbeat.interval.ms": 15_000,  # a heartbeat that is due ends a loan
    }
    with Broker(settings=settings) as broker:
        with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            admin.set_group_config(GROUP, {"share.auto.offset.reset": "earliest"})
        yield broker.bootstrap_servers


@pytest.fixture
def long_loans(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests in which a connection must stay lent, however slow the machine is."""
    monkeypatch.setattr(direct, "LOAN_S", GIVE_UP_S)


@pytest.fixture
def producer(servers: str) -> Iterator[Producer]:
    with Producer(bootstrap_servers=servers) as made:
        yield made


@pytest.fixture
def consumer(servers: str) -> Iterator[ShareConsumer]:
    with ShareConsumer(
        bootstrap_servers=servers, group_id=GROUP, share_acknowledgement_mode="explicit"
    ) as made:
        made.subscribe([TOPIC])
        yield made


def until(what: str, is_so: Callable[[], bool]) -> None:
    """Looks again and again: nothing tells of it."""
    give_up = time.monotonic() + GIVE_UP_S
    pause = threading.Event()
    while not is_so():
        assert time.monotonic() < give_up, what
        pause.wait(0.001)


def polled(consumer: ShareConsumer) -> list[Delivery]:
    give_up = time.monotonic() + GIVE_UP_S
    while not (found := consumer.poll(1.0)):
        assert time.monotonic() < give_up
    return found


def borrow(consumer: ShareConsumer, producer: Producer) -> Connection:
    """Round trips until the application's thread has the connection."""
    give_up = time.monotonic() + GIVE_UP_S
    while True:
        producer.send(TOPIC, b"before").result()
        for delivery in polled(consumer):
            delivery.accept()
        assert set(consumer.commit_sync().values()) == {None}
        for connection in consumer._member.connections.values():
            if connection.is_lent:
                return connection
        assert time.monotonic() < give_up


def trips_until(happened: Callable[[], object], consumer: ShareConsumer, producer: Producer) -> None:
    """Round trips until something has happened in one: some of them are left to the background thread."""
    give_up = time.monotonic() + GIVE_UP_S
    while not happened():
        assert time.monotonic() < give_up
        producer.send(TOPIC, b"next").result()
        for delivery in polled(consumer):
            assert delivery.value == b"next"
            delivery.accept()
        assert set(consumer.commit_sync().values()) == {None}


def by_signal(disturb: Callable[[], Any], is_time: Callable[[], bool]) -> threading.Thread:
    """A signal handler calls something on the main thread, when it is time."""
    signal.signal(signal.SIGUSR1, lambda *_: disturb())

    def send() -> None:
        until("the moment for the signal", is_time)
        os.kill(os.getpid(), signal.SIGUSR1)

    thread = threading.Thread(target=send)
    thread.start()
    return thread


@pytest.fixture(autouse=True)
def signals() -> Iterator[None]:
    previous = signal.getsignal(signal.SIGUSR1)
    yield
    signal.signal(signal.SIGUSR1, previous)


def raise_alarm() -> None:
    raise Alarm


def is_waiting(consumer: ShareConsumer) -> bool:
    return consumer._bell._is_selecting


@pytest.mark.usefixtures("long_loans")
def test_round_trips_of_a_busy_application_need_no_other_thread(
    consumer: ShareConsumer, producer: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even once; apart from the time when something is due, such as a heartbeat."""
    borrow(consumer, producer)
    asked: list[str] = []
    lend = DirectIO.pump_and_lend
    monkeypatch.setattr(
        DirectIO, "pump_and_lend", lambda self: asked.append(threading.current_thread().name) or lend(self)
    )
    for _ in range(50):
        producer.send(TOPIC, b"x").result()
        for delivery in polled(consumer):
            delivery.accept()
        assert set(consumer.commit_sync().values()) == {None}
    assert len(asked) < 10


@pytest.mark.usefixtures("long_loans")
def test_an_exception_while_a_poll_waits_for_the_socket_loses_nothing(
    consumer: ShareConsumer, producer: Producer
) -> None:
    connection = borrow(consumer, producer)
    thread = by_signal(raise_alarm, lambda: is_waiting(consumer))
    with pytest.raises(Alarm):
        consumer.poll(GIVE_UP_S)
    thread.join()
    assert not consumer._member.is_torn
    producer.send(TOPIC, b"after").result()
    assert [one.value for one in polled(consumer)] == [b"after"]
    assert connection.is_open
    assert list(consumer._member.connections.values()) == [connection]


@pytest.mark.usefixtures("long_loans")
def test_an_exception_in_the_middle_of_a_change_costs_the_connection_and_no_record(
    servers: str, producer: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost: list[Delivery] = []
    with ShareConsumer(
        bootstrap_servers=servers,
        group_id=GROUP,
        share_acknowledgement_mode="explicit",
        max_unacknowledged=10,
        on_lost=lambda deliveries, _: lost.extend(deliveries),
    ) as consumer:
        consumer.subscribe([TOPIC])
        connection = borrow(consumer, producer)
        producer.send(TOPIC, b"in hand").result()
        (held,) = polled(consumer)
        read = Connection.read_directly

        def interrupted(self: Connection) -> Any:
            read(self)
            raise Alarm

        monkeypatch.setattr(Connection, "read_directly", interrupted)

        def poll_on() -> None:
            while True:
                producer.send(TOPIC, b"on its way").result()
                for delivery in polled(consumer):  # if it was left to the background thread
                    delivery.accept()

        with pytest.raises(Alarm):
            poll_on()
        monkeypatch.setattr(Connection, "read_directly", read)
        found = {one.value: one for one in polled(consumer)}
        while len(found) < 2:
            found |= {one.value: one for one in polled(consumer)}
        assert set(found) == {b"in hand", b"on its way"}
        assert found[b"in hand"].delivery_count == 2
        assert lost == [held]
        assert held.is_lost
        assert not connection.is_open
        for each in found.values():
            each.accept()
        assert set(consumer.commit_sync().values()) == {None}


@pytest.mark.usefixtures("long_loans")
def test_a_signal_handler_that_calls_the_consumer_in_the_middle_of_a_change_is_told_so(
    consumer: ShareConsumer, producer: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    borrow(consumer, producer)
    read = Connection.read_directly
    refused: list[Exception] = []

    def interrupted(self: Connection) -> Any:
        if not refused:  # as a handler would, which has interrupted this
            with pytest.raises(IllegalStateError, match="signal handler") as raised:
                consumer.poll(0)
            refused.append(raised.value)
        return read(self)

    monkeypatch.setattr(Connection, "read_directly", interrupted)
    trips_until(lambda: refused, consumer, producer)


@pytest.mark.usefixtures("long_loans")
def test_a_signal_handler_can_close_in_the_middle_of_a_change(
    consumer: ShareConsumer, producer: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    borrow(consumer, producer)
    read = Connection.read_directly

    def interrupted(self: Connection) -> Any:
        consumer.close()
        return read(self)

    monkeypatch.setattr(Connection, "read_directly", interrupted)
    found: list[Delivery] = []
    while consumer._closing is None:
        for delivery in found:  # if it was left to the background thread
            delivery.accept()
        producer.send(TOPIC, b"next").result()
        found = consumer.poll(GIVE_UP_S)
    assert found == []
    with pytest.raises(IllegalStateError, match="closed"):
        consumer.poll(0)


@pytest.mark.usefixtures("long_loans")
def test_wakeup_ends_a_wait_for_the_socket_at_once(consumer: ShareConsumer, producer: Producer) -> None:
    borrow(consumer, producer)
    waking = threading.Thread(
        target=lambda: (until("the wait", lambda: is_waiting(consumer)), consumer.wakeup())
    )
    waking.start()
    with pytest.raises(WakeupError):
        consumer.poll(None)
    waking.join()


@pytest.mark.usefixtures("long_loans")
def test_another_thread_can_close_a_consumer_whose_connection_is_lent(
    consumer: ShareConsumer, producer: Producer, servers: str
) -> None:
    connection = borrow(consumer, producer)
    producer.send(TOPIC, b"given back").result()
    (delivery,) = polled(consumer)
    thread = threading.Thread(target=consumer.close)
    thread.start()
    thread.join(GIVE_UP_S)
    assert not thread.is_alive()
    assert not connection.is_open
    with pytest.raises(IllegalStateError):
        delivery.accept()
    with ShareConsumer(bootstrap_servers=servers, group_id=GROUP) as other:
        other.subscribe([TOPIC])
        assert [one.value for one in polled(other)] == [b"given back"]


@pytest.mark.usefixtures("long_loans")
def test_a_connection_that_is_cut_while_it_is_lent_is_replaced(
    consumer: ShareConsumer, producer: Producer
) -> None:
    connection = borrow(consumer, producer)
    producer.send(TOPIC, b"in hand").result()
    (held,) = polled(consumer)
    held.accept()
    assert connection._socket is not None
    connection._socket.shutdown(socket.SHUT_RDWR)
    (error,) = consumer.commit_sync().values()
    assert isinstance(error, KafkaError)
    assert not connection.is_open
    (again,) = polled(consumer)
    assert (again.value, again.delivery_count) == (b"in hand", 2)
    again.accept()
    assert set(consumer.commit_sync().values()) == {None}


def test_a_response_that_comes_after_the_call_is_read_by_the_background_thread(
    consumer: ShareConsumer, producer: Producer
) -> None:
    """The callback hears of it with the next call; and the loan has ended."""
    told: list[KafkaError | None] = []
    consumer.set_acknowledgement_commit_callback(lambda _, error: told.append(error))
    connection = borrow(consumer, producer)
    told.clear()
    producer.send(TOPIC, b"late").result()
    (delivery,) = polled(consumer)
    delivery.accept()
    with pytest.raises(TimeoutError):
        consumer.commit_sync(0)
    until("the end of the loan", lambda: not connection.is_lent)
    until("the response", lambda: consumer.poll(0) == [] and bool(told))
    assert told == [None]
    assert connection.is_open


@pytest.mark.usefixtures("long_loans")
def test_a_response_that_is_not_usual_is_left_to_the_background_thread(
    consumer: ShareConsumer, producer: Producer
) -> None:
    """Two ranges in one response: one record comes again, and a new one with it."""
    borrow(consumer, producer)
    producer.send(TOPIC, b"again").result()
    (delivery,) = polled(consumer)
    delivery.release()
    producer.send(TOPIC, b"new").result()
    found: dict[bytes, int] = {}
    while len(found) < 2:
        for one in polled(consumer):
            found[one.value] = one.delivery_count
            one.accept()
    assert found == {b"again": 2, b"new": 1}
    assert set(consumer.commit_sync().values()) == {None}


def test_locks_are_renewed_while_an_application_with_a_lent_connection_computes(servers: str) -> None:
    """Nobody reads the connection then, until the background thread takes it back."""
    with (
        Broker(
            settings={
                "headrace.share.initial.rebalance.delay.ms": 0,
                "group.share.record.lock.duration.ms": 3_000,
                "group.share.min.record.lock.duration.ms": 3_000,
                "group.share.heartbeat.interval.ms": 500,
                "group.share.min.heartbeat.interval.ms": 500,
            }
        ) as broker,
        Admin(bootstrap_servers=broker.bootstrap_servers) as admin,
        Producer(bootstrap_servers=broker.bootstrap_servers) as producer,
    ):
        admin.set_group_config(GROUP, {"share.auto.offset.reset": "earliest"})
        with ShareConsumer(
            bootstrap_servers=broker.bootstrap_servers,
            group_id=GROUP,
            share_acknowledgement_mode="explicit",
            auto_renew=True,
        ) as consumer:
            consumer.subscribe([TOPIC])
            borrow(consumer, producer)
            producer.send(TOPIC, b"long work").result()
            (delivery,) = polled(consumer)
            first = delivery.lock_deadline
            heartbeat = consumer._member.metrics._heartbeats
            beats = heartbeat.count
            until("a renewal", lambda: delivery.lock_deadline > first + 1.0)
            assert heartbeat.count > beats
            assert not delivery.is_lost
            delivery.accept()
            assert set(consumer.commit_sync().values()) == {None}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_fork_leaves_the_lent_connection_to_the_parent(consumer: ShareConsumer, producer: Producer) -> None:
    connection = borrow(consumer, producer)
    producer.send(TOPIC, b"the parent's").result()
    (delivery,) = polled(consumer)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            consumer.close()
            consumer.poll(0)
        except IllegalStateError:
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    delivery.accept()
    assert set(consumer.commit_sync().values()) == {None}
    assert connection.is_open


@pytest.mark.usefixtures("long_loans")
def test_a_request_for_which_the_socket_has_no_room_is_written_by_the_background_thread(
    consumer: ShareConsumer, producer: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = borrow(consumer, producer)

    class Full:
        """Takes the first bytes only."""

        def __init__(self, real: socket.socket) -> None:
            self.real = real
            self.was_asked = False

        def send(self, frame: bytes) -> int:
            self.was_asked = True
            return self.real.send(frame[:10])

        def __getattr__(self, name: str) -> Any:
            return getattr(self.real, name)

    assert connection._socket is not None
    full = Full(connection._socket)
    monkeypatch.setattr(connection, "_socket", full)
    trips_until(lambda: full.was_asked, consumer, producer)
    assert connection.is_open


def test_a_runtime_error_of_a_signal_handler_ends_a_wait_for_the_socket(
    consumer: ShareConsumer, producer: Producer
) -> None:
    """It must not be taken for an error of the wait itself."""

    def stop() -> None:
        raise RuntimeError("stop")

    connection = borrow(consumer, producer)
    thread = by_signal(stop, lambda: is_waiting(consumer))
    with pytest.raises(RuntimeError, match="stop"):
        consumer.poll(GIVE_UP_S)
    thread.join()
    assert connection.is_open


class Interrupted:
    """A socket in whose calls a signal arrives: the handler runs when the system has done its work."""

    def __init__(self, real: socket.socket, name: str) -> None:
        self.real = real
        self.name = name
        self.is_over = False

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.real, name)
        if name != self.name or self.is_over:
            return found

        def call(*given: Any) -> Any:
            result = found(*given)
            self.is_over = True
            signal.raise_signal(signal.SIGUSR1)
            return result

        return call


@pytest.mark.parametrize("name", ["send", "recv_into"])
def test_a_timeout_error_of_a_signal_handler_is_not_taken_for_one_of_the_socket(
    consumer: ShareConsumer, producer: Producer, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Many programs raise TimeoutError from SIGALRM, and it is an OSError."""

    def stop(*_: object) -> None:
        raise TimeoutError("stop")

    connection = borrow(consumer, producer)
    signal.signal(signal.SIGUSR1, stop)
    assert connection._socket is not None
    interrupted = Interrupted(connection._socket, name)
    monkeypatch.setattr(connection, "_socket", interrupted)

    def work() -> None:
        while not interrupted.is_over:  # the background thread may have it, now and then
            producer.send(TOPIC, b"x").result()
            for one in polled(consumer):
                one.accept()
            consumer.commit_sync()

    with pytest.raises(TimeoutError, match="stop"):
        work()
    producer.send(TOPIC, b"after").result()
    found: set[bytes] = set()
    while b"after" not in found:
        for one in polled(consumer):
            found.add(one.value)
            one.accept()
    assert set(consumer.commit_sync().values()) == {None}


def test_locks_that_came_to_the_application_are_watched_when_the_loan_has_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also when nothing else is due before they end, not even a heartbeat."""
    monkeypatch.setattr(direct, "LOAN_S", 0.2)
    with (
        Broker(
            settings={
                "headrace.share.initial.rebalance.delay.ms": 0,
                "group.share.record.lock.duration.ms": 1_000,
                "group.share.min.record.lock.duration.ms": 1_000,
                "group.share.heartbeat.interval.ms": 15_000,
            }
        ) as broker,
        Admin(bootstrap_servers=broker.bootstrap_servers) as admin,
        Producer(bootstrap_servers=broker.bootstrap_servers) as producer,
    ):
        admin.set_group_config(GROUP, {"share.auto.offset.reset": "earliest"})
        with ShareConsumer(
            bootstrap_servers=broker.bootstrap_servers,
            group_id=GROUP,
            share_acknowledgement_mode="explicit",
            auto_renew=True,
        ) as consumer:
            consumer.subscribe([TOPIC])
            borrow(consumer, producer)
            member = consumer._member
            found: list[Delivery] = []
            give_up = time.monotonic() + GIVE_UP_S
            while True:
                for each in found:
                    each.accept()
                consumer.commit_sync()
                until("nothing is due", lambda: member._timer_ms > now_ms() + 3_000)
                sending = threading.Thread(
                    target=lambda: (
                        until("the wait", lambda: is_waiting(consumer)),
                        producer.send(TOPIC, b"long work").result(),
                    )
                )
                sending.start()
                found = polled(consumer)
                sending.join()
                if member._timer_ms > now_ms() + 2_000:
                    break  # the background thread knows nothing of the lock
                assert time.monotonic() < give_up
            (delivery,) = found
            first = delivery.lock_deadline
            until("two renewals", lambda: delivery.lock_deadline > first + 0.8)
            assert not delivery.is_lost
            delivery.accept()
            assert set(consumer.commit_sync().values()) == {None}


def test_one_of_several_lent_connections_that_has_ended_does_not_end_every_wait(
    consumer: ShareConsumer, producer: Producer, servers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(direct, "LOAN_S", GIVE_UP_S)
    connection = borrow(consumer, producer)
    member, borrower, loop = consumer._member, consumer._direct, consumer._background

    async def open_another() -> Connection:
        another = await Connection.open(connection.address, consumer.settings)
        assert another.lend(member.lock, direct.API_KEYS)
        with member.lock:
            borrower._watch([*borrower._lent, (2, another)])
        return another

    another = loop.run(open_another())
    loop.run(another.close())
    waits: list[float] = []
    wait = borrower.wait
    monkeypatch.setattr(borrower, "wait", lambda timeout_s: (waits.append(timeout_s), wait(timeout_s)))
    assert connection.is_lent
    assert consumer.poll(0.5) == []
    assert 1 <= len(waits) < 20
