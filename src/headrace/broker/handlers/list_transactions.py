"""ListTransactions (66), v0-v2: transactional ids with their state, filtered.

Filters: states and producer ids (v0), running for longer than a duration (v1, KIP-994), the whole
transactional id matching a pattern (v2, KIP-1152; INVALID_REGULAR_EXPRESSION if it is none). An unknown state
is named in the answer. As in Kafka, an id that has no transaction counts as running since 1970 for the
duration filter.
"""

from typing import TYPE_CHECKING

from headrace.broker.call import Call
from headrace.broker.patterns import Pattern
from headrace.broker.transactions.states import BY_TITLE
from headrace.wire.messages.list_transactions_request import ListTransactionsRequest
from headrace.wire.messages.list_transactions_response import ListTransactionsResponse, TransactionState

if TYPE_CHECKING:
    from headrace.broker.core import BrokerCore

VERSIONS = (0, 2)


def handle(core: "BrokerCore", request: ListTransactionsRequest, call: Call) -> ListTransactionsResponse:
    states = {BY_TITLE[title] for title in request.state_filters if title in BY_TITLE}
    producer_ids = set(request.producer_id_filters)
    pattern = Pattern(request.transactional_id_pattern) if request.transactional_id_pattern else None
    now_ms = core.clock.wall_ms()
    found = [
        TransactionState(
            transactional_id=transaction.transactional_id,
            producer_id=transaction.producer_id,
            transaction_state=transaction.state.title,
        )
        for transaction in core.transactions
        if (not request.state_filters or transaction.state in states)
        and (not producer_ids or transaction.producer_id in producer_ids)
        and (request.duration_filter < 0 or now_ms - transaction.start_ms > request.duration_filter)
        and (pattern is None or pattern.matches(transaction.transactional_id))
    ]
    unknown = [title for title in dict.fromkeys(request.state_filters) if title not in BY_TITLE]
    return ListTransactionsResponse(unknown_state_filters=unknown, transaction_states=found)
