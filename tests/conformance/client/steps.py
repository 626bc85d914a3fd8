"""What tests of consumers do over and over: poll until so many records are there, and look at what came."""

import time
from typing import Any

from headrace.client.delivery import Delivery
from headrace.client.sync import ShareConsumer

WAIT_S = 60.0
NEVER_S = 600.0
"""For a call that something must end before its time: if nothing does, the test fails by pytest's timeout."""


def take(consumer: ShareConsumer, count: int, *, within_s: float = WAIT_S) -> list[Delivery]:
    """So many records, of one poll or of several: an explicit consumer must then hold records over polls."""
    taken: list[Delivery] = []
    deadline = time.monotonic() + within_s
    while len(taken) < count:
        assert time.monotonic() < deadline, f"{len(taken)} of {count} records came"
        taken += consumer.poll(0.2)
    return taken


def one_poll(consumer: ShareConsumer, *, within_s: float = WAIT_S) -> list[Delivery]:
    """What the first poll returns that returns anything."""
    deadline = time.monotonic() + within_s
    while not (found := consumer.poll(0.2)):
        assert time.monotonic() < deadline, "no records came"
    return found


def values(deliveries: list[Delivery]) -> list[Any]:
    return [delivery.value for delivery in deliveries]


def places(deliveries: list[Delivery]) -> list[tuple[int, int, int]]:
    """Partition, offset and delivery count of each."""
    return [(one.partition, one.offset, one.delivery_count) for one in deliveries]


def nothing_comes(consumer: ShareConsumer, for_s: float = 0.6) -> bool:
    return not consumer.poll(for_s)
