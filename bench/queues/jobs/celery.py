"""Celery on Redis, with `acks_late`: acknowledged after the job, as all the others are."""

import os
from collections.abc import Iterable

import redis
from celery import Celery

from bench.queues.jobs import work

app = Celery("bench", broker=os.environ[work.SERVER])
app.conf.update(task_acks_late=True, task_ignore_result=True)


@app.task(name="job")
def job(number: int, wait_s: float) -> None:
    work.work(number, wait_s)


def enqueue(jobs: Iterable[work.Job]) -> None:
    for number, wait_s in jobs:
        job.delay(number, wait_s)


def left() -> int:
    with redis.Redis.from_url(os.environ[work.SERVER]) as server:
        return int(server.llen("celery")) + int(server.hlen("unacked"))


if __name__ == "__main__":
    work.main(enqueue, left)
