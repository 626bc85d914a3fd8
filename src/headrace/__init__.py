"""Kafka as a queue, in Python, processed on Spark."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from headrace.version import __version__

if TYPE_CHECKING:
    from headrace.broker.embedded import Broker
    from headrace.client.admin import Admin, AsyncAdmin
    from headrace.client.aio import AsyncShareConsumer
    from headrace.client.delivery import AcknowledgeType, Delivery, TopicPartition
    from headrace.client.sync import ShareConsumer
    from headrace.worker import Backoff, Queue, Reject, Retry

_HOMES = {
    "AcknowledgeType": "headrace.client.delivery",
    "Admin": "headrace.client.admin",
    "AsyncAdmin": "headrace.client.admin",
    "AsyncShareConsumer": "headrace.client.aio",
    "Backoff": "headrace.worker",
    "Broker": "headrace.broker.embedded",
    "Delivery": "headrace.client.delivery",
    "Queue": "headrace.worker",
    "Reject": "headrace.worker",
    "Retry": "headrace.worker",
    "ShareConsumer": "headrace.client.sync",
    "TopicPartition": "headrace.client.delivery",
}

__all__ = [
    "AcknowledgeType",
    "Admin",
    "AsyncAdmin",
    "AsyncShareConsumer",
    "Backoff",
    "Broker",
    "Delivery",
    "Queue",
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
