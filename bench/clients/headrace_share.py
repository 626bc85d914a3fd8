"""Our own share consumers: `python -m bench.clients.headrace_share consume ...`.

The same tasks as `bench.clients.share`, which does them with confluent-kafka's: `consume`, `consume-explicit` and
`latency` with ShareConsumer, and `consume-async`, `consume-explicit-async`, `latency-async` with AsyncShareConsumer.
`consume-arrow`, `consume-explicit-arrow`: the same records as Arrow record batches.
"""

import argparse
import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from statistics import quantiles

from confluent_kafka import Producer

from bench.clients import RECORD_BYTES
from bench.clients.figures import Figures, Stopwatch
from bench.wire import Connection, set_group_config
from headrace.client.aio import AsyncShareConsumer
from headrace.client.delivery import Delivery
from headrace.client.sync import ShareConsumer

ROWS = 2_000
"""Of a poll for Arrow, as docs/how-to/arrow.md recommends; the default, which the other clients have, is 500."""
GIVE_UP_S = 60.0
WARM_UP = 50


def _settings(bootstrap_servers: str, group: str, *, is_explicit: bool) -> dict[str, str]:
    with Connection(bootstrap_servers) as admin:
        set_group_config(admin, group, "share.auto.offset.reset", "earliest")
    return {
        "bootstrap.servers": bootstrap_servers,
        "group.id": group,
        "share.acknowledgement.mode": "explicit" if is_explicit else "implicit",
    }


def consume(
    bootstrap_servers: str, topic: str, *, group: str, records: int, seconds: float, is_explicit: bool
) -> Figures:
    """The clock runs from the first records on: joining is a figure of its own."""
    with ShareConsumer(_settings(bootstrap_servers, group, is_explicit=is_explicit)) as consumer:
        joining = time.perf_counter()
        consumer.subscribe([topic])

        def work_off() -> int:
            deliveries = _some(consumer.poll(0.5), joining)
            if is_explicit:
                for delivery in deliveries:
                    consumer.acknowledge(delivery)
            return len(deliveries)

        first = 0
        while not first:
            first = work_off()
        watch = Stopwatch()
        done = 0
        while first + done < records and time.perf_counter() < watch.started + seconds:
            done += work_off()
        return watch.figures(done, joined_ms=(watch.started - joining) * 1000)


def consume_arrow(
    bootstrap_servers: str, topic: str, *, group: str, records: int, seconds: float, is_explicit: bool
) -> Figures:
    settings = _settings(bootstrap_servers, group, is_explicit=is_explicit)
    with ShareConsumer({**settings, "max.poll.records": ROWS}) as consumer:
        batches = consumer.batches(timeout=GIVE_UP_S)  # which imports pyarrow
        joining = time.perf_counter()
        consumer.subscribe([topic])

        def work_off() -> int:
            batch = next(batches)
            if is_explicit:
                batch.accept()
            return len(batch)

        first = work_off()
        watch = Stopwatch()
        done = 0
        while first + done < records and time.perf_counter() < watch.started + seconds:
            done += work_off()
        return watch.figures(done, joined_ms=(watch.started - joining) * 1000)


async def consume_async(
    bootstrap_servers: str, topic: str, *, group: str, records: int, seconds: float, is_explicit: bool
) -> Figures:
    async with AsyncShareConsumer(_settings(bootstrap_servers, group, is_explicit=is_explicit)) as consumer:
        joining = time.perf_counter()
        consumer.subscribe([topic])

        async def work_off() -> int:
            deliveries = _some(await consumer.poll(0.5), joining)
            if is_explicit:
                for delivery in deliveries:
                    consumer.acknowledge(delivery)
            return len(deliveries)

        first = 0
        while not first:
            first = await work_off()
        watch = Stopwatch()
        done = 0
        while first + done < records and time.perf_counter() < watch.started + seconds:
            done += await work_off()
        return watch.figures(done, joined_ms=(watch.started - joining) * 1000)


def _some(deliveries: list[Delivery], since: float) -> list[Delivery]:
    if not deliveries and time.perf_counter() > since + GIVE_UP_S:
        raise TimeoutError(f"no records within {GIVE_UP_S:.0f} s")
    return deliveries


