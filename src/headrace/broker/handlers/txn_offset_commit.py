"""TxnOffsetCommit (28), v0-v5: a group's offsets become part of a transaction and count when it commits.

The group coordinator keeps them as pending. v3 brings member and generation, which it checks. From v5
(KIP-890) the group's partition of `__consumer_offsets` joins the transaction here; before, AddOffsetsToTxn
must have added it, else v4 is told TRANSACTION_ABORTABLE and older ones INVALID_TXN_STATE.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headrace.broker.call import Call
from headrace.broker.handlers.add_offsets_to_txn import offsets_place
from headrace.broker.later import Later
from headrace.broker.transactions.coordinator import ProducerIdentity
from headrace.broker.transactions.ending import partition_at
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages.txn_offset_commit_request import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
)
from headrace.wire.messages.txn_offset_commit_response import (
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

if TYPE_CHECKING:
    from headrace.broker.core import BrokerCore

VERSIONS = (0, 5)


def handle(
    core: "BrokerCore", request: TxnOffsetCommitRequest, call: Call
) -> TxnOffsetCommitResponse | Later[TxnOffsetCommitResponse]:
    known = _split(core, request.topics, is_known=True)
    refused = _answers(_split(core, request.topics, is_known=False), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if not known:
        return TxnOffsetCommitResponse(topics=refused)
    if not request.group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID)
    admitted = core.transactions.admit(
        request.transactional_id,
        ProducerIdentity(request.producer_id, request.producer_epoch),
        [offsets_place(core, request.group_id)],
        may_add=call.api_version >= 5,
        knows_abortable=call.api_version >= 4,
    )
    committed = core.groups.add_transaction_offsets(_only(request, known), call)

    def respond(response: TxnOffsetCommitResponse) -> TxnOffsetCommitResponse:
        return TxnOffsetCommitResponse(topics=[*response.topics, *refused]) if refused else response

    answer: Later[TxnOffsetCommitResponse] = Later()
    admitted.then(lambda _: committed.map(respond).then(answer.resolve))
    return answer


def _split(
    core: "BrokerCore", topics: Sequence[TxnOffsetCommitRequestTopic], *, is_known: bool
) -> list[TxnOffsetCommitRequestTopic]:
    """The topics with only those of their partitions that exist, or that do not."""
    result = []
    for topic in topics:
        partitions = [
            partition
            for partition in topic.partitions
            if (partition_at(core, (topic.name, partition.partition_index)) is not None) is is_known
        ]
        if partitions:
            result.append(TxnOffsetCommitRequestTopic(name=topic.name, partitions=partitions))
    return result


def _only(
    request: TxnOffsetCommitRequest, topics: Sequence[TxnOffsetCommitRequestTopic]
) -> TxnOffsetCommitRequest:
    return TxnOffsetCommitRequest(
        transactional_id=request.transactional_id,
        group_id=request.group_id,
        producer_id=request.producer_id,
        producer_epoch=request.producer_epoch,
        generation_id=request.generation_id,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        topics=topics,
    )


def _answers(
    topics: Sequence[TxnOffsetCommitRequestTopic], code: ErrorCode
) -> list[TxnOffsetCommitResponseTopic]:
    return [
        TxnOffsetCommitResponseTopic(
            name=topic.name,
            partitions=[
                TxnOffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=code)
                for partition in topic.partitions
            ],
        )
        for topic in topics
    ]


def error_response(
    request: TxnOffsetCommitRequest, code: ErrorCode, message: str | None, call: Call
) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(topics=_answers(request.topics, code))
