"""A worker that test_worker_strict starts as a program, and kills: it notes when each run begins and ends."""

import asyncio
import os
import sys
import time

from headrace.worker import Backoff, Queue


def main(servers: str, notes: str, kind: str) -> None:
    file = os.open(notes, os.O_APPEND | os.O_WRONLY | os.O_CREAT)
    failed: set[tuple[int, ...]] = set()

    def note(what: str, step: list[int]) -> None:
        os.write(file, f"{time.monotonic()} {os.getpid()} {what} {step[0]} {step[1]}\n".encode())

    queue = Queue(servers, group_id="strict", drain_timeout=5)
    task = queue.task("steps", key_order="strict", concurrency=200, retries=Backoff(first=0.05, most=0.05))

    async def work(step: list[int]) -> None:
        note("begin", step)
        try:
            await asyncio.sleep(0.005)  # the work, so that runs overlap
            if step[1] % 7 == 3 and tuple(step) not in failed:
                failed.add(tuple(step))
                raise RuntimeError("the first try of some fails")
        except BaseException:
            note("stop", step)
            raise
        note("end", step)

    def work_on_thread(step: list[int]) -> None:
        note("begin", step)
        time.sleep(0.005)  # the work, so that runs overlap
        note("end", step)

    task(work if kind == "async" else work_on_thread)
    queue.run(on_started=lambda: print("ready", flush=True))


if __name__ == "__main__":
    main(*sys.argv[1:])
