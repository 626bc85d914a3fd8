"""DescribeTransactions (65), v0: state, timeout, start and partitions of transactional ids.

While a transaction ends, only the partitions without their marker are listed. An id that is not known answers
TRANSACTIONAL_ID_NOT_FOUND, an empty one INVALID_REQUEST.
"""

from typing import TYPE_CHECKING

from headrace.broker.call import Call
from headrace.broker.pieces import CutList
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages.describe_transactions_request import DescribeTransactionsRequest
from headrace.wire.messages.describe_transactions_response import (
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)

if TYPE_CHECKING:
    from headrace.broker.core import BrokerCore

VERSIONS = (0, 0)
CUTS = {0: CutList("transactional_ids", "transaction_states")}


def handle(
    core: "BrokerCore", request: DescribeTransactionsRequest, call: Call
) -> DescribeTransactionsResponse:
    states = [_describe(core, transactional_id) for transactional_id in request.transactional_ids]
    return DescribeTransactionsResponse(transaction_states=states)


def _describe(core: "BrokerCore", transactional_id: str) -> TransactionState:
    if not transactional_id:
        return _refused(transactional_id, ErrorCode.INVALID_REQUEST)
    try:
        transaction = core.transactions.describe(transactional_id)
    except KafkaError as error:
        return _refused(transactional_id, error.code)
    if transaction is None:
        return _refused(transactional_id, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
    topics: dict[str, list[int]] = {}
    for topic, index in sorted(transaction.partitions):
        topics.setdefault(topic, []).append(index)
    return TransactionState(
        transactional_id=transactional_id,
        transaction_state=transaction.state.title,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_start_time_ms=transaction.start_ms,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        topics=[TopicData(topic=topic, partitions=indexes) for topic, indexes in topics.items()],
    )


def _refused(transactional_id: str, code: ErrorCode) -> TransactionState:
    return TransactionState(transactional_id=transactional_id, error_code=code)
