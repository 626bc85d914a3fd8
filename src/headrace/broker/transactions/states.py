"""The states of a transaction, every legal change between them, and what an EndTxn request meets in each.

All of it is tables: a pair that is missing is refused, nothing is legal by falling through. Names and numbers
are Kafka's; they are in the journal and in the answers of DescribeTransactions and ListTransactions.
"""

from enum import Enum, IntEnum


class TransactionState(IntEnum):
    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    """Expired. Never journalled: a tombstone is, and the transactional id is forgotten."""
    PREPARE_EPOCH_FENCE = 7
    """In Kafka: about to fence the producer. Here that is one step to PREPARE_ABORT; filters may still name it."""

    @property
    def title(self) -> str:
        """The name as Kafka's tools print it: `PrepareCommit`."""
        return "".join(word.capitalize() for word in self.name.split("_"))


BY_TITLE = {state.title: state for state in TransactionState}
PREPARED = frozenset({TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT})
AT_REST = frozenset(
    {TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT}
)
"""No transaction is open: a new one may begin, the producer may be initialized, the id may expire."""


class TransactionCause(Enum):
    INITIALIZE = "a producer asked for an epoch"
    ADD = "a partition joined"
    COMMIT = "the producer commits"
    ABORT = "the producer aborts"
    FENCE = "the transaction timed out or a new producer took over"
    COMPLETE = "every marker is written"
    EXPIRE = "the transactional id was not used for long"


_S, _C = TransactionState, TransactionCause
TRANSITIONS: dict[tuple[TransactionState, TransactionCause], TransactionState] = {
    (_S.EMPTY, _C.INITIALIZE): _S.EMPTY,
    (_S.COMPLETE_COMMIT, _C.INITIALIZE): _S.EMPTY,
    (_S.COMPLETE_ABORT, _C.INITIALIZE): _S.EMPTY,
    (_S.EMPTY, _C.ADD): _S.ONGOING,
    (_S.ONGOING, _C.ADD): _S.ONGOING,
    (_S.COMPLETE_COMMIT, _C.ADD): _S.ONGOING,
    (_S.COMPLETE_ABORT, _C.ADD): _S.ONGOING,
    (_S.ONGOING, _C.COMMIT): _S.PREPARE_COMMIT,
    (_S.ONGOING, _C.ABORT): _S.PREPARE_ABORT,
    # KIP-890: a producer that does not know whether its transaction began aborts it to be sure.
    (_S.EMPTY, _C.ABORT): _S.PREPARE_ABORT,
    (_S.COMPLETE_COMMIT, _C.ABORT): _S.PREPARE_ABORT,
    (_S.COMPLETE_ABORT, _C.ABORT): _S.PREPARE_ABORT,
    (_S.ONGOING, _C.FENCE): _S.PREPARE_ABORT,
    (_S.PREPARE_COMMIT, _C.COMPLETE): _S.COMPLETE_COMMIT,
    (_S.PREPARE_ABORT, _C.COMPLETE): _S.COMPLETE_ABORT,
    (_S.EMPTY, _C.EXPIRE): _S.DEAD,
    (_S.COMPLETE_COMMIT, _C.EXPIRE): _S.DEAD,
    (_S.COMPLETE_ABORT, _C.EXPIRE): _S.DEAD,
}


class TransactionVerdict(Enum):
    PREPARE = "write the decision down, then the markers"
    ALREADY = "this very request was carried out before: answer as then"
    BUSY = "the last end is still in motion: CONCURRENT_TRANSACTIONS"


END_V1: dict[tuple[TransactionState, TransactionCause], TransactionVerdict] = {
    (_S.ONGOING, _C.COMMIT): TransactionVerdict.PREPARE,
    (_S.ONGOING, _C.ABORT): TransactionVerdict.PREPARE,
    (_S.PREPARE_COMMIT, _C.COMMIT): TransactionVerdict.BUSY,
    (_S.PREPARE_COMMIT, _C.ABORT): TransactionVerdict.BUSY,
    (_S.PREPARE_ABORT, _C.COMMIT): TransactionVerdict.BUSY,
    (_S.PREPARE_ABORT, _C.ABORT): TransactionVerdict.BUSY,
    (_S.COMPLETE_COMMIT, _C.COMMIT): TransactionVerdict.ALREADY,
    (_S.COMPLETE_ABORT, _C.ABORT): TransactionVerdict.ALREADY,
}
"""EndTxn before v5. The epoch does not move, so the same request in a complete state is taken for a retry."""

END_V2: dict[tuple[TransactionState, TransactionCause, bool], TransactionVerdict] = {
    (_S.ONGOING, _C.COMMIT, False): TransactionVerdict.PREPARE,
    (_S.ONGOING, _C.ABORT, False): TransactionVerdict.PREPARE,
    (_S.EMPTY, _C.ABORT, False): TransactionVerdict.PREPARE,
    (_S.COMPLETE_COMMIT, _C.ABORT, False): TransactionVerdict.PREPARE,
    (_S.COMPLETE_ABORT, _C.ABORT, False): TransactionVerdict.PREPARE,
    (_S.COMPLETE_COMMIT, _C.COMMIT, True): TransactionVerdict.ALREADY,
    (_S.COMPLETE_ABORT, _C.ABORT, True): TransactionVerdict.ALREADY,
}
"""EndTxn v5 (KIP-890). Every end moves the epoch, so a retry (True) shows by the epoch before the present one."""
