"""Taskiq on a Redis stream: of its Redis brokers the one that acknowledges, so that a job survives its worker."""

import asyncio
import os
from collections.abc import Iterable

import redis
from taskiq_redis import RedisStreamBroker

from bench.queues.jobs import work

broker = RedisStreamBroker(os.environ[work.SERVER])


@broker.task(task_name="job")
async def job(number: int, wait_s: float) -> None:
    await work.work_async(number, wait_s)


async def _enqueue(jobs: Iterable[work.Job]) -> None:
    await broker.startup()
    for number, wait_s in jobs:
        await job.kiq(number, wait_s)
    await broker.shutdown()


def enqueue(jobs: Iterable[work.Job]) -> None:
    asyncio.run(_enqueue(jobs))


def left() -> int:
    with redis.Redis.from_url(os.environ[work.SERVER]) as server:
        (group,) = server.xinfo_groups("taskiq")
        return int(group["pending"]) + int(group["lag"])


if __name__ == "__main__":
    work.main(enqueue, left)
