"""`headrace consume --consumer-group`: with aiokafka. Offsets are committed for what was written out."""

import asyncio
import signal
from collections.abc import Mapping, Sequence
from typing import Any

from headrace.cli.consume import Output
from headrace.cli.formats import Shown
from headrace.cli.plain_clients import consumer_options, for_admin

__all__ = ["for_admin", "run"]
POLL_MS = 500
POLL_RECORDS = 500


def run(
    settings: Mapping[str, str], topics: Sequence[str], group_id: str, out: Output, timeout: float | None
) -> None:
    options = consumer_options(settings, group_id)
    asyncio.run(_consume(options, topics, out, timeout))


async def _consume(
    options: Mapping[str, object], topics: Sequence[str], out: Output, quiet_s_max: float | None
) -> None:
    from aiokafka import AIOKafkaConsumer

    loop, stopping = asyncio.get_running_loop(), asyncio.Event()
    for name in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(name, stopping.set)
    async with AIOKafkaConsumer(*topics, **options) as consumer:
        quiet_since = loop.time()
        while not stopping.is_set() and out.left != 0:
            out.require_reader()
            wait_ms = POLL_MS if quiet_s_max is None else min(POLL_MS, int(quiet_s_max * 1000))
            batches = await consumer.getmany(
                timeout_ms=wait_ms,
                max_records=POLL_RECORDS if out.left is None else min(POLL_RECORDS, out.left),
            )
            records = [record for batch in batches.values() for record in batch]
            if records:
                out.emit(_shown(record) for record in records)
                await consumer.commit()
                quiet_since = loop.time()
            elif (
                quiet_s_max is not None and consumer.assignment() and loop.time() - quiet_since >= quiet_s_max
            ):
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
