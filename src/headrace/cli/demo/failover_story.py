"""Failover: a consumer is killed while it holds records, and the broker under the one that is left.

One partition, which both have: of two, the dead member would keep one until its session ends, 45 s later.
"""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from headrace.cli.demo.orders import Account, number_in
from headrace.cli.demo.screen import Moving, Row
from headrace.cli.demo.world import World
from headrace.cli.failures import Refused
from headrace.client.delivery import TopicPartition

ORDERS = 300
HELD = 50
WORK_S = 0.005
DOWN_S = 0.5
"""So long the broker stays away, for the audience to see it."""


@dataclass(slots=True)
class FailoverView:
    """What the audience sees of it."""

    accepted: list[int] = field(default_factory=list)
    again: list[tuple[float, int]] = field(default_factory=list)
    """Records that the dead consumer had held: when they were accepted, and which."""
    unknown: set[int] = field(default_factory=set)
    """Records whose acceptance was sent and not answered, because the broker was killed: it may hold or not."""
    broker: str = ""
    is_broker_up: bool = True

    def did(self, number: int, *, is_confirmed: bool, is_again: bool) -> None:
        if not is_confirmed:
            self.unknown.add(number)
            return
        self.unknown.discard(number)
        self.accepted.append(number)
        if is_again:
            self.again.append((time.monotonic(), number))

    def settle(self) -> None:
        """Every record has come to an end: what did not come again was accepted."""
        self.accepted += sorted(self.unknown)
        self.unknown.clear()

    def rows(self) -> list[Row]:
        taken = f"{len(self.accepted)} of {ORDERS}"
        if self.again:
            taken += f", {len(self.again)} taken over"
        rows: list[Row] = [(f"{'accepted':<14}", len(self.accepted) / ORDERS, taken)]
        if self.broker:
            rows.append((f"{'broker':<14}", float(self.is_broker_up), self.broker))
        return rows


def play(world: World) -> list[Account]:
    topic, group = world.topic("failover-orders", partitions=1), world.group("survivors")
    world.produce_fast(topic, range(1, ORDERS + 1))
    world.say(
        f"\n[bold]{world.act()}Failover.[/bold] A consumer holds {HELD} of {ORDERS} orders and is killed with -9.\n"
        + ("   So is the broker." if world.broker is not None else "")
    )
    held = _killed_holder(world, group, topic)
    world.kills += 1
    died = time.monotonic()
    seen = FailoverView()
    with world.crew(_survivor(world, group, topic, seen)) as (future,), Moving(world, seen.rows) as show:

        def has_come(number: int) -> bool:
            if future.done():
                future.result()
            show()
            return len(seen.accepted) >= number

        world.until(lambda: has_come(ORDERS // 2), "half of the orders")
        if world.broker is not None:
            _kill_broker(world, seen, show)
        world.until(
            lambda: has_come(ORDERS - len(seen.unknown)) and world.drained(group, topic),
            "the end of the orders",
        )
        seen.settle()
    if seen.again:
        world.say(
            f"   {len(seen.again)} of the dead consumer's records came to the other one, the first\n"
            f"   {seen.again[0][0] - died:.1f} s after the kill."
        )
    account = Account("failover", ORDERS)
    account.add("accepted", seen.accepted)
    missing = set(held) - set(seen.accepted)
    if missing:
        raise Refused(f"records of the killed consumer were not delivered again: {sorted(missing)}")
    return [account]


def _survivor(world: World, group: str, topic: str, seen: FailoverView) -> Callable[[], None]:
    def work() -> None:
        with world.share_consumer(group, topic) as consumer:
            while not world.stopping.is_set():
                deliveries = consumer.poll(timeout=0.3)
                for delivery in deliveries:
                    time.sleep(WORK_S)  # the work
                    delivery.accept()
                results = consumer.commit_sync()
                for delivery in deliveries:
                    place = TopicPartition(delivery.topic, delivery.partition)
                    seen.did(
                        number_in(delivery.value),
                        is_confirmed=results.get(place) is None,
                        is_again=delivery.delivery_count > 1,
                    )

    return work


def _kill_broker(world: World, seen: FailoverView, show: Callable[[], None]) -> None:
    assert world.broker is not None
    done = len(seen.accepted)
    world.broker.kill()
    world.kills += 1
    seen.broker, seen.is_broker_up = f"killed with -9 after {done} orders", False
    show()
    world.stopping.wait(DOWN_S)
    world.broker.start()
    seen.broker, seen.is_broker_up = f"killed with -9, back in {world.broker.start_s:.1f} s", True
    show()


def _killed_holder(world: World, group: str, topic: str) -> list[int]:
    """A consumer in a process of its own, which says what it holds, and dies."""
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "headrace.cli.demo.holder",
            str(world.settings_file()),
            group,
            topic,
            str(HELD),
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    if not line:
        raise Refused("the consumer ended before it was killed")
    return [int(number) for number in json.loads(line)]
