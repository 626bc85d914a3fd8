"""Ours: `headrace worker bench.keys.worker:queue`, or `:threads`. The environment says what to do (run.py)."""

import asyncio
import os
import time

from bench.keys.journal import Journal
from headrace.worker import Queue

SERVERS, TOPIC, GROUP = os.environ["BENCH_SERVERS"], os.environ["BENCH_TOPIC"], os.environ["BENCH_GROUP"]
AT_ONCE, WAIT_S = int(os.environ["BENCH_AT_ONCE"]), int(os.environ["BENCH_WAIT_MS"]) / 1000

queue = Queue(SERVERS, group_id=GROUP)
threads = Queue(SERVERS, group_id=GROUP)
_journal = Journal(os.environ["BENCH_JOURNAL"])


@queue.task(TOPIC, key_order="strict", concurrency=AT_ONCE)
async def work(number: int) -> None:
    began_ns = time.monotonic_ns()
    if WAIT_S:
        await asyncio.sleep(WAIT_S)
    _journal.note(number, began_ns)


@threads.task(TOPIC, key_order="strict", concurrency=AT_ONCE)
def work_on_a_thread(number: int) -> None:
    began_ns = time.monotonic_ns()
    if WAIT_S:
        time.sleep(WAIT_S)
    _journal.note(number, began_ns)
