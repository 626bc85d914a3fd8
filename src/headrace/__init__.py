"""Kafka as a queue, in Python, processed on Spark.

Words that mean one thing in the whole project; Kafka's own where it has one:

record           what a topic holds, known by its topic, partition and offset
topic partition  one log of a topic; in code `TopicPartition`, or a topic ID with an index
share group      consumers that take records of a topic one by one, each record going to one of them (KIP-932)
member           one consumer of a group, known to the broker by its member ID
share partition  what one share group knows of one topic partition: `SharePartition`
acquire          to give a record to a member, with a lock and a delivery count of one more
acquisition lock the time for which no other member gets an acquired record; a member can renew it
delivery         a record as the application gets it, with the means to acknowledge it: `Delivery`
acknowledge      a member's decision on a record: accept, release (deliver it again), reject (never again) or renew
archived         rejected, or delivered too often: no member gets the record again
in flight        between the start offset of a share partition and the end of what was acquired
dead letter      a copy of a record that was given up, in the dead-letter topic, with the cause in its headers
redrive          to send dead letters back to the topic that they came from
request          what a client sends to a broker; the broker's reply is the response
journal          an internal topic in which a coordinator writes a change before it applies it; replayed at the start
coordinator      the broker that owns the state of a group, a transaction or a share partition
task             a function of a queue that runs once for each record of its topics: `Queue`
drain            to finish what runs, give back the rest, and stop
micro-batch      the records that a Spark query processes together, between two commits of its checkpoint
"""

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


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    """Public names are imported when first used: `import headrace` stays fast, whatever of it you need."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'headrace' has no attribute {name!r}")
    return getattr(import_module(home), name)
