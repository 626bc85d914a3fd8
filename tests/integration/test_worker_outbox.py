"""What is sent to a topic that is not there: one clear sentence of ours, soon, and nothing in aiokafka's log."""

import asyncio
import logging
import threading
from collections.abc import Iterator

import pytest

from headrace import Admin, Broker
from headrace.worker import Queue, QueueError, Reject, SendError
from tests.conformance.steps import wait_for

WAIT_S = 60.0


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
    assert said_by("aiokafka", caplog) == []
    assert queue.send("emails", "one").offset == 0, "and others go on"


def test_a_worker_whose_dead_letters_have_no_topic_does_not_start(
    queue: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    @queue.task("emails", dead_letter="emails.dead")
    async def send(email: str) -> None: ...

    with pytest.raises(QueueError, match=r"nowhere to go: there is no topic 'emails\.dead'"):
        asyncio.run(queue.run_async())
    assert said_by("aiokafka", caplog) == []


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
                lambda: [line for line in said_by("headrace.worker", caplog) if "no dead letter" in line]
            )
            assert "there is no topic 'emails.dead'" in lines[0]
            admin.create_topic("emails.dead")
            wait_for(lambda: [each for each in queue.metrics().values() if each.dead_lettered])
        finally:
            queue.stop(now=True)
            worker.join(WAIT_S)
    assert said_by("aiokafka", caplog) == []
