"""Failover: a consumer is killed while it holds records, and the broker is restarted under the one that is left.

One partition, which both have: of two, the dead member would keep one until its session ends, 45 s later.
"""

import json
import signal
import subprocess
import sys
import time

from headrace.cli.demo.orders import Account, number_in
from headrace.cli.demo.world import World, settings_text
from headrace.cli.failures import Refused
from headrace.client.delivery import TopicPartition

ORDERS = 300
HELD = 50
WORK_S = 0.005


def play(world: World) -> list[Account]:
    topic, group = world.topic("failover-orders", partitions=1), world.group("survivors")
    world.produce(topic, range(1, ORDERS + 1))
    world.say(
        f"\n[bold]Failover.[/bold] {ORDERS} orders. A consumer takes {HELD} of them, and is killed with kill -9."
    )
    held = _killed_holder(world, group, topic)
    died = time.monotonic()
    accepted: list[int] = []
    again: list[tuple[float, int]] = []

    def work() -> None:
        with world.share_consumer(group, topic) as consumer:
            while not world.stopping.is_set():
                deliveries = consumer.poll(timeout=0.3)
                for delivery in deliveries:
                    time.sleep(WORK_S)  # the work
                    delivery.accept()
                results = consumer.commit_sync()
                for delivery in deliveries:
                    if results.get(TopicPartition(delivery.topic, delivery.partition)) is None:  # confirmed
                        accepted.append(number_in(delivery.value))
                        if delivery.delivery_count > 1:
                            again.append((time.monotonic(), accepted[-1]))

    with world.crew(work) as (future,):

        def is_half_done() -> bool:
            if future.done():
                future.result()
            return len(accepted) >= ORDERS // 2

        world.until(is_half_done, "half of the orders")
        if world.broker is not None:
            world.restart_broker()
            world.say(f"   The broker was stopped and started again after {len(accepted)} orders.")
        world.until(lambda: world.drained(group, topic), "the end of the orders")
    if again:
        world.say(
            f"   {len(again)} of the dead consumer's records came to the other one, the first "
            f"{again[0][0] - died:.1f} s after the kill, with delivery count 2."
        )
    account = Account("failover", ORDERS)
    account.add("accepted", accepted)
    missing = set(held) - set(accepted)
    if missing:
        raise Refused(f"records of the dead consumer never came again: {sorted(missing)}")
    return [account]


def _killed_holder(world: World, group: str, topic: str) -> list[int]:
    """A consumer in a process of its own, which says what it holds, and dies."""
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "headrace.cli.demo.holder",
            settings_text(world.settings),
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
        raise Refused("the consumer that was to be killed ended by itself")
    return [int(number) for number in json.loads(line)]
