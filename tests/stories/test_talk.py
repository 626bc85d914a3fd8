"""The talk: the window between start and end offset, consumers that come, go and die, records that take long."""

import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.conformance.share.share_client import ACCEPT as ACCEPTED
from tests.conformance.share.share_client import REJECT as REJECTED
from tests.conformance.share.share_client import RELEASE as RELEASED
from tests.conformance.share.share_client import ShareMember, new_queue, set_group, start_and_lag
from tests.conformance.share.share_state import written_state
from tests.conformance.wire_client import WireClient
from tests.share_consumers import WAIT_S, Delivery, Librdkafka, take
from tests.stories.records import EXPLICIT, OpenConsumer, produce, work

ROOT = Path(__file__).parents[2]


@contextmanager
def holding_process(bootstrap_servers: str, topic: str, records: int) -> Iterator["subprocess.Popen[str]"]:
    """A consumer in a process of its own; entered once it holds what it could get."""
    command = [sys.executable, "-m", "tests.stories.holding_consumer", bootstrap_servers, topic, str(records)]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        assert process.stdout.readline().split() == ["holding", *map(str, range(records))]
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.mark.parametrize("fate", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "frozen"])
def test_the_records_of_a_consumer_that_died_come_back(
    bootstrap_servers: str, wire: WireClient, topic: str, consumer: OpenConsumer, fate: signal.Signals
) -> None:
    """Of one that is killed with its connection, of one that hangs when its lock has run out."""
    set_group(wire, topic, record_lock_duration_ms="3000")
    produce(bootstrap_servers, topic, [str(number) for number in range(5)], in_one_batch=True)
    with holding_process(bootstrap_servers, topic, 5) as process:
        process.send_signal(fate)
        started = time.monotonic()
        taken = take(consumer(), 5)
        waited_s = time.monotonic() - started
    assert [(one.offset, one.count) for one in taken] == [(offset, 2) for offset in range(5)]
    if fate == signal.SIGSTOP:
        assert waited_s > 0.5, "the lock was respected"


def test_batches_come_in_order_but_not_one_after_the_other(
    bootstrap_servers: str, topic: str, consumer: OpenConsumer
) -> None:
    """Consumer 1 takes 0-4 and dies, consumer 2 takes 5-8 and then what consumer 1 left: 5 6 7 8 0 1 2 3 4."""
    produce(bootstrap_servers, topic, list("01234"), in_one_batch=True)
    output: list[int] = []
    with holding_process(bootstrap_servers, topic, 5):
        produce(bootstrap_servers, topic, list("5678"), in_one_batch=True)
        second = consumer()
        output += [one.offset for one in take(second, 4)]
    output += [one.offset for one in take(second, 5)]
    assert output == [5, 6, 7, 8, 0, 1, 2, 3, 4]


def test_consumers_join_and_leave_while_records_flow(
    bootstrap_servers: str, wire: WireClient, topic: str, consumer: OpenConsumer
) -> None:
    """Whoever leaves has answered for all it had, so that every record is processed once."""
    done = threading.Event()
    sent = 0

    def keep_sending() -> None:
        nonlocal sent
        producer = Producer({"bootstrap.servers": bootstrap_servers, "linger.ms": 5})
        while not done.is_set():
            producer.produce(topic, str(sent))
            sent += 1
            producer.poll(0)
            time.sleep(0.002)
        producer.flush()

    sender = threading.Thread(target=keep_sending)
    sender.start()
    processed: Counter[int] = Counter()

    def process(worker: Librdkafka, delivery: Delivery) -> None:
        processed[delivery.offset] += 1
        worker.acknowledge(delivery)

    try:
        team = [consumer(**EXPLICIT, max_poll_records=10)]
        for _ in range(4):
            team.append(consumer(**EXPLICIT, max_poll_records=10))
            enough = sum(processed.values()) + 100
            work(team, lambda enough=enough: sum(processed.values()) >= enough, process)  # type: ignore[misc]
            leaving = team.pop(0)
            leaving.commit()
            leaving.close()
    finally:
        done.set()
        sender.join()
    work(team, lambda: sum(processed.values()) >= sent, process)
    team[0].commit()
    assert processed == dict.fromkeys(range(sent), 1)
    assert start_and_lag(wire, topic, topic)[1] == 0


