"""Poison: a worker retries what may pass, gives up what cannot; dead letters go back once the fault is mended."""

import asyncio
import threading
from collections import Counter

from headrace.cli.demo.orders import Account, OrderKind, kind_of, number_in
from headrace.cli.demo.world import World

ORDERS = 200
BUSY_EVERY = 7


def play(world: World) -> list[Account]:
    from headrace.worker import Backoff, Queue, Reject

    topic, dead, group = (
        world.topic("parcels"),
        world.topic("parcels.dead", partitions=1),
        world.group("packers"),
    )
    world.produce(topic, range(1, ORDERS + 1))
    world.say(
        f"\n[bold]Poison.[/bold] {ORDERS} orders for a worker; every tenth is unreadable, every seventh fails at first."
    )
    queue = Queue(world.settings["bootstrap.servers"], group_id=group, settings=world.settings)
    tries: Counter[int] = Counter()
    packed: list[int] = []
    is_mended = False

    @queue.task(topic, concurrency=16, retries=Backoff(first=0.05, factor=2.0, most=1.0), dead_letter=dead)
    async def pack(body: bytes) -> None:
        number = number_in(body)
        tries[number] += 1
        if kind_of(number) is OrderKind.POISON and not is_mended:
            raise Reject("the order is not JSON")
        if number % BUSY_EVERY == 0 and tries[number] == 1:
            raise ConnectionError("the label printer is busy")
        packed.append(number)

    def run() -> None:
        asyncio.run(queue.run_async())

    worker = threading.Thread(target=run, name="demo-worker")
    worker.start()
    try:
        world.until(lambda: world.drained(group, topic), "the end of the first round")
        listing = world.admin.dead_letters(dead)
        world.say(
            f"   {len(packed)} packed, {sum(n - 1 for n in tries.values() if n > 1)} retries, and dead letters:"
        )
        for cause in listing.causes():
            world.say(f"   {cause.count:4}  {cause.text}")
        is_mended = True
        result = world.admin.redrive(dead, dry_run=False)
        world.say(f"   The fault is mended: {result.redriven} dead letters are sent back to {topic!r}.")
        world.until(
            lambda: len(packed) >= ORDERS and world.drained(group, topic), "the end of the second round"
        )
    finally:
        queue.stop()
        worker.join()
    account = Account("worker", ORDERS)
    account.add("packed", packed)
    return [account]
