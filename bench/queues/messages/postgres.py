"""A table in PostgreSQL: a batch is taken with SKIP LOCKED and deleted, and the commit is its acknowledgement."""

import os
import time

import psycopg

from bench.clients.figures import Figures, Stopwatch
from bench.queues.jobs.work import SERVER
from bench.queues.messages import common

TAKE = """
    DELETE FROM bench WHERE id = ANY(ARRAY(
        SELECT id FROM bench ORDER BY id LIMIT %s FOR UPDATE SKIP LOCKED
    )) RETURNING body
"""
RETRY_S = 0.01


def _connect() -> psycopg.Connection:
    return psycopg.connect(os.environ[SERVER])


def send(messages: int) -> Figures:
    """COPY, a transaction a batch: the fastest way that PostgreSQL has."""
    with _connect() as server:
        server.execute("DROP TABLE IF EXISTS bench")
        server.execute("CREATE TABLE bench (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, body bytea)")
        server.commit()
        watch = Stopwatch()
        for batch in common.batches(messages):
            with (
                server.transaction(),
                server.cursor().copy("COPY bench (body) FROM STDIN (FORMAT BINARY)") as rows,
            ):
                rows.set_types(["bytea"])
                for body in batch:
                    rows.write_row([body])
        figures = watch.figures(messages)
        server.execute("ANALYZE bench")
        return figures


def consume(shift: common.Shift) -> None:
    with _connect() as server:
        server.execute("SELECT 1")
        server.commit()
        shift.begin()
        while not shift.is_over:
            rows = server.execute(TAKE, [common.AT_ONCE], binary=True, prepare=True).fetchall()
            server.commit()
            if rows:
                shift.note(body for (body,) in rows)
            else:
                time.sleep(RETRY_S)


def left() -> int:
    with _connect() as server:
        (count,) = server.execute("SELECT count(*) FROM bench").fetchone() or (0,)
        return int(count)


if __name__ == "__main__":
    common.main(send, consume, left)
