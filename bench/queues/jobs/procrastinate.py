"""Procrastinate on PostgreSQL: a job is a row, and its worker is woken by NOTIFY."""

import os
from collections.abc import Iterable

import psycopg
from procrastinate import App, PsycopgConnector, SyncPsycopgConnector

from bench.queues.jobs import work

address = os.environ[work.SERVER]
app = App(connector=PsycopgConnector(conninfo=address))


@app.task(name="job")
async def job(number: int, wait_s: float) -> None:
    await work.work_async(number, wait_s)


def enqueue(jobs: Iterable[work.Job]) -> None:
    with app.replace_connector(SyncPsycopgConnector(conninfo=address)) as sync, sync.open():
        sync.schema_manager.apply_schema()
        for number, wait_s in jobs:
            job.defer(number=number, wait_s=wait_s)


def left() -> int:
    with psycopg.connect(address) as server:
        unfinished = "SELECT count(*) FROM procrastinate_jobs WHERE status IN ('todo', 'doing')"
        (count,) = server.execute(unfinished).fetchone() or (0,)
        return int(count)


if __name__ == "__main__":
    work.main(enqueue, left)
