"""Poison: a worker retries what may pass, gives up what cannot; dead letters go back once the fault is mended."""

import asyncio
import threading
from collections import Counter

from headrace.cli.demo.orders import Account, OrderKind, kind_of, number_in
from headrace.cli.demo.screen import Moving, Row
from headrace.cli.demo.world import World

ORDERS = 200
BUSY_EVERY = 7
WORK_S = 0.1


def play(world: World) -> list[Account]:
    from headrace.worker import Backoff, Queue, Reject

    topic, dead, group = (
        world.topic("parcels"),
        world.topic("parcels.dead", partitions=1),
        world.group("packers"),
    )
    world.produce_fast(topic, range(1, ORDERS + 1))
    world.say(
        f"\n[bold]{world.act()}Poison.[/bold] {ORDERS} orders for a worker. Every tenth is unreadable, every seventh\n"
        "   fails at first."
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
        await asyncio.sleep(WORK_S)  # the work
        packed.append(number)

    def run() -> None:
        asyncio.run(queue.run_async())

    def rows() -> list[Row]:
        retries = sum(count - 1 for number, count in tries.items() if kind_of(number) is not OrderKind.POISON)
        return [(f"{'packed':<14}", len(packed) / ORDERS, f"{len(packed)} of {ORDERS}, {retries} retries")]

    worker = threading.Thread(target=run, name="demo-worker")
    worker.start()
    try:
        with Moving(world, rows) as show:

            def is_done() -> bool:
                show()
                return world.drained(group, topic)

            world.until(is_done, "the end of the first round")
        for cause in world.admin.dead_letters(dead).causes():
            world.say(f"   {cause.count} dead letters: {cause.text}")
        is_mended = True
        result = world.admin.redrive(dead, dry_run=False)
        world.say(f"   The fault is mended, and {result.redriven} dead letters are sent back to {topic!r}.")
        with Moving(world, rows) as show:
            world.until(lambda: len(packed) >= ORDERS and is_done(), "the end of the second round")
    finally:
        queue.stop()
        worker.join()
    account = Account("worker", ORDERS)
    account.add("packed", packed)
    return [account]
