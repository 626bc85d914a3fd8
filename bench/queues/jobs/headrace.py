"""headrace.worker on our broker. The server's address ends with the topic: HOST:PORT/TOPIC."""

import os
from collections.abc import Iterable
from dataclasses import dataclass

from bench.queues.jobs import work
from bench.wire import Connection, create_topic
from headrace.client.admin import Admin
from headrace.worker import Queue

server, _, topic = os.environ[work.SERVER].rpartition("/")


@dataclass(frozen=True, slots=True)
class Body:
    number: int
    wait_s: float


queue = Queue(server, group_id=topic)
threads = Queue(server, group_id=topic)


@queue.task(topic, concurrency=work.CONCURRENCY)
async def job(body: Body) -> None:
    await work.work_async(body.number, body.wait_s)


@threads.task(topic, concurrency=work.CONCURRENCY)
def job_on_a_thread(body: Body) -> None:
    work.work(body.number, body.wait_s)


def enqueue(jobs: Iterable[work.Job]) -> None:
    with Connection(server) as connection:
        create_topic(connection, topic, partitions=1)
    with queue:
        for number, wait_s in jobs:
            queue.send(topic, Body(number, wait_s))


def left() -> int:
    with Admin(bootstrap_servers=server) as admin:
        offsets = admin.share_group_offsets(topic).values()
    unknown = [offset for offset in offsets if offset.lag is None]
    if unknown or not offsets:
        raise RuntimeError(f"group {topic} has no lag yet")
    return sum(offset.lag or 0 for offset in offsets)


if __name__ == "__main__":
    work.main(enqueue, left)
