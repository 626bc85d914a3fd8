"""Several tasks on one topic, at work: records find their task, in its own pool, and unknown ones are kept."""

import threading
from dataclasses import dataclass

import msgspec
import pytest

from headrace.worker import Backoff, Queue, Reject, current_run
from headrace.worker.testing import QueueTest


@dataclass
class Created:
    id: int


@dataclass
class Canceled:
    id: int
    why: str


@pytest.fixture
def queue():
    with Queue("localhost:1", group_id="orders") as queue:
        yield queue


def only(test: QueueTest):
    (metrics,) = test.metrics().values()
    return metrics


def test_each_record_runs_as_its_task_says(queue):
    seen = []

    @queue.task("orders", type="created")
    async def created(order: Created) -> None:
        run = current_run()
        assert run is not None
        seen.append((order, run.task == created.name, threading.current_thread().name))

    @queue.task("orders", type="canceled")
    def canceled(order: Canceled, delivery: object) -> None:
        seen.append((order, delivery.offset, threading.current_thread().name))  # type: ignore[attr-defined]

    with QueueTest(queue) as test:
        canceled.send(Canceled(1, "late"), headers={"tenant": "acme"})
        created.send(Created(2), headers={"headrace.type": "canceled"})
        test.run_until_idle()

        by_type = {type(order): (order, *more) for order, *more in seen}
        assert by_type[Created][:2] == (Created(2), True)
        assert by_type[Canceled][:2] == (Canceled(1, "late"), 0)
        assert by_type[Canceled][2].startswith("headrace-task"), "on a thread"
        headers = [record.headers for record in test.records("orders")]
        assert [each["headrace.type"] for each in headers] == ["canceled", "created"]
        assert headers[0]["tenant"] == "acme"
        assert only(test).succeeded == 2
        assert queue.status()["tasks"]["orders.types"]["topic"] == "orders"


def test_a_body_is_checked_against_its_own_task(queue):
    @queue.task("orders", type="created")
    async def created(order: Created) -> None: ...

    @queue.task("orders", type="canceled")
    async def canceled(order: Canceled) -> None: ...

    with pytest.raises(TypeError, match="canceled does not take this body"):
        canceled.send(Created(1))  # type: ignore[arg-type]


class Paid(msgspec.Struct, tag=True):
    id: int


class Shipped(msgspec.Struct, tag=True):
    id: int


def test_a_tagged_union_is_one_task(queue):
    seen = []

    @queue.task("orders", dead_letter="dead")
    async def handle(order: Paid | Shipped) -> None:
        seen.append(order)

    with QueueTest(queue) as test:
        handle.send(Paid(1))
        handle.send(Shipped(2))
        test.send("orders", {"type": "Lost", "id": 3})
        test.run_until_idle()
        assert sorted(seen, key=lambda each: each.id) == [Paid(1), Shipped(2)]
        assert only(test).unreadable == 1


def test_a_record_of_unknown_type_is_a_dead_letter_that_can_be_sent_back(queue, caplog):
    seen = []

    @queue.task("orders", type="created", dead_letter="dead")
    async def created(order: Created) -> None:
        seen.append(order.id)

    with QueueTest(queue) as test:
        test.send("orders", Created(1), headers={"headrace.type": "shipped"})
        test.send("orders", Created(2))
        created.send(Created(3))
        test.run_until_idle()

        letters = test.dead_letters("dead")
        assert [each.headers["headrace.dlq.cause"] for each in letters] == ["unreadable"] * 2
        # They are written side by side, so either may be the first.
        assert {each.headers.get("headrace.type") for each in letters} == {"shipped", None}
        assert "the record has the type 'shipped', and topic 'orders' has no task for it" in caplog.text
        assert (seen, only(test).unreadable) == ([3], 2)


def test_without_dead_letters_it_is_held(queue):
    @queue.task("orders", type="created")
    async def created(order: Created) -> None: ...

    with QueueTest(queue) as test:
        test.send("orders", Created(1), headers={"headrace.type": "shipped"})
        test.run_until_idle()
        assert (only(test).stuck, only(test).held, only(test).discarded) == (1, 1, 0)


def test_dead_letters_and_logs_name_the_task_of_the_record(queue, caplog):
    @queue.task("orders", type="created", dead_letter="dead")
    async def created(order: Created) -> None: ...

    @queue.task("orders", type="canceled", dead_letter="dead")
    async def canceled(order: Canceled) -> None:
        raise Reject("never")

    with QueueTest(queue) as test:
        canceled.send(Canceled(1, "x"))
        test.run_until_idle()
        (letter,) = test.dead_letters("dead")
        assert canceled.name in letter.headers.values()
        assert f"{canceled.name}: giving up on orders-0@0" in caplog.text


def test_a_retry_and_a_scheduled_record_keep_their_type(queue):
    seen = []

    @queue.task("orders", type="created", retries=Backoff(first=500, most=500, jitter=0))
    async def created(order: Created) -> None:
        seen.append(order.id)
        if len(seen) == 1:
            raise ConnectionError("away")

    with QueueTest(queue) as test:
        created.send(Created(1))
        test.run_until_idle()
        created.send(Created(2), delay=100)
        test.advance(600)
        test.run_until_idle()
        assert (sorted(seen), only(test).scheduled) == ([1, 1, 2], 1)


in_processes = Queue("localhost:1", group_id="orders")


@in_processes.task("orders", type="created", retries=None, dead_letter="dead", pool="process")
def created_in_another_process(order: Created, delivery: object) -> None:
    assert type(delivery).__name__ == "DeliveryFacts"


@in_processes.task("orders", type="canceled", retries=None, dead_letter="dead", pool="process")
def canceled_in_another_process(order: Canceled) -> None:
    raise Reject(order.why)


in_both = Queue("localhost:1", group_id="orders")
kinds: list[str] = []


@in_both.task("orders", type="created", pool="process")
def created_over_there(order: Created, delivery: object) -> None: ...


@in_both.task("orders", type="canceled")
async def canceled_here(order: Canceled, delivery: object) -> None:
    kinds.append(type(delivery).__name__)


def test_a_coroutine_beside_a_task_in_processes_gets_a_delivery():
    kinds.clear()
    with QueueTest(in_both) as test:
        canceled_here.send(Canceled(2, "late"))
        test.run_until_idle()
    assert kinds == ["Delivery"]


def test_tasks_of_one_topic_have_their_own_processes():
    with QueueTest(in_processes) as test:
        created_in_another_process.send(Created(1))
        canceled_in_another_process.send(Canceled(2, "late"))
        test.run_until_idle(60)
        assert (only(test).succeeded, only(test).rejected) == (1, 1)
