"""Dramatiq and Taskiq on both brokers: every task once, retries, and tasks that are sent later."""

import asyncio
from collections import Counter

import dramatiq
from dramatiq.middleware import Retries
from taskiq.receiver import Receiver

from headrace.adapters import dramatiq as for_dramatiq
from headrace.adapters import taskiq as for_taskiq
from headrace.client.errors import GroupIdNotFoundError
from tests.conformance.steps import wait_for

TASKS = 50
WAIT_MS = 60_000


def test_dramatiq_runs_every_message_also_retries_and_delayed_ones(broker, admin, unique):
    runs: Counter[int] = Counter()
    retries = Retries(min_backoff=100, max_backoff=100)
    app = for_dramatiq.HeadraceBroker(broker.bootstrap_servers, group_id=unique, middleware=[retries])

    @dramatiq.actor(broker=app)
    def count(number):
        runs[number] += 1
        if number == 0 and runs[number] == 1:
            raise RuntimeError("the first run")

    worker = dramatiq.Worker(app, worker_timeout=100, worker_threads=4)
    worker.start()
    try:
        for number in range(TASKS):
            count.send_with_options(args=(number,), delay=500 if number % 10 == 1 else None)
        app.join("default", timeout=WAIT_MS)
        worker.join()
        app.flush_all()
        app.join("default", timeout=WAIT_MS)
    finally:
        worker.stop()
        app.close()
    assert runs == Counter([0, *range(TASKS)])


def test_taskiq_runs_every_task_also_delayed_ones(broker, admin, unique):
    runs: Counter[int] = Counter()
    app = for_taskiq.HeadraceBroker(broker.bootstrap_servers, group_id=unique, queue_name=unique)

    @app.task
    async def count(number: int) -> None:
        runs[number] += 1

    def is_settled() -> bool:
        try:
            offsets = admin.share_group_offsets(unique, [unique]).values()
        except GroupIdNotFoundError:
            return False
        return len(runs) == TASKS and all(one.lag == 0 for one in offsets)

    async def work() -> None:
        stopping = asyncio.Event()
        listening = asyncio.create_task(Receiver(app, max_async_tasks=10).listen(stopping))
        for number in range(TASKS):
            kicker = count.kicker()
            await (kicker.with_labels(delay=0.5) if number % 10 == 1 else kicker).kiq(number)
        await asyncio.to_thread(wait_for, is_settled)
        stopping.set()
        await listening
        await app.shutdown()

    asyncio.run(work())
    assert runs == Counter(range(TASKS))