def test_a_slow_record_does_not_block_the_others(
    bootstrap_servers: str, wire: WireClient, topic: str, consumer: OpenConsumer
) -> None:
    """No head-of-line blocking: while one worker thinks about one record, the other does all the rest."""
    produce(bootstrap_servers, topic, [str(number) for number in range(60)])
    slow, quick = consumer(**EXPLICIT, max_poll_records=1), consumer(**EXPLICIT, max_poll_records=10)
    (thinking,) = take(slow, 1)
    processed: list[int] = []

    def process(worker: Librdkafka, delivery: Delivery) -> None:
        processed.append(delivery.offset)
        worker.acknowledge(delivery)

    work([quick], lambda: len(processed) == 59, process)
    quick.commit()
    assert sorted([thinking.offset, *processed]) == list(range(60))
    assert start_and_lag(wire, topic, topic)[1] == 1
    slow.acknowledge(thinking)
    assert slow.commit() == {0: None}
    assert start_and_lag(wire, topic, topic)[1] == 0


def test_the_start_offset_waits_for_the_first_record_that_is_not_done(
    bootstrap_servers: str, wire: WireClient, unique: str
) -> None:
    """The talk's picture: 2 and 4 acquired, 3 tried twice and available, 5 accepted, 6 rejected, 7 and 8 available."""
    topic_id = new_queue(wire, unique, *[1] * 9)
    with WireClient(bootstrap_servers) as connection, WireClient(bootstrap_servers) as another:
        member, other = (ShareMember(one, unique, topic_id) for one in (connection, another))
        one_by_one = {"max_records": 1, "batch_size": 1}
        for offset in range(9):
            assert member.fetch(0, **one_by_one).acquired() == [(offset, offset, 1)]
        assert member.ack((0, 1, ACCEPTED), (3, 3, RELEASED), (5, 5, ACCEPTED), (6, 6, REJECTED)) == 0
        assert other.fetch(0, **one_by_one).acquired() == [(3, 3, 2)]
        assert other.ack((3, 3, RELEASED)) == 0
        assert member.ack((7, 8, RELEASED)) == 0
        assert written_state(wire, unique, topic_id) == [
            (3, 3, 0, 2),
            (5, 5, 2, 1),
            (6, 6, 4, 1),
            (7, 8, 0, 1),
        ]
        assert start_and_lag(wire, unique, unique) == (2, 5)
        assert member.ack((2, 2, ACCEPTED)) == 0
        assert member.ack((4, 4, ACCEPTED)) == 0
        assert start_and_lag(wire, unique, unique) == (3, 3)
        assert other.take(3) == [(0, 3, 3, 3), (0, 7, 7, 2), (0, 8, 8, 2)]
        assert other.ack((3, 3, ACCEPTED)) == 0
        assert other.ack((7, 8, ACCEPTED)) == 0
        assert start_and_lag(wire, unique, unique) == (7, 0), "the window begins behind all that is done"


def test_the_window_slides_when_its_first_records_are_done(
    bootstrap_servers: str, wire: WireClient, topic: str, consumer: OpenConsumer
) -> None:
    """How far a group may go ahead of its start is a setting: the end moves only as the start does."""
    set_group(wire, topic, partition_max_record_locks="100")
    produce(bootstrap_servers, topic, [str(number) for number in range(150)])
    worker = consumer(**EXPLICIT, max_poll_records=150)
    first: list[Delivery] = []
    deadline = time.monotonic() + WAIT_S
    while not first:
        assert time.monotonic() < deadline
        first = worker.poll()
    held = [one.offset for one in first]
    assert held == list(range(len(held)))
    assert len(held) <= 100
    other = consumer(max_poll_records=150)
    rest = [one.offset for one in take(other, 100 - len(held))] if len(held) < 100 else []
    assert held + rest == list(range(100)), "the window is full"
    assert other.poll(0.5) == []
    for delivery in first[:10]:
        worker.acknowledge(delivery)
    worker.commit()
    assert [one.offset for one in take(other, 10)] == list(range(100, 110))
