"""What ShareFetch and ShareAcknowledge have in common on the way in: who asks, which partitions, which answers."""

from headrace.share.changes import AckBatch
from headrace.share.modes import AcquireMode
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages.share_acknowledge_request import ShareAcknowledgeRequest
from headrace.wire.messages.share_fetch_request import ShareFetchRequest

Acks = dict[tuple[bytes, int], list[AckBatch]]
"""By topic id and partition. A partition that is listed without answers has an empty list in ShareAcknowledge."""
MEMBER_ID_LENGTH_MAX = 36


def identify(group_id: str | None, member_id: str | None) -> tuple[str, str]:
    if not group_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a share request needs a group id")
    if not member_id or len(member_id) > MEMBER_ID_LENGTH_MAX:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"a share request needs a member id of 1 to {MEMBER_ID_LENGTH_MAX} characters",
        )
    return group_id, member_id


def check_fetch(request: ShareFetchRequest) -> None:
    """Before the session is touched: its epoch is not consumed by a request that makes no sense."""
    if request.is_renew_ack and (
        request.max_bytes or request.min_bytes or request.max_records or request.max_wait_ms
    ):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            "a request that renews locks fetches nothing: MaxBytes, MinBytes, MaxRecords and MaxWaitMs must be 0",
        )


def acquire_mode(request: ShareFetchRequest) -> AcquireMode:
    """Asked for after the session: as in Kafka, a request with a mode that does not exist uses up its epoch."""
    try:
        return AcquireMode(request.share_acquire_mode)
    except ValueError:
        known = ", ".join(f"{mode.value} {mode.name.lower()}" for mode in AcquireMode)
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"unknown share acquire mode {request.share_acquire_mode}; known are {known}",
        ) from None


def partitions_of(request: ShareFetchRequest) -> list[tuple[bytes, int]]:
    """librdkafka may name a topic more than once; together they are one list."""
    return [
        (topic.topic_id, partition.partition_index)
        for topic in request.topics
        for partition in topic.partitions
    ]


def acks_of(request: ShareFetchRequest | ShareAcknowledgeRequest) -> Acks:
    acks: Acks = {}
    lists_empty = isinstance(request, ShareAcknowledgeRequest)
    for topic in request.topics:
        for partition in topic.partitions:
            batches = partition.acknowledgement_batches
            if not batches and not lists_empty:
                continue
            acks.setdefault((topic.topic_id, partition.partition_index), []).extend(
                AckBatch(batch.first_offset, batch.last_offset, tuple(batch.acknowledge_types))
                for batch in batches
            )
    if lists_empty and not any(acks.values()):
        return {}
    return acks
