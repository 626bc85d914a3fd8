"""EndTxn (26), v0-v5: commits or aborts a producer's transaction.

Answered when every partition of the transaction has its marker, durably. From v5 (KIP-890) each end moves the
producer's epoch, and the answer brings the id and epoch for the next transaction; such a client may also
abort when no transaction is open. A retry is answered like the first try. Before v2 a fenced producer is told
INVALID_PRODUCER_EPOCH.
"""

from typing import TYPE_CHECKING

from headrace.broker.call import Call
from headrace.broker.later import Later
from headrace.broker.transactions.coordinator import ProducerIdentity
from headrace.broker.transactions.machine import BUMPS_EPOCH
from headrace.wire.messages.end_txn_request import EndTxnRequest
from headrace.wire.messages.end_txn_response import EndTxnResponse

if TYPE_CHECKING:
    from headrace.broker.core import BrokerCore

VERSIONS = (0, 5)


def handle(core: "BrokerCore", request: EndTxnRequest, call: Call) -> Later[EndTxnResponse]:
    ended = core.transactions.end(
        request.transactional_id,
        ProducerIdentity(request.producer_id, request.producer_epoch),
        commit=request.committed,
        client_version=BUMPS_EPOCH if call.api_version >= 5 else 0,
    )
    return ended.map(
        lambda producer: EndTxnResponse(
            producer_id=producer.producer_id, producer_epoch=producer.producer_epoch
        )
    )
