"""Sending: bodies are checked against their task, time-outs end, event loops are not blocked unnoticed, forks work."""

import asyncio
import itertools
import subprocess
import sys
from dataclasses import dataclass

import pytest

from headrace import Broker
from headrace.worker import Queue, QueueError, SendError

PROGRAM = """
import os, sys
from headrace.worker import Queue

queue = Queue(sys.argv[1], group_id="mailers")

@queue.task("emails")
def send(body: str) -> None: ...

send.send("parent before the fork")
children = []
for number in range(2):
    pid = os.fork()
    if pid == 0:
        send.send(f"child {number}")
        sys.exit()  # with its atexit handlers, as gunicorn's workers end
    children.append(pid)
assert all(os.waitpid(pid, 0)[1] == 0 for pid in children)
send.send("parent after the fork")
"""


@dataclass
class Email:
    to: str


@pytest.fixture
def broker():
    with Broker() as broker:
        yield broker


def test_a_body_that_the_task_could_not_read_is_refused(broker):
    with Queue(broker.bootstrap_servers, group_id="mailers") as queue:

        @queue.task("emails")
        async def send(email: Email) -> None: ...

        for wrong in ({"wrong": 1}, Email(to=7), "text", b"bytes", 7):
            with pytest.raises(
                TypeError, match="does not take this body: the value cannot be decoded as Email"
            ):
                send.send(wrong)
            with pytest.raises(TypeError, match="does not take this body"):
                asyncio.run(send.send_async(wrong))
        assert send.send(Email("ada"), timeout=30).offset == 0
        assert send.send({"to": "ada"}).offset == 1, "it can be read"


def test_without_a_broker_send_ends_with_its_timeout():
    with Queue("localhost:1", group_id="mailers", delivery_timeout_ms=1_000, request_timeout_ms=900) as queue:
        with pytest.raises(SendError, match=r"not acknowledged within 0\.05 s; it may still be written"):
            queue.send("emails", "x", timeout=0.05)
        with pytest.raises(SendError, match=r"not acknowledged within 0\.05 s; it may still be written"):
            asyncio.run(queue.send_async("emails", "x", timeout=0.05))


def test_without_a_broker_what_is_sent_later_ends_with_its_timeout_as_well():
    with Queue("localhost:1", group_id="mailers") as queue:
        with pytest.raises(SendError, match=r"mailers\.later .*no response within 0\.05 s"):
            queue.send("emails", "x", timeout=0.05, delay=60)
        with pytest.raises(SendError, match=r"mailers\.later .*no response within 0\.05 s"):
            asyncio.run(queue.send_async("emails", "x", timeout=0.05, delay=60))


def test_send_in_a_running_loop_warns_and_names_send_async(broker):
    async def blocks(queue: Queue) -> None:
        queue.send("emails", "x")

    with (
        Queue(broker.bootstrap_servers, group_id="mailers") as queue,
        pytest.warns(RuntimeWarning, match=r"await send_async\(\.\.\.\)"),
    ):
        asyncio.run(blocks(queue))


@pytest.mark.skipif(sys.platform == "win32", reason="no fork")
def test_a_queue_that_has_sent_works_in_forked_children(broker):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, broker.bootstrap_servers], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
    topic = broker.core.topics.get("emails")
    assert sum(partition.log.end_offset for partition in topic.partitions) == 4


def test_a_signal_handler_may_send_while_it_interrupts_the_first_record_of_a_queue(broker):
    """The handler runs at each step of the first `send` in turn, until that has fewer steps."""
    with Queue(broker.bootstrap_servers, group_id="mailers") as queue:
        for steps in itertools.count():
            left, has_run = steps, False

            def run_handler(frame, event, argument):
                nonlocal left, has_run
                left -= event == "call"
                if left < 0:
                    sys.setprofile(None)
                    queue.send("emails", "handler")
                    has_run = True

            queue.close()
            sys.setprofile(run_handler)
            try:
                place = queue.send("emails", "first")
            finally:
                sys.setprofile(None)
            if not has_run:
                break
        assert steps > 50
        assert place.offset == 2 * steps


def test_a_queue_without_a_group_sends(broker):
    with Queue(broker.bootstrap_servers) as queue:

        @queue.task("emails")
        async def send(email: Email) -> None: ...

        assert queue.send("emails", {"to": "ada"}, timeout=30).offset == 0
        assert send.send(Email("ada"), timeout=30).offset == 1
        assert asyncio.run(queue.send_async("emails", "text")).offset == 2
        assert len(queue.send_many("emails", ["one", "two"])) == 2
        assert queue.status() == {"group": None, "tasks": {}}


@pytest.mark.parametrize(
    "use",
    [
        lambda queue: queue.run(),
        lambda queue: asyncio.run(queue.run_async()),
        lambda queue: queue.send("emails", "ada", delay=60),
        lambda queue: queue.schedule("emails", "ada", delay=60),
        lambda queue: queue.scheduled(),
        lambda queue: queue.group_id,
    ],
)
def test_what_belongs_to_a_group_says_so_in_a_queue_without_one(use):
    with Queue("127.0.0.1:1") as queue:

        @queue.task("emails")
        async def send(email: str) -> None: ...

        with pytest.raises(QueueError, match=r"has no group_id.* Queue\(\.\.\., group_id='NAME'\)"):
            use(queue)


@pytest.mark.parametrize("group_id", ["", 7])
def test_a_group_id_that_is_none_is_refused(group_id):
    with pytest.raises(QueueError, match=f"group_id must be a non-empty string or None, got {group_id!r}"):
        Queue("127.0.0.1:1", group_id=group_id)
