"""What an administrator may do to records in flight; Kafka itself has no such request."""

from typing import TYPE_CHECKING

from headrace.broker.groups.share import ShareGroup
from headrace.broker.share.loaded import Stale
from headrace.share.changes import AckBatch, AcknowledgeType
from headrace.share.holds import HoldEnd
from headrace.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from headrace.broker.core import BrokerCore


def release_record(core: "BrokerCore", group_id: str, topic: str, partition: int, offset: int) -> str:
    """Takes an acquired record from its holder, whose id is returned, as if the holder had released it.

    The holder is not told: what it answers for this record later is refused. A record that has had its last
    delivery is archived by this, as by any release. KafkaError(INVALID_RECORD_STATE) if nobody holds it.
    """
    core.groups.state.registry.require_type(group_id, ShareGroup, "share")
    found = core.topics.require(topic, partition)
    for loaded in core.share_leader.loaded(group_id):
        if loaded.partition is not found:
            continue
        for entry in loaded.engine.snapshot().ranges:
            if entry.first <= offset <= entry.last and entry.holder is not None:
                try:
                    answer = AckBatch(offset, offset, (AcknowledgeType.RELEASE,))
                    loaded.acknowledge(entry.holder, [answer], allows_renew=False, given_back=HoldEnd.TAKEN)
                except Stale as stale:
                    raise stale.error from stale
                return entry.holder
    raise KafkaError(
        ErrorCode.INVALID_RECORD_STATE, f"record {offset} of {topic}-{partition} is not acquired"
    )
