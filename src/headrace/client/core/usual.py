"""The usual responses of a share session, as values: no errors, no throttling, and one partition.

Most responses are of this kind. They are read from a frame (`client/usual.py`) and taken in by the core without an
object for each part of the message. `as_message` gives the message that says the same, for whatever has no short way.
"""

from typing import NamedTuple

from headrace.wire.messages.share_acknowledge_response import PartitionData as AcknowledgedPartition
from headrace.wire.messages.share_acknowledge_response import (
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)
from headrace.wire.messages.share_fetch_response import (
    AcquiredRecords,
    PartitionData,
    ShareFetchableTopicResponse,
    ShareFetchResponse,
)


class UsualFetch(NamedTuple):
    """One range of one partition was acquired."""

    lock_ms: int
    topic_id: bytes
    partition: int
    first: int
    last: int
    delivery_count: int
    records: bytes

    def as_message(self) -> ShareFetchResponse:
        data = PartitionData(
            partition_index=self.partition,
            records=self.records,
            acquired_records=[
                AcquiredRecords(
                    first_offset=self.first, last_offset=self.last, delivery_count=self.delivery_count
                )
            ],
        )
        topic = ShareFetchableTopicResponse(topic_id=self.topic_id, partitions=[data])
        return ShareFetchResponse(acquisition_lock_timeout_ms=self.lock_ms, responses=[topic])


class UsualAcknowledge(NamedTuple):
    """The acknowledgements of one partition were accepted."""

    lock_ms: int
    topic_id: bytes
    partition: int

    def as_message(self) -> ShareAcknowledgeResponse:
        topic = ShareAcknowledgeTopicResponse(
            topic_id=self.topic_id, partitions=[AcknowledgedPartition(partition_index=self.partition)]
        )
        return ShareAcknowledgeResponse(acquisition_lock_timeout_ms=self.lock_ms, responses=[topic])
