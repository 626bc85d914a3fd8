"""What a queue sends: many records at once; and to a topic that is not there, one clear sentence and no noise."""

import asyncio
import logging
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from headrace import Admin, Broker
from headrace.client.producing import core
from headrace.client.sync import ShareConsumer
from headrace.wire.batches import split
from headrace.worker import Queue, QueueError, Reject, SendError, SomeTasksNotSentError
from tests.conformance.steps import wait_for

WAIT_S = 60.0


@pytest.fixture(autouse=True)
def _topics_come_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker in this process needs no five seconds to create a topic."""
    monkeypatch.setattr(core, "TOPIC_WAIT_MS", 300)


@pytest.fixture
def broker() -> Iterator[Broker]:
    """One that creates no topic by itself."""
    with Broker(settings={"auto.create.topics.enable": "false"}) as broker:
        yield broker


@pytest.fixture
def queue(broker: Broker) -> Iterator[Queue]:
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_topic("emails")
    with Queue(broker.bootstrap_servers, group_id="mailers") as queue:
        yield queue


def said_by(name: str, caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name.startswith(name)]


def test_a_record_for_a_topic_that_is_not_there_is_refused_with_the_command_that_creates_it(
    queue: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(SendError, match=r"no topic 'letters'.*headrace topic create letters"):
        queue.send("letters", "one")
    with pytest.raises(SomeTasksNotSentError, match=r"3 of 3.*no topic 'letters'"):
        queue.send_many("letters", ["one", "two", "three"])
    assert said_by("headrace.client", caplog) == []
    assert queue.send("emails", "one").offset == 0, "and others go on"


def test_a_worker_whose_dead_letters_have_no_topic_does_not_start(
    queue: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    @queue.task("emails", dead_letter="emails.dead")
    async def send(email: str) -> None: ...

    with pytest.raises(QueueError, match=r"cannot be used: there is no topic 'emails\.dead'"):
        asyncio.run(queue.run_async())
    assert said_by("headrace.client", caplog) == []


def test_a_dead_letter_waits_for_a_topic_that_was_deleted_and_says_so_in_one_line(
    broker: Broker, queue: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)

    @queue.task("emails", dead_letter="emails.dead")
    async def send(email: str) -> None:
        raise Reject("never")

    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_topic("emails.dead")
        working = threading.Event()
        worker = threading.Thread(target=lambda: queue.run(on_started=working.set))
        worker.start()
        try:
            assert working.wait(WAIT_S)
            admin.delete_topics(["emails.dead"])
            queue.send("emails", "one")
            lines = wait_for(
                lambda: [line for line in said_by("headrace.worker", caplog) if "the dead letter of" in line]
            )
            assert "there is no topic 'emails.dead'" in lines[0]
            admin.create_topic("emails.dead")
            wait_for(lambda: [each for each in queue.metrics().values() if each.dead_lettered])
        finally:
            queue.stop(now=True)
            worker.join(WAIT_S)
    assert said_by("headrace.client", caplog) == []


def batches_in(broker: Broker, topic: str) -> int:
    log = broker.core.topics.require(topic, 0).log
    data = broker.call(lambda: bytes(log.reader.read(0, max_bytes=10_000_000).data))
    return sum(1 for _ in split(data))


def test_many_records_are_sent_in_few_batches_and_their_places_come_in_order(
    broker: Broker, queue: Queue
) -> None:
    count = 2_500
    sent = queue.send_many(
        "emails",
        (str(number) for number in range(count)),
        key=lambda body: f"k{body}",
        headers={"from": "us"},
    )
    assert [each.offset for each in sent] == list(range(count))
    assert batches_in(broker, "emails") < count / 10
    with ShareConsumer(bootstrap_servers=broker.bootstrap_servers, group_id="readers") as consumer:
        with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            admin.set_group_config("readers", {"share.auto.offset.reset": "earliest"})
        consumer.subscribe(["emails"])
        first = wait_for(lambda: consumer.poll(0.5))[0]
    assert (first.key, first.value) == (b"k0", b"0")
    assert ("from", b"us") in first.headers


def test_many_are_sent_from_a_loop_too(queue: Queue) -> None:
    sent = asyncio.run(queue.send_many_async("emails", ["one", "two"]))
    assert [each.offset for each in sent] == [0, 1]


def test_of_many_records_those_that_the_topic_does_not_take_are_told_and_the_others_are_there(
    broker: Broker, queue: Queue
) -> None:
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_topic("small", configs={"max.message.bytes": "300"})
    bodies = ["x" * 50, "x" * 1_000, *(["y" * 100] * 5)]
    with pytest.raises(
        SomeTasksNotSentError, match=r"1 of 7 records were not acknowledged.*max\.message\.bytes"
    ) as raised:
        queue.send_many("small", bodies)
    assert [each is None for each in raised.value.sent] == [False, True, *([False] * 5)]
    assert sorted(each.offset for each in raised.value.sent if each is not None) == list(range(6))


@pytest.mark.parametrize("bodies", ["text", b"bytes", {"a": 1}, 5])
def test_what_is_no_list_of_bodies_is_refused(queue: Queue, bodies: Any) -> None:
    with pytest.raises(TypeError, match="send_many takes several bodies"):
        queue.send_many("emails", bodies)
