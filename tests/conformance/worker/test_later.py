"""Scheduled records on both brokers, while the workers that forward them are killed: each comes once, none is early."""

import asyncio
import subprocess
import sys
import time
from collections import Counter
from contextlib import contextmanager
from random import Random

import pytest

from headrace.client.cluster import Cluster
from headrace.client.plain_fetch import list_offsets, read_range
from headrace.client.settings import ClientSettings
from headrace.wire.enums import OffsetSpec
from headrace.wire.records import read_records
from headrace.worker import Queue, QueueError
from headrace.worker.control import ControlReader
from headrace.worker.later import control_topic, new_id
from headrace.worker.schedule import Schedule
from tests.conformance.steps import wait_for

WORKER = """
import sys
from headrace.worker import Firing, Queue

queue = Queue(sys.argv[1], group_id=sys.argv[2])

@queue.task(sys.argv[2])
def idle(body: bytes) -> None: ...

@queue.every(1.0, sys.argv[2] + ".every")
def tick(firing: Firing) -> None: ...

queue.run(on_started=lambda: print("ready", flush=True))
"""
RECORDS = 120
WAIT_S = 120


@contextmanager
def worker(servers: str, group: str):
    process = subprocess.Popen(
        [sys.executable, "-c", WORKER, servers, group],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


async def read_all(servers: str, topic: str) -> list:
    """Key and time of every committed record."""
    async with Cluster(ClientSettings.parse({"bootstrap.servers": servers})) as cluster:
        await cluster.refresh([topic])
        found = []
        for partition in cluster.topic(topic).partitions:
            end = (await list_offsets(cluster, {(topic, partition): OffsetSpec.LATEST}, committed=True))[
                topic, partition
            ]
            if end:
                async for _, batch in read_range(cluster, topic, partition, 0, end - 1, committed=True):
                    found += [(each.key, each.value, each.timestamp) for each in read_records(batch)]
        return found


@pytest.mark.parametrize("seed", [1])
def test_killed_forwarders_lose_and_double_nothing(broker, admin, queue, unique, seed):
    rng = Random(seed)
    servers, target = broker.bootstrap_servers, f"{unique}.target"
    admin.create_topic(target, partitions=2)
    due = {}
    for number in range(RECORDS):
        scheduled = queue.schedule(target, b"x", delay=rng.uniform(0.2, 6), key=str(number))
        due[str(number).encode()] = scheduled.at.timestamp() * 1000
    canceled = queue.schedule(target, b"x", delay=20, key="canceled")
    assert queue.cancel(canceled)
    queue.schedule(target, b"x", delay=25, key="last")
    with worker(servers, unique) as beside:
        beside.stdout.readline()
        for _ in range(6):
            with worker(servers, unique) as killed:
                killed.stdout.readline()
                time.sleep(rng.uniform(0, 1))  # the moment of the kill is what the seed chooses
        wait_for(
            lambda: b"last" in {key for key, _, _ in asyncio.run(read_all(servers, target))}, timeout_s=WAIT_S
        )
    arrived = asyncio.run(read_all(servers, target))
    counts = Counter(key for key, _, _ in arrived)
    assert counts == Counter([*due, b"last"])
    assert all(moment_ms >= due.get(key, 0) for key, _, moment_ms in arrived)
    ticks = [value for _, value, _ in asyncio.run(read_all(servers, f"{unique}.every"))]
    assert len(ticks) >= 5
    assert len(ticks) == len(set(ticks)), "a period was sent twice"


def test_a_worker_runs_a_scheduled_record_once(queue, work, admin, unique):
    runs = []

    @queue.task(unique)
    def run(body: bytes) -> None:
        runs.append(body)

    running = work(queue)
    assert isinstance(queue, Queue)
    queue.send(unique, b"later", delay=1)
    running.wait_for(succeeded=1)
    assert runs == [b"later"]


def test_an_id_that_is_not_scheduled_is_not_said_to_be_canceled(queue, unique):
    first, second = (queue.schedule(unique, b"x", delay=3600) for _ in range(2))
    assert queue.cancel(first.id)
    assert queue.cancel(first.id), "canceled once more, while it is still there"
    unknown = new_id(round(first.at.timestamp() * 1000))
    with pytest.raises(QueueError, match=f"no record with the ID '{unknown}' is scheduled in group"):
        queue.cancel(unknown)
    assert [each.id for each in queue.scheduled()] == [second.id]


def test_a_record_that_a_worker_drops_as_soon_as_it_is_canceled_is_known(queue, broker, unique, monkeypatch):
    servers = broker.bootstrap_servers
    first = queue.schedule(unique, b"x", delay=5)
    not_scheduled = Schedule._not_scheduled

    async def late(self, *arguments):
        """After a forwarder has met the cancellation."""
        with worker(servers, unique):
            while first.id in await canceled_of(servers, unique):
                await asyncio.to_thread(time.sleep, 0.05)
        return await not_scheduled(self, *arguments)

    monkeypatch.setattr(Schedule, "_not_scheduled", late)
    assert queue.cancel(first.id)


async def canceled_of(servers: str, group: str) -> dict[str, int]:
    async with Cluster(ClientSettings.parse({"bootstrap.servers": servers})) as cluster:
        control = ControlReader(cluster, control_topic(group))
        await cluster.refresh([control_topic(group)])
        await control.catch_up()
        return control.state.canceled
