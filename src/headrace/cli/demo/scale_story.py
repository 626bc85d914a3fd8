"""Scale: the same slow work with more and more share consumers, and with a consumer group, on two partitions."""

import asyncio
import time
from collections.abc import Callable

from headrace.cli.demo.orders import Account, number_in
from headrace.cli.demo.world import PARTITIONS, World
from headrace.wire.records import load_reader

ORDERS = 400
WORK_S = 0.010
SIZES = (1, 2, 4, 8)


def play(world: World) -> list[Account]:
    topic = world.topic("slow-orders")
    world.produce(topic, range(1, ORDERS + 1))
    world.say(
        f"\n[bold]Scale.[/bold] {ORDERS} orders of {WORK_S * 1000:.0f} ms each on {PARTITIONS} partitions."
    )
    accounts, base = [], None
    for size in SIZES:
        account, seconds = _share(world, topic, size)
        rate = ORDERS / seconds
        base = base or rate
        world.say(f"   {size:2} share consumers          {rate:6.0f} orders/s   {rate / base:4.1f} times one")
        accounts.append(account)
    for size in (PARTITIONS, SIZES[-1]):
        account, seconds = _plain(world, topic, size)
        world.say(f"   {size:2} in a consumer group      {ORDERS / seconds:6.0f} orders/s")
        accounts.append(account)
    world.say(f"   A consumer group stops at one consumer for each of the {PARTITIONS} partitions.")
    return accounts


def _share(world: World, topic: str, size: int) -> tuple[Account, float]:
    """The clock runs from the first record on: joining is not the work."""
    group = world.group(f"scale-{size}")
    done: list[list[tuple[float, int]]] = [[] for _ in range(size)]

    def job(mine: list[tuple[float, int]]) -> Callable[[], None]:
        def work() -> None:
            with world.share_consumer(group, topic) as consumer:
                while not world.stopping.is_set():
                    for delivery in consumer.poll(timeout=0.2):
                        time.sleep(WORK_S)  # the work
                        delivery.accept()
                        mine.append((time.monotonic(), number_in(delivery.value)))
                    consumer.commit_sync()

        return work

    with world.crew(*(job(mine) for mine in done)):
        world.until(lambda: world.drained(group, topic), f"the end of the orders of {size} share consumers")
    return _accounted(f"{size} share consumers", [one for mine in done for one in mine])


def _plain(world: World, topic: str, size: int) -> tuple[Account, float]:
    group = world.group(f"scale-plain-{size}", is_share=False)
    done: list[tuple[float, int]] = []
    with world.crew(lambda: asyncio.run(_consume(world, group, topic, size, done))):
        world.until(lambda: len(done) >= ORDERS, f"the end of the orders of {size} in a consumer group")
    return _accounted(f"{size} in a consumer group", done)


async def _consume(world: World, group: str, topic: str, size: int, done: list[tuple[float, int]]) -> None:
    load_reader()
    from aiokafka import AIOKafkaConsumer

    from headrace.cli.plain_clients import consumer_options

    options = consumer_options(world.settings, group) | {"auto_offset_reset": "earliest"}
    consumers = [AIOKafkaConsumer(topic, **options) for _ in range(size)]
    for consumer in consumers:
        await (
            consumer.start()
        )  # all of them, before one begins: records are not taken from those who come late

    async def consume(consumer: AIOKafkaConsumer) -> None:
        while not world.stopping.is_set():
            for records in (await consumer.getmany(timeout_ms=100, max_records=10)).values():
                for record in records:
                    await asyncio.sleep(WORK_S)
                    done.append((time.monotonic(), number_in(record.value)))
            await consumer.commit()

    try:
        await asyncio.gather(*map(consume, consumers))
    finally:
        for consumer in consumers:
            await consumer.stop()


def _accounted(title: str, done: list[tuple[float, int]]) -> tuple[Account, float]:
    account = Account(title, ORDERS)
    account.add("done", (number for _, number in done))
    times = sorted(when for when, _ in done)
    return account, max(times[-1] - times[0], WORK_S) + WORK_S
