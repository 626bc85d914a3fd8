"""InitProducerId (22), v0-v5: gives a producer its id and epoch, and shuts out its predecessor.

Without a transactional id: a new id, epoch 0. With one: the same id and the next epoch, so that an older
producer with this transactional id is fenced; its open transaction is aborted first, and the asker is told
CONCURRENT_TRANSACTIONS until that is done. v3 brings the id and epoch of a producer that recovers (KIP-360).
Before v4 a fenced producer is told INVALID_PRODUCER_EPOCH instead of PRODUCER_FENCED.

The answer waits until the id is safe from a power cut, even with headrace.flush=os: an id that were given out
twice would make the second producer's records look like the first one's retries, and they would be dropped.
"""

from typing import TYPE_CHECKING

from headrace.broker.call import Call
from headrace.broker.later import Later
from headrace.broker.transactions.coordinator import ProducerIdentity
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages.init_producer_id_request import InitProducerIdRequest
from headrace.wire.messages.init_producer_id_response import InitProducerIdResponse

if TYPE_CHECKING:
    from headrace.broker.core import BrokerCore

VERSIONS = (0, 5)
NONE = -1


def handle(
    core: "BrokerCore", request: InitProducerIdRequest, call: Call
) -> InitProducerIdResponse | Later[InitProducerIdResponse]:
    if (request.producer_id == NONE) != (request.producer_epoch == NONE):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Producer ID and epoch must be set together.")
    if request.transactional_id is None:
        producer = core.transactions.new_producer()
        return core.saved(()).map(lambda _: _response(producer))
    expected = (
        None if request.producer_id == NONE else ProducerIdentity(request.producer_id, request.producer_epoch)
    )
    initialized = core.transactions.initialize(
        request.transactional_id, timeout_ms=request.transaction_timeout_ms, expected=expected
    )
    answer: Later[InitProducerIdResponse] = Later()
    saved = core.saved(())
    saved.then(lambda _: initialized.map(_response).then(answer.resolve, answer.fail), answer.fail)
    return answer


def _response(identity: ProducerIdentity | None) -> InitProducerIdResponse:
    if identity is None:
        return InitProducerIdResponse(error_code=ErrorCode.CONCURRENT_TRANSACTIONS, producer_epoch=NONE)
    return InitProducerIdResponse(producer_id=identity.producer_id, producer_epoch=identity.producer_epoch)
