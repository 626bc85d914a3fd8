"""Kafka as a queue, in Python, processed on Spark."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from headrace.version import __version__

if TYPE_CHECKING:
    from headrace.broker.embedded import Broker
    from headrace.client.admin import Admin, AsyncAdmin
    from headrace.client.aio import AsyncShareConsumer
    from headrace.client.batches import DeliveryBatch
    from headrace.client.delivery import AcknowledgeType, Delivery, TopicPartition
    from headrace.client.producing.aio import AsyncProducer
    from headrace.client.producing.record import ProducerRecord, RecordMetadata
    from headrace.client.producing.sync import Producer
    from headrace.client.sync import ShareConsumer
    from headrace.worker import Backoff, Queue, Reject, Retry

_HOMES = {
    "AcknowledgeType": "headrace.client.delivery",
    "Admin": "headrace.client.admin",
    "AsyncAdmin": "headrace.client.admin",
    "AsyncProducer": "headrace.client.producing.aio",
    "AsyncShareConsumer": "headrace.client.aio",
    "Backoff": "headrace.worker",
    "Broker": "headrace.broker.embedded",
    "Delivery": "headrace.client.delivery",
    "DeliveryBatch": "headrace.client.batches",
    "Producer": "headrace.client.producing.sync",
    "ProducerRecord": "headrace.client.producing.record",
    "Queue": "headrace.worker",
    "RecordMetadata": "headrace.client.producing.record",
    "Reject": "headrace.worker",
    "Retry": "headrace.worker",
    "ShareConsumer": "headrace.client.sync",
    "TopicPartition": "headrace.client.delivery",
}

__all__ = [
    "AcknowledgeType",
    "Admin",
    "AsyncAdmin",
    "AsyncProducer",
    "AsyncShareConsumer",
    "Backoff",
    "Broker",
    "Delivery",
    "DeliveryBatch",
    "Producer",
    "ProducerRecord",
    "Queue",
    "RecordMetadata",
    "Reject",
    "Retry",
    "ShareConsumer",
    "TopicPartition",
    "__version__",
]


def __getattr__(name: str) -> Any:
    """Public names are imported when first used: `import headrace` stays fast, whatever of it you need."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'headrace' has no attribute {name!r}")
    return getattr(import_module(home), name)