def latency(bootstrap_servers: str, topic: str, *, group: str, seconds: float) -> Figures:
    producer = Producer({"bootstrap.servers": bootstrap_servers, "acks": "all", "linger.ms": 0})
    with ShareConsumer(_settings(bootstrap_servers, group, is_explicit=False)) as consumer:
        consumer.subscribe([topic])

        def round_trip() -> tuple[float, float]:
            """Milliseconds from produce to delivery, and of the commit."""
            started = _produce(producer, topic)
            while not _some(consumer.poll(0.5), started):
                pass
            delivered = time.perf_counter()
            for error in consumer.commit_sync().values():
                if error is not None:
                    raise error
            return (delivered - started) * 1000, (time.perf_counter() - delivered) * 1000

        for _ in range(WARM_UP):
            round_trip()
        watch, taken = Stopwatch(), []
        while time.perf_counter() < watch.started + seconds:
            taken.append(round_trip())
        return _percentiles(watch, taken)


async def latency_async(bootstrap_servers: str, topic: str, *, group: str, seconds: float) -> Figures:
    producer = Producer({"bootstrap.servers": bootstrap_servers, "acks": "all", "linger.ms": 0})
    async with AsyncShareConsumer(_settings(bootstrap_servers, group, is_explicit=False)) as consumer:
        consumer.subscribe([topic])

        async def round_trip() -> tuple[float, float]:
            started = _produce(producer, topic)
            while not _some(await consumer.poll(0.5), started):
                pass
            delivered = time.perf_counter()
            for error in (await consumer.commit_sync()).values():
                if error is not None:
                    raise error
            return (delivered - started) * 1000, (time.perf_counter() - delivered) * 1000

        for _ in range(WARM_UP):
            await round_trip()
        watch, taken = Stopwatch(), []
        while time.perf_counter() < watch.started + seconds:
            taken.append(await round_trip())
        return _percentiles(watch, taken)


def _produce(producer: Producer, topic: str) -> float:
    started = time.perf_counter()
    producer.produce(topic, bytes(RECORD_BYTES))
    producer.poll(0)
    return started


def _percentiles(watch: Stopwatch, taken: list[tuple[float, float]]) -> Figures:
    delivery = quantiles([delivered for delivered, _ in taken], n=100)
    commit = quantiles([committed for _, committed in taken], n=100)
    return watch.figures(
        len(taken),
        deliver_p50_ms=delivery[49],
        deliver_p99_ms=delivery[98],
        commit_p50_ms=commit[49],
        commit_p99_ms=commit[98],
    )


def run(make: Callable[[], Awaitable[Figures]]) -> Figures:
    """On uvloop, where there is one, as the sync consumer's own loop is."""

    async def main() -> Figures:
        return await make()

    if sys.platform == "win32":
        return asyncio.run(main())
    import uvloop

    return uvloop.run(main())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    tasks = ["consume", "consume-explicit", "latency"]
    arrow = ["consume-arrow", "consume-explicit-arrow"]
    parser.add_argument("task", choices=[*tasks, *(f"{task}-async" for task in tasks), *arrow])
    parser.add_argument("--bootstrap-server", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--group", default="bench")
    parser.add_argument("--records", type=int, default=0)
    parser.add_argument("--per-batch", type=int, default=150)
    chosen = parser.parse_args()
    server, topic, task = chosen.bootstrap_server, chosen.topic, chosen.task.removesuffix("-async")
    is_async, is_arrow = chosen.task != task, task.endswith("-arrow")
    task = task.removesuffix("-arrow")
    if task == "latency":
        given = {"group": chosen.group, "seconds": chosen.seconds}
        make, make_async = latency, latency_async
    else:
        is_explicit = task == "consume-explicit"
        given = {
            "group": chosen.group,
            "records": chosen.records,
            "seconds": chosen.seconds,
            "is_explicit": is_explicit,
        }
        make, make_async = consume_arrow if is_arrow else consume, consume_async
    figures = run(lambda: make_async(server, topic, **given)) if is_async else make(server, topic, **given)
    figures.print()


if __name__ == "__main__":
    main()
