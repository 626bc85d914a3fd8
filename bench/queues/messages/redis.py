"""A Redis stream with a consumer group. XACK of a batch and XREADGROUP of the next go out together."""

import os

import redis

from bench.clients.figures import Figures, Stopwatch
from bench.queues.jobs.work import SERVER
from bench.queues.messages import common

STREAM, GROUP, FIELD = "bench", "bench", b"body"


def _connect() -> redis.Redis:
    return redis.Redis.from_url(os.environ[SERVER])


def send(messages: int) -> Figures:
    """Pipelines of a batch: Redis syncs once for all commands that it has read at once, and then answers them."""
    with _connect() as server:
        server.xgroup_create(STREAM, GROUP, id="0", mkstream=True)
        watch = Stopwatch()
        for batch in common.batches(messages):
            pipeline = server.pipeline(transaction=False)
            for body in batch:
                pipeline.xadd(STREAM, {FIELD: body})
            pipeline.execute()
        return watch.figures(messages)


def consume(shift: common.Shift) -> None:
    wait_ms, me = int(common.IDLE_S * 1000), str(os.getpid())
    with _connect() as server:
        server.ping()
        shift.begin()
        entries: list[tuple[bytes, dict[bytes, bytes]]] = []
        while entries or not shift.is_over:
            pipeline = server.pipeline(transaction=False)
            if entries:
                pipeline.xack(STREAM, GROUP, *(name for name, _ in entries))
            if not shift.is_over:
                pipeline.xreadgroup(GROUP, me, {STREAM: ">"}, count=common.AT_ONCE, block=wait_ms)
            answers = pipeline.execute()
            if entries:
                shift.note([fields[FIELD] for _, fields in entries])
                answers.pop(0)
            streams = answers[0] if answers else []
            entries = _entries(streams)


def _entries(streams: object) -> list[tuple[bytes, dict[bytes, bytes]]]:
    """Of the one stream, in both shapes that the client has for the answer."""
    if isinstance(streams, dict):
        return [entry for lists in streams.values() for entries in lists for entry in entries]
    return [entry for _, entries in streams or [] for entry in entries]  # type: ignore[attr-defined]


def left() -> int:
    with _connect() as server:
        (group,) = server.xinfo_groups(STREAM)
        return int(group["pending"]) + int(group["lag"])


if __name__ == "__main__":
    common.main(send, consume, left)
