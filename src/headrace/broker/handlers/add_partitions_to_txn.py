"""AddPartitionsToTxn (24), v0-v5: partitions join a producer's transaction before it writes to them.

v0-v3 are for producers before transaction.version 2: one transaction. v4 and v5 are what brokers ask each
other, many transactions at once, to add partitions or (VerifyOnly) to check that they were added. If one
partition does not exist none of that transaction is added: the others answer OPERATION_NOT_ATTEMPTED. Before
v2 a fenced producer is told INVALID_PRODUCER_EPOCH; a partition that is not in the transaction is told
TRANSACTION_ABORTABLE.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from headrace.broker.call import Call
from headrace.broker.later import Later, resolved, when_all
from headrace.broker.security.acls import may_topic
from headrace.broker.transactions.coordinator import ProducerIdentity
from headrace.broker.transactions.ending import partition_at
from headrace.broker.transactions.machine import BUMPS_EPOCH
from headrace.wire.acls import AclOperation
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.ids import TopicAndPartition
from headrace.wire.messages.add_partitions_to_txn_request import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from headrace.wire.messages.add_partitions_to_txn_response import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)

if TYPE_CHECKING:
    from headrace.broker.core import BrokerCore

VERSIONS = (0, 5)
Codes = Mapping[TopicAndPartition, ErrorCode]


def handle(
    core: "BrokerCore", request: AddPartitionsToTxnRequest, call: Call
) -> Later[AddPartitionsToTxnResponse]:
    transactions = _transactions(request, call)
    results = when_all([_join(core, transaction, call) for transaction in transactions])

    def respond(codes: list[Codes]) -> AddPartitionsToTxnResponse:
        topics = [_by_topic(each) for each in codes]
        if call.api_version < 4:
            return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=topics[0])
        return AddPartitionsToTxnResponse(
            results_by_transaction=[
                AddPartitionsToTxnResult(transactional_id=transaction.transactional_id, topic_results=result)
                for transaction, result in zip(transactions, topics, strict=True)
            ]
        )

    return results.map(respond)


def _transactions(request: AddPartitionsToTxnRequest, call: Call) -> Sequence[AddPartitionsToTxnTransaction]:
    if call.api_version >= 4:
        return request.transactions
    return (
        AddPartitionsToTxnTransaction(
            transactional_id=request.v3_and_below_transactional_id,
            producer_id=request.v3_and_below_producer_id,
            producer_epoch=request.v3_and_below_producer_epoch,
            topics=request.v3_and_below_topics,
        ),
    )


def _join(core: "BrokerCore", transaction: AddPartitionsToTxnTransaction, call: Call) -> Later[Codes]:
    places = _places(transaction.topics)
    refused = _refused(core, places, call)
    if refused:
        return resolved({place: refused.get(place, ErrorCode.OPERATION_NOT_ATTEMPTED) for place in places})
    producer = ProducerIdentity(transaction.producer_id, transaction.producer_epoch)
    success = dict.fromkeys(places, ErrorCode.NONE)
    try:
        if transaction.verify_only:
            missing = core.transactions.missing(transaction.transactional_id, producer, places)
            return resolved(success | dict.fromkeys(missing, ErrorCode.TRANSACTION_ABORTABLE))
        client_version = BUMPS_EPOCH if call.api_version >= 4 else 0
        added = core.transactions.add_partitions(
            transaction.transactional_id, producer, places, client_version=client_version
        )
    except KafkaError as error:
        return resolved(dict.fromkeys(places, _known(error.code, call)))
    return added.map(lambda _: success)


def _places(topics: Sequence[AddPartitionsToTxnTopic]) -> list[TopicAndPartition]:
    return list(dict.fromkeys((topic.name, index) for topic in topics for index in topic.partitions))


def _refused(
    core: "BrokerCore", places: Sequence[TopicAndPartition], call: Call
) -> dict[TopicAndPartition, ErrorCode]:
    refused = {}
    for place in places:
        partition = partition_at(core, place)
        if call.api_version < 4 and not may_topic(core, call, AclOperation.WRITE, place[0]):
            refused[place] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif partition is None:
            refused[place] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        elif partition.topic.is_internal and call.api_version < 4:
            refused[place] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return refused


def _known(code: ErrorCode, call: Call) -> ErrorCode:
    if code is ErrorCode.PRODUCER_FENCED and call.api_version < 2:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code


def _by_topic(codes: Codes) -> list[AddPartitionsToTxnTopicResult]:
    topics: dict[str, list[AddPartitionsToTxnPartitionResult]] = {}
    for (name, index), code in codes.items():
        result = AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=code)
        topics.setdefault(name, []).append(result)
    return [
        AddPartitionsToTxnTopicResult(name=name, results_by_partition=results)
        for name, results in topics.items()
    ]


def error_response(
    request: AddPartitionsToTxnRequest, code: ErrorCode, message: str | None, call: Call
) -> AddPartitionsToTxnResponse:
    if call.api_version >= 4:
        return AddPartitionsToTxnResponse(error_code=code)
    codes = dict.fromkeys(_places(request.v3_and_below_topics), _known(code, call))
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=_by_topic(codes))
