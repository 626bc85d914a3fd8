"""Deliveries for functions in other processes, which cannot acknowledge them."""

from collections.abc import Sequence
from dataclasses import dataclass

from headrace.client.delivery import Delivery


@dataclass(frozen=True, slots=True)
class DeliveryFacts:
    """What a function in another process gets in place of the Delivery: its fields without its methods."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]
    timestamp: int
    delivery_count: int


def facts_of_delivery(delivery: Delivery) -> DeliveryFacts:
    return DeliveryFacts(
        topic=delivery.topic,
        partition=delivery.partition,
        offset=delivery.offset,
        key=delivery.key,
        value=delivery.value,
        headers=delivery.headers,
        timestamp=delivery.timestamp,
        delivery_count=delivery.delivery_count,
    )
