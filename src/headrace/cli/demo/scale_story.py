"""Scale: the same slow work, on two partitions, by a share group and by a consumer group that grow from 1 to 8.

Both have all orders and the same members at the same time. The act ends when the share group is done.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from headrace.cli.demo.orders import Account, number_in
from headrace.cli.demo.screen import Moving, Row
from headrace.cli.demo.world import PARTITIONS, World
from headrace.wire.records import load_reader

ORDERS = 1_600
WORK_S = 0.020
JOINING_S = (0.0, 1.5, 3.0, 3.0, 4.5, 4.5, 4.5, 4.5)
"""When each of the eight members joins: 1, 2, 4, 8."""
RATE_S = 1.0
"""Rates are of the last second."""


@dataclass(slots=True)
class Contestant:
    """One group, as far as the audience sees it."""

    name: str
    members: int = 0
    done: list[tuple[float, int, int]] = field(default_factory=list)
    """When, by which member, which order."""
    ended_s: float | None = None

    def did(self, member: int, number: int) -> None:
        self.done.append((time.monotonic(), member, number))

    def recent(self) -> list[tuple[float, int, int]]:
        since = time.monotonic() - RATE_S
        found = []
        for one in reversed(self.done):
            if one[0] < since:
                break
            found.append(one)
        return found

    def row(self) -> Row:
        recent = self.recent()
        at_work = len({member for _, member, _ in recent})
        idle = self.members - at_work
        rate = len(recent) / RATE_S
        said = f"{len(self.done):5,} {rate:4.0f}/s  {self.members} members"
        if len(self.done) >= ORDERS:
            said = f"{len(self.done):5,}  done"
        elif idle and self.members > PARTITIONS:
            said += f", {idle} idle"
        return f"{self.name:<14}", len(self.done) / ORDERS, said


def play(world: World, *, on_started: Callable[[], None] | None = None) -> list[Account]:
    topic = world.topic("slow-orders")
    shared, plain = Contestant("share group"), Contestant("consumer group")
    groups = world.group("scale"), world.group("scale-plain", is_share=False)
    world.produce_fast(topic, range(1, ORDERS + 1))
    world.say(
        f"\n[bold]{world.act()}Scale.[/bold] {ORDERS:,} orders of {WORK_S * 1000:.0f} ms each on {PARTITIONS} "
        f"partitions.\n   Both groups grow from 1 to {len(JOINING_S)} members."
    )
    if on_started is not None:
        on_started()
    began = time.monotonic()
    jobs: list[Callable[[], None]] = [
        *(_share_job(world, groups[0], topic, shared, member, began) for member in range(len(JOINING_S))),
        lambda: asyncio.run(_consume(world, groups[1], topic, plain, began)),
    ]
    with world.crew(*jobs) as futures, Moving(world, lambda: [shared.row(), plain.row()]) as show:

        def is_done() -> bool:
            for future in futures:
                if future.done():
                    future.result()
            show()
            return len(shared.done) >= ORDERS and world.drained(groups[0], topic)

        world.until(is_done, "the end of the orders of the share group")
        left = ORDERS - len(plain.done)
    world.say(
        f"   The share group is done, and the consumer group has {left:,} to go: it\n"
        f"   has work for one member of each partition, a share group for all."
    )
    account = Account("share group of 8", ORDERS)
    account.add("accepted", (number for _, _, number in shared.done))
    return [account]


def _share_job(
    world: World, group: str, topic: str, side: Contestant, member: int, began: float
) -> Callable[[], None]:
    def work() -> None:
        if world.stopping.wait(max(0.0, began + JOINING_S[member] - time.monotonic())):
            return
        with world.share_consumer(group, topic) as consumer:
            side.members += 1
            while not world.stopping.is_set():
                for delivery in consumer.poll(timeout=0.2):
                    time.sleep(WORK_S)  # the work
                    delivery.accept()
                    side.did(member, number_in(delivery.value))
                consumer.commit_sync()

    return work


async def _consume(world: World, group: str, topic: str, side: Contestant, began: float) -> None:
    load_reader()
    from aiokafka import AIOKafkaConsumer
    from aiokafka.errors import KafkaError as AiokafkaError

    from headrace.cli.plain_clients import consumer_options

    options = consumer_options(world.settings, group) | {
        "auto_offset_reset": "earliest",
        "heartbeat_interval_ms": 200,
    }

    seen: set[int] = set()

    async def consume(member: int) -> None:
        delay_s = began + JOINING_S[member] - time.monotonic()
        await asyncio.sleep(max(0.0, delay_s))
        if world.stopping.is_set():
            return
        consumer = AIOKafkaConsumer(topic, **options)
        await consumer.start()
        side.members += 1
        try:
            while not world.stopping.is_set():
                for records in (await consumer.getmany(timeout_ms=100, max_records=10)).values():
                    for record in records:
                        if world.stopping.is_set():
                            return
                        await asyncio.sleep(WORK_S)
                        number = number_in(record.value)
                        if number not in seen:  # a rebalance repeats what was not committed
                            seen.add(number)
                            side.did(member, number)
                with contextlib.suppress(AiokafkaError):  # a rebalance has taken the partition away
                    await consumer.commit()
        finally:
            await consumer.stop()

    await asyncio.gather(*map(consume, range(len(JOINING_S))))
