"""`headrace consume --consumer-group`: with aiokafka. Offsets are committed for what was written out."""

import asyncio
import signal
from collections.abc import Mapping, Sequence
from typing import Any

from headrace.cli.consume import Output
from headrace.cli.formats import Shown
from headrace.cli.plain_clients import consumer_options, for_admin, hushed
from headrace.cli.sending import stop_in_time
from headrace.wire.records import load_reader

__all__ = ["for_admin", "run"]
POLL_MS = 500
POLL_RECORDS = 500
JOIN_S_MAX = 15.0
"""Joining the group does not count as silence until it has got a partition, or this is over."""


def run(
    settings: Mapping[str, str], topics: Sequence[str], group_id: str, out: Output, timeout: float | None
) -> None:
    options = consumer_options(settings, group_id)
    with hushed():
        try:
            asyncio.run(_consume(options, topics, out, timeout))
        except asyncio.CancelledError:
            raise KeyboardInterrupt from None


async def _consume(
    options: Mapping[str, object], topics: Sequence[str], out: Output, quiet_s_max: float | None
) -> None:
    load_reader()
    from aiokafka import AIOKafkaConsumer

    loop, stopping, this = asyncio.get_running_loop(), asyncio.Event(), asyncio.current_task()
    assert this is not None

    def ask() -> None:
        """Once: end with what is at hand. Twice: at once, though the brokers may not have heard how far we came."""
        if stopping.is_set():
            this.cancel()
        stopping.set()

    for name in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(name, ask)
    consumer = AIOKafkaConsumer(*topics, **options)
    try:
        await consumer.start()
        await _work_off(consumer, out, stopping, quiet_s_max)
    finally:
        await stop_in_time(consumer)


async def _work_off(consumer: Any, out: Output, stopping: asyncio.Event, quiet_s_max: float | None) -> None:
    now = asyncio.get_running_loop().time
    wait_ms = POLL_MS if quiet_s_max is None else min(POLL_MS, int(quiet_s_max * 1000))
    quiet_since, may_join_until = now(), now() + JOIN_S_MAX
    while not stopping.is_set() and out.left != 0:
        out.require_reader()
        most = POLL_RECORDS if out.left is None else min(POLL_RECORDS, out.left)
        batches = await consumer.getmany(timeout_ms=wait_ms, max_records=most)
        records = [record for batch in batches.values() for record in batch]
        if records:
            out.emit(_shown(record) for record in records)
            await consumer.commit()
        if records or (not consumer.assignment() and now() < may_join_until):
            quiet_since = now()
        elif quiet_s_max is not None and now() - quiet_since >= quiet_s_max:
            return


def _shown(record: Any) -> Shown:
    return Shown(
        topic=record.topic,
        partition=record.partition,
        offset=record.offset,
        timestamp=record.timestamp,
        key=record.key,
        value=record.value,
        headers=record.headers,
    )
