"""What ShareFetch and ShareAcknowledge have in common on the way in: who asks, and the acknowledgements."""

from collections.abc import Collection

from headrace.share.changes import AckBatch
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages.share_acknowledge_request import ShareAcknowledgeRequest
from headrace.wire.messages.share_fetch_request import ShareFetchRequest

Acks = dict[tuple[bytes, int], list[AckBatch]]
"""By topic id and partition. A partition without acknowledgements has an empty list in ShareAcknowledge."""
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


def take_denied(acks: Acks, denied: Collection[bytes]) -> "dict[tuple[bytes, int], KafkaError | None]":
    """Takes out the acknowledgements for topics that the client may not read; these are refused."""
    taken = [place for place in acks if place[0] in denied] if denied else []
    for place in taken:
        del acks[place]
    error = KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    return dict.fromkeys(taken, KafkaError(error.code, error.text))


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
