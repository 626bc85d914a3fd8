"""Batches on Headrace's broker and on Apache Kafka: each record has its own outcome, and locks outlive them."""

import threading
from collections import Counter

from headrace.client.delivery import Delivery
from headrace.worker import Backoff, Batch, Reject, Retry
from tests.conformance.steps import wait_for
from tests.conformance.worker.test_worker import lag, read


def test_each_record_of_a_batch_has_its_own_outcome(queue, work, broker, admin, unique):
    done: Counter[int] = Counter()
    sizes = []

    @queue.task(
        unique,
        batch=Batch(max=16, wait=0.2),
        retries=Backoff(first=0.1, most=0.1),
        dead_letter=f"{unique}.dead",
    )
    async def judge(numbers: list[int], deliveries: list[Delivery]) -> list[Exception | None]:
        sizes.append(len(numbers))
        assert [each.value for each in deliveries] == [str(number).encode() for number in numbers]
        outcomes: list[Exception | None] = []
        for number in numbers:
            if number % 20 == 7:
                outcomes.append(Reject("ends with 7"))
            elif number % 20 == 3 and not done[number]:
                outcomes.append(Retry(after=0.1))
                done[number] += 1
            else:
                outcomes.append(None)
                done[number] += 1
        return outcomes

    queue.send_many(unique, range(200), key=str)
    worker = work(queue)
    worker.wait_for(succeeded=190, dead_lettered=10)
    worker.stop()

    assert max(sizes) > 1
    again = {number for number, count in done.items() if count == 2}
    assert (again, max(done.values())) == (set(range(3, 200, 20)), 2)
    assert len(read(broker.bootstrap_servers, f"{unique}.dead", 10)) == 10
    wait_for(lambda: lag(admin, unique) == 0)


def test_a_batch_longer_than_its_locks_runs_once(queue, work, admin, unique):
    admin.set_group_config(unique, {"share.record.lock.duration.ms": 1_000})
    runs = []

    @queue.task(unique, batch=Batch(max=8, wait=2.0))
    def long(bodies: list[bytes]) -> None:
        runs.append(bodies)
        threading.Event().wait(3.5)

    queue.send_many(unique, [b"x"] * 6, key=lambda _: "one partition")
    metrics = work(queue).wait_for(succeeded=6)

    assert (sum(len(each) for each in runs), metrics.received, metrics.lost) == (6, 6, 0)
