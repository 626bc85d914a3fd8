"""The queue: three share consumers work both partitions of a topic, while of a consumer group of three one is idle.

The share consumers do what the blog's program does: an order that cannot be read is copied to a dead-letter topic and
rejected, one with the key "skip" is released every time it comes until the broker gives it up, the others are accepted.
"""

import asyncio
import math
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rich.live import Live
from rich.table import Table

from headrace.cli.demo.orders import POISON_REASON, Account, OrderKind, kind_of, number_in, seconds_of
from headrace.cli.demo.world import PARTITIONS, World
from headrace.wire.dead_letter import kafka_headers
from headrace.wire.records import load_reader

if TYPE_CHECKING:
    from headrace.client.delivery import Delivery

ORDERS, PER_SECOND, CONSUMERS = 600, 200.0, 3
DELIVERIES_MAX = 5
"""What a broker that cannot be asked has: Kafka's own default."""
LINE_EVERY_S = 2.0


@dataclass(slots=True)
class Member:
    """One consumer, as the audience sees it."""

    name: str
    partitions: tuple[int, ...] = ()
    counts: Counter[str] = field(default_factory=Counter)
    numbers: dict[str, list[int]] = field(default_factory=dict)
    first_s: float = math.inf
    """When it got its first record."""

    def did(self, end: str, number: int) -> None:
        self.first_s = min(self.first_s, time.monotonic())
        self.counts[end] += 1
        self.numbers.setdefault(end, []).append(number)


def play(world: World) -> list[Account]:
    topic, dead = world.topic("orders"), world.topic("orders.dead", partitions=1)
    kitchen, auditors = world.group("kitchen"), world.group("auditors", is_share=False)
    limit = _deliveries_max(world, kitchen)
    shared = [Member(f"share-{number}") for number in range(1, CONSUMERS + 1)]
    plain = [Member(f"plain-{number}") for number in range(1, CONSUMERS + 1)]
    finished: dict[str, float] = {}
    world.say(
        f"\n[bold]The queue.[/bold] {ORDERS} orders on {PARTITIONS} partitions; "
        f"{CONSUMERS} share consumers and a consumer group of {CONSUMERS} take them all, each kind for itself."
    )
    jobs: list[Callable[[], None]] = [
        lambda: world.produce(topic, range(1, ORDERS + 1), per_second=PER_SECOND),
        *(_share_job(world, kitchen, topic, dead, member, limit) for member in shared),
        lambda: asyncio.run(_consume_plainly(world, auditors, topic, plain)),
    ]
    with world.crew(*jobs) as futures, _Watched(world, shared, plain) as show:

        def is_done() -> bool:
            for future in futures:
                if future.done():
                    future.result()
            for group, members in (("share", shared), ("plain", plain)):
                if (
                    group not in finished
                    and sum(m.counts.total() - m.counts["released"] for m in members) >= ORDERS
                ):
                    finished[group] = time.monotonic() - min(m.first_s for m in members)
            show()
            return len(finished) == 2 and world.drained(kitchen, topic)

        world.until(is_done, "the end of the orders")
    _tell(world, shared, plain, finished)
    account = Account("share group", ORDERS)
    for end in ("accepted", "skipped", "dead-lettered"):
        account.add(end, (number for member in shared for number in member.numbers.get(end, ())))
    return [account]


def _deliveries_max(world: World, group: str) -> int:
    entry = world.admin.group_config(group).get("share.delivery.count.limit")  # Kafka 4.2 has none for groups
    return int(entry.value) if entry is not None and entry.value else DELIVERIES_MAX


def _share_job(
    world: World, group: str, topic: str, dead: str, member: Member, limit: int
) -> Callable[[], None]:
    def work() -> None:
        with world.share_consumer(group, topic) as consumer:
            while not world.stopping.is_set():
                for delivery in consumer.poll(timeout=0.3):
                    _settle(world, group, dead, delivery, member, limit)
                consumer.commit_sync()

    return work


