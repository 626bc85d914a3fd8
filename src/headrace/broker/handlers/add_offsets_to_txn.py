"""AddOffsetsToTxn (25), v0-v4: the offsets of a consumer group join a producer's transaction.

What joins is the partition of `__consumer_offsets` that holds the group. Producers of transaction.version 2
leave this request out: their TxnOffsetCommit does it. Before v2 a fenced producer is told
INVALID_PRODUCER_EPOCH.
"""

from typing import TYPE_CHECKING

from headrace.broker.call import Call
from headrace.broker.later import Later
from headrace.broker.transactions.coordinator import ProducerIdentity
from headrace.broker.transactions.ending import OFFSETS_TOPIC
from headrace.wire.ids import TopicAndPartition, partition_for
from headrace.wire.messages.add_offsets_to_txn_request import AddOffsetsToTxnRequest
from headrace.wire.messages.add_offsets_to_txn_response import AddOffsetsToTxnResponse

if TYPE_CHECKING:
    from headrace.broker.core import BrokerCore

VERSIONS = (0, 4)


def handle(core: "BrokerCore", request: AddOffsetsToTxnRequest, call: Call) -> Later[AddOffsetsToTxnResponse]:
    producer = ProducerIdentity(request.producer_id, request.producer_epoch)
    place = offsets_place(core, request.group_id)
    added = core.transactions.add_partitions(request.transactional_id, producer, [place], client_version=0)
    return added.map(lambda _: AddOffsetsToTxnResponse())


def offsets_place(core: "BrokerCore", group_id: str) -> TopicAndPartition:
    """The partition that holds a group's offsets."""
    return OFFSETS_TOPIC, partition_for(group_id, len(core.topics.internal(OFFSETS_TOPIC).partitions))
