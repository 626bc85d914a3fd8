"""Scheduled tasks: memory with a million of them, how late they come, how many a worker moves a second.

    python -m bench.later --waiting 1000000 --sample 2000 --burst 20000

Schedules `--waiting` records for ten days ahead, then `--sample` records due at random times within the next 40 to 100
seconds. A worker in a process of its own forwards and runs them; each task tells how late it came. Then `--burst`
records that are due at the same time.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from random import Random

from bench.brokers import Headrace, Policy
from bench.machine import cpu_s, describe, load_average, memory_mb
from headrace.client.admin import Admin
from headrace.worker import Queue

WORKER = """
import sys, time
from headrace.worker import Queue

queue = Queue(sys.argv[1], group_id="bench")

@queue.task("due", concurrency=100)
async def due(at: str) -> None:
    print(time.time() - float(at), flush=True)

queue.run(on_started=lambda: print("ready", flush=True))
"""
DAYS_10 = 864_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name, number in (("waiting", 1_000_000), ("sample", 2_000), ("burst", 20_000)):
        parser.add_argument(f"--{name}", type=int, default=number)
    given = parser.parse_args()
    print(f"{describe()}; load {load_average():.1f}")
    with tempfile.TemporaryDirectory() as folder:
        broker = Headrace(Path(folder), bytecode=Path(folder) / "bytecode")
        running = broker.start(Policy.PAGE_CACHE)
        try:
            measure(running.bootstrap_servers, running.pid, given)
        finally:
            broker.stop()


def measure(servers: str, broker_pid: int, given: argparse.Namespace) -> None:
    with Admin(bootstrap_servers=servers) as admin:
        admin.create_topic("due", partitions=4)
    with Queue(servers, group_id="bench") as queue:
        queue.schedule("due", "x", delay=DAYS_10)
        worker = subprocess.Popen([sys.executable, "-c", WORKER, servers], stdout=subprocess.PIPE, text=True)
        try:
            assert worker.stdout is not None
            worker.stdout.readline()
            show("before", broker_pid, worker.pid)
            begin = time.monotonic()
            queue.send_many("due", ("x" for _ in range(given.waiting)), delay=DAYS_10)
            print(f"scheduled {given.waiting:,} in {time.monotonic() - begin:.0f} s")
            show("with all of them waiting", broker_pid, worker.pid)
            rng = Random(1)
            late(queue, worker.stdout, [rng.uniform(40, 100) for _ in range(given.sample)])
            show("after the sample", broker_pid, worker.pid)
            begin_cpu, begin = cpu_s(worker.pid), time.monotonic()
            at = time.time() + 10
            queue.send_many("due", (str(at) for _ in range(given.burst)), delay=10)
            lateness = sorted(float(worker.stdout.readline()) for _ in range(given.burst))
            took = time.monotonic() - begin
            print(
                f"burst of {given.burst:,} due at once: last {lateness[-1]:.1f} s late, {took:.0f} s in all, "
                f"{cpu_s(worker.pid) - begin_cpu:.0f} s of processor"
            )
            show("after the burst", broker_pid, worker.pid)
        finally:
            worker.terminate()
            worker.wait()


def late(queue: Queue, lines: Iterable[str], delays: list[float]) -> None:
    for delay in delays:
        queue.send("due", str(time.time() + delay), delay=delay)
    reading = iter(lines)
    found = sorted(float(next(reading)) for _ in delays)
    print(
        f"lateness of {len(found):,}, from due to run: p50 {found[len(found) // 2] * 1000:.0f} ms, "
        f"p99 {found[len(found) * 99 // 100] * 1000:.0f} ms, most {found[-1] * 1000:.0f} ms, "
        f"least {found[0] * 1000:.0f} ms"
    )


def show(when: str, broker_pid: int, worker_pid: int) -> None:
    print(f"{when}: broker {memory_mb(broker_pid):.0f} MB, worker {memory_mb(worker_pid):.0f} MB", flush=True)


if __name__ == "__main__":
    main()