def _settle(world: World, group: str, dead: str, delivery: "Delivery", member: Member, limit: int) -> None:
    number = number_in(delivery.value)
    member.partitions = tuple(sorted({*member.partitions, delivery.partition}))
    if kind_of(number) is OrderKind.SKIP:
        delivery.release()
        member.did("skipped" if delivery.delivery_count >= limit else "released", number)
    elif kind_of(number) is OrderKind.POISON:
        where = delivery.topic, delivery.partition, delivery.offset
        headers = kafka_headers(*where, group, delivery.delivery_count, POISON_REASON)
        world.producer.send(dead, delivery.value, key=delivery.key, headers=headers).result()
        delivery.reject(POISON_REASON)
        member.did("dead-lettered", number)
    else:
        time.sleep(seconds_of(delivery.value))  # the work
        delivery.accept()
        member.did("accepted", number)


async def _consume_plainly(world: World, group: str, topic: str, members: list[Member]) -> None:
    """The consumer group: aiokafka, which knows nothing of share groups."""
    load_reader()
    from aiokafka import AIOKafkaConsumer

    from headrace.cli.plain_clients import consumer_options

    options = consumer_options(world.settings, group) | {
        "auto_offset_reset": "earliest",
        "metadata_max_age_ms": 1000,
    }

    async def consume(member: Member) -> None:
        consumer = AIOKafkaConsumer(topic, **options)
        await consumer.start()
        try:
            while not world.stopping.is_set():
                for records in (await consumer.getmany(timeout_ms=200, max_records=10)).values():
                    for record in records:
                        await asyncio.sleep(seconds_of(record.value))
                        member.did("consumed", number_in(record.value))
                member.partitions = tuple(sorted(one.partition for one in consumer.assignment()))
                await consumer.commit()
        finally:
            await consumer.stop()

    await asyncio.gather(*(consume(member) for member in members))


class _Watched:
    """The tables, live on a terminal, else a line every now and then."""

    def __init__(self, world: World, shared: list[Member], plain: list[Member]) -> None:
        self._world, self._shared, self._plain = world, shared, plain
        self._live = Live(console=world.console, refresh_per_second=8) if world.is_live else None
        self._next_line = time.monotonic() + LINE_EVERY_S

    def __enter__(self) -> Callable[[], None]:
        if self._live is not None:
            self._live.start()
        return self._show

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.update(_tables(self._shared, self._plain))
            self._live.stop()

    def _show(self) -> None:
        if self._live is not None:
            self._live.update(_tables(self._shared, self._plain))
        elif time.monotonic() >= self._next_line:
            self._next_line += LINE_EVERY_S
            self._world.say(
                "   "
                + " · ".join(
                    f"{title} {'/'.join(str(member.counts.total()) for member in members)}"
                    for title, members in (("share group", self._shared), ("consumer group", self._plain))
                )
            )


def _tables(shared: list[Member], plain: list[Member]) -> Table:
    grid = Table.grid(padding=(0, 3))
    grid.add_row(_table("share group", shared), _table("consumer group", plain))
    return grid


def _table(title: str, members: list[Member]) -> Table:
    table = Table(title=title, title_justify="left")
    for name in ("consumer", "partitions", "records", "what became of them"):
        table.add_column(name, justify="right" if name == "records" else "left")
    for member in members:
        where = ", ".join(map(str, member.partitions)) or "none: idle"
        ends = ", ".join(f"{count} {end}" for end, count in sorted(member.counts.items()))
        table.add_row(member.name, where, str(member.counts.total()), ends)
    return table


def _tell(world: World, shared: list[Member], plain: list[Member], finished: Mapping[str, float]) -> None:
    if not world.is_live:
        world.console.print(_table("share group", shared))
        world.console.print(_table("consumer group", plain))
    idle = sum(1 for member in plain if not member.partitions)
    world.say(
        f"   From its first order to its last the share group took {finished['share']:.1f} s, the consumer group "
        f"{finished['plain']:.1f} s: {idle} of its {len(plain)} consumers had no partition."
    )
