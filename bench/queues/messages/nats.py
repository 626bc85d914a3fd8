"""A JetStream stream in a file: publishes are in flight together, a pull consumer fetches batches.

With retention by limits, as a topic and a Redis stream have it: a work queue would delete each message by itself.
"""

import asyncio
import contextlib
import os
from collections.abc import Coroutine
from typing import Any

import nats
import uvloop
from nats.js.api import AckPolicy, ConsumerConfig, StorageType, StreamConfig

from bench.clients.figures import Figures, Stopwatch
from bench.queues.jobs.work import SERVER
from bench.queues.messages import common

STREAM, SUBJECT, CONSUMER = "bench", "bench", "bench"
ANSWER_S = 60


@contextlib.asynccontextmanager
async def _connected() -> Any:
    connection = await nats.connect(os.environ[SERVER])
    try:
        yield connection
    finally:
        await connection.close()


async def _send(messages: int) -> Figures:
    async with _connected() as connection:
        stream = connection.jetstream()
        await stream.add_stream(StreamConfig(name=STREAM, subjects=[SUBJECT], storage=StorageType.FILE))
        pending = 2 * common.CONSUMERS_MAX * common.AT_ONCE
        await stream.add_consumer(
            STREAM,
            ConsumerConfig(durable_name=CONSUMER, ack_policy=AckPolicy.EXPLICIT, max_ack_pending=pending),
        )
        watch = Stopwatch()
        acknowledged = []
        for batch in common.batches(messages):
            for body in batch:
                acknowledged.append(await stream.publish_async(SUBJECT, body, wait_stall=ANSWER_S))
        await asyncio.gather(*acknowledged)
        return watch.figures(messages)


async def _consume(shift: common.Shift) -> None:
    async with _connected() as connection:
        queue = await connection.jetstream().pull_subscribe_bind(CONSUMER, STREAM)
        await asyncio.to_thread(shift.begin)
        while not shift.is_over:
            try:
                taken = await queue.fetch(common.AT_ONCE, timeout=common.IDLE_S)
            except TimeoutError:
                continue
            if not taken:
                continue
            for one in taken[:-1]:
                await one.ack()
            # The server takes them in order: the answer to this one is one to all.
            await taken[-1].ack_sync(timeout=ANSWER_S)
            shift.note(one.data for one in taken)


async def _left() -> int:
    async with _connected() as connection:
        consumer = await connection.jetstream().consumer_info(STREAM, CONSUMER)
        return int(consumer.num_pending or 0) + int(consumer.num_ack_pending or 0)


def _run(work: Coroutine[Any, Any, Any]) -> Any:
    return uvloop.run(work)


def send(messages: int) -> Figures:
    return _run(_send(messages))


def consume(shift: common.Shift) -> None:
    _run(_consume(shift))


def left() -> int:
    return int(_run(_left()))


if __name__ == "__main__":
    common.main(send, consume, left)
