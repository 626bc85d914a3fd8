"""A worker that test_worker_limits starts as a program, and kills: it notes when each run begins and ends."""

import os
import sys
import time

from headrace.worker import Queue


def main(servers: str, notes: str, limit: str) -> None:
    file = os.open(notes, os.O_APPEND | os.O_WRONLY | os.O_CREAT)

    def note(what: str, number: int) -> None:
        os.write(file, f"{time.monotonic()} {os.getpid()} {what} {number}\n".encode())

    queue = Queue(servers, group_id="limited", drain_timeout=5)

    @queue.task("numbers", limit=int(limit), concurrency=4)
    def work(number: int) -> None:
        note("begin", number)
        time.sleep(0.02)  # the work, so that runs overlap
        note("end", number)

    queue.run(on_started=lambda: print("ready", flush=True))


if __name__ == "__main__":
    main(*sys.argv[1:])
