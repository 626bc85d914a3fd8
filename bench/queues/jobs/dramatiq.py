"""Dramatiq on Redis, with the middleware it brings by default."""

import os
from collections.abc import Iterable

import dramatiq
from dramatiq.brokers.redis import RedisBroker

from bench.queues.jobs import work

broker = RedisBroker(url=os.environ[work.SERVER])
dramatiq.set_broker(broker)


@dramatiq.actor
def job(number: int, wait_s: float) -> None:
    work.work(number, wait_s)


def enqueue(jobs: Iterable[work.Job]) -> None:
    for number, wait_s in jobs:
        job.send(number, wait_s)


def left() -> int:
    """Every message stays in this hash until it is acknowledged."""
    return int(broker.client.hlen("dramatiq:default.msgs"))


if __name__ == "__main__":
    work.main(enqueue, left)
