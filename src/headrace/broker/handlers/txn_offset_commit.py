"""TxnOffsetCommit (28), v0-v6: a group's offsets become part of a transaction and count when it commits.

The group coordinator keeps them as pending. v3 brings member and generation, which it checks. From v5
(KIP-890) the group's partition of `__consumer_offsets` joins the transaction here; before, AddOffsetsToTxn
must have added it, else v4 is told TRANSACTION_ABORTABLE and older ones INVALID_TXN_STATE. v6 names topics by ID
and knows member epochs (KIP-1319).
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headrace.broker.call import Call
from headrace.broker.groups.commits import commit_entry, committed_offset, group_for_commit
from headrace.broker.groups.records import JournalEntry
from headrace.broker.groups.registry import CommitCheck
from headrace.broker.handlers.add_offsets_to_txn import offsets_place
from headrace.broker.later import Later, resolved
from headrace.broker.producer import ProducerIdAndEpoch
from headrace.broker.transactions.coordinator import ProducerIdentity
from headrace.broker.transactions.ending import partition_at
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.message import ZERO_UUID
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

VERSIONS = (0, 6)
TOPIC_IDS_SINCE = 6
EPOCHS_SINCE = 6
"""Before, producers know generations only, and neither member epochs nor GROUP_ID_NOT_FOUND."""


def handle(
    core: "BrokerCore", request: TxnOffsetCommitRequest, call: Call
) -> TxnOffsetCommitResponse | Later[TxnOffsetCommitResponse]:
    topics, refused = (
        _by_name(core, request.topics) if call.api_version >= TOPIC_IDS_SINCE else (request.topics, [])
    )
    known = _split(core, topics, is_known=True)
    refused += _refused(_split(core, topics, is_known=False), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
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
    committed, durable = commit_offsets(core, request, known, call)
    response = TxnOffsetCommitResponse(topics=[*committed, *refused])
    later: Later[TxnOffsetCommitResponse] = Later()
    admitted.then(
        lambda _: durable.map(lambda _: response).then(later.resolve, later.fail),
        later.fail,
    )
    return later


def _by_name(
    core: "BrokerCore", topics: Sequence[TxnOffsetCommitRequestTopic]
) -> tuple[list[TxnOffsetCommitRequestTopic], list[TxnOffsetCommitResponseTopic]]:
    """The topics with their names; and the refusals of IDs that no topic has."""
    named, unknown = [], []
    for asked in topics:
        topic = core.topics.by_id(asked.topic_id)
        if topic is None:
            unknown.append(asked)
        else:
            named.append(
                TxnOffsetCommitRequestTopic(
                    name=topic.name, topic_id=asked.topic_id, partitions=asked.partitions
                )
            )
    return named, _refused(unknown, ErrorCode.UNKNOWN_TOPIC_ID)


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
            result.append(
                TxnOffsetCommitRequestTopic(name=topic.name, topic_id=topic.topic_id, partitions=partitions)
            )
    return result


def commit_offsets(
    core: "BrokerCore",
    request: TxnOffsetCommitRequest,
    topics: Sequence[TxnOffsetCommitRequestTopic],
    call: Call,
) -> tuple[list[TxnOffsetCommitResponseTopic], Later[None]]:
    """The topics and the transaction have been checked. Raises KafkaError for the request as a whole."""
    has_epochs = call.api_version >= EPOCHS_SINCE
    unknown = ErrorCode.GROUP_ID_NOT_FOUND if has_epochs else ErrorCode.ILLEGAL_GENERATION
    epoch = request.generation_id_or_member_epoch
    group = group_for_commit(core.groups, request.group_id, epoch, unknown=unknown)
    entries: list[JournalEntry] = []
    try:
        check = group.check_offset_commit(
            member_id=request.member_id,
            instance_id=request.group_instance_id,
            epoch=epoch,
            version=call.api_version,
            is_transactional=True,
        )
        committed = [_commit_topic(core, request.group_id, topic, check, entries) for topic in topics]
    except KafkaError as error:
        if error.code is ErrorCode.STALE_MEMBER_EPOCH and not has_epochs:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION, error.message) from None
        raise
    if not entries:
        return committed, resolved(None)
    producer = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
    return committed, core.groups.journal(request.group_id, entries, producer=producer)


def _commit_topic(
    core: "BrokerCore",
    group_id: str,
    topic: TxnOffsetCommitRequestTopic,
    check: CommitCheck | None,
    entries: list[JournalEntry],
) -> TxnOffsetCommitResponseTopic:
    known = core.topics.get(topic.name)
    topic_id = known.id if known is not None else ZERO_UUID
    wall_ms = core.groups.now().wall_ms
    metadata_max = core.settings.get_int("offset.metadata.max.bytes")
    partitions = []
    for partition in topic.partitions:
        index = partition.partition_index
        offset = committed_offset(partition, topic_id=topic_id, wall_ms=wall_ms, metadata_max=metadata_max)
        code = ErrorCode.OFFSET_METADATA_TOO_LARGE if offset is None else ErrorCode.NONE
        if offset is not None:
            if check is not None:
                check(topic.name, topic_id, index)
            entries.append(commit_entry(group_id, topic.name, index, offset))
        partitions.append(TxnOffsetCommitResponsePartition(partition_index=index, error_code=code))
    return TxnOffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=partitions)


def _refused(
    topics: Sequence[TxnOffsetCommitRequestTopic], code: ErrorCode
) -> list[TxnOffsetCommitResponseTopic]:
    return [
        TxnOffsetCommitResponseTopic(
            name=topic.name,
            topic_id=topic.topic_id,
            partitions=[
                TxnOffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=code)
                for partition in topic.partitions
            ],
        )
        for topic in topics
    ]
