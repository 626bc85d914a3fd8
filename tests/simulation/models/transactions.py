"""The promises about transactions: all or nothing, as the producer decided, and for good once it was told.

What a transaction's records look like to readers is checked with the logs (`models/logs.py`); here is what may
become of a transaction. Its outcome is unknown while nobody has asked for one; a producer that was told
"committed" has all of its records, and its offsets; one that never asked to commit has none.
"""

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from headrace.broker.topics import TRANSACTION_STATE
from tests.simulation.model import End, Model
from tests.simulation.models.logs import Entry, LogModel, Logs
from tests.simulation.violation import Violation

if TYPE_CHECKING:
    from tests.simulation.world import World


TIMEOUT_MS_MAX = 60_000
"""Of the transactions of all actors."""
ROUND_MS = 5_000


class Wish(Enum):
    NONE = "nothing asked"
    COMMIT = "commit asked"
    ABORT = "abort asked"
    COMMITTED = "told committed"
    ABORTED = "told aborted"


@dataclass(slots=True, eq=False)
class TransactionModel:
    transactional_id: str
    wish: Wish = Wish.NONE
    outcome: bool | None = None
    """As its first marker says."""
    acknowledged: list[bytes] = field(default_factory=list)
    """Values that the producer was told are appended."""
    is_void: bool = False
    """Power was lost in it where nothing is synced: what it did before has come to any end, apart from the rest."""


class Transactions(Model):
    def __init__(self, world: "World") -> None:
        super().__init__(world)
        self.by_value: dict[bytes, TransactionModel] = {}
        self.committed: list[TransactionModel] = []
        """Those whose producers were told."""
        self.is_damaged = False
        """A bit of the coordinator's journal has flipped: it may have forgotten anything."""

    @property
    def logs(self) -> Logs:
        return self.world.model(Logs)

    def sent(self, transaction: TransactionModel, values: list[bytes]) -> None:
        for value in values:
            self.by_value[value] = transaction

    def told(self, transaction: TransactionModel, wish: Wish) -> None:
        """A producer was told how its transaction ended."""
        transaction.wish = wish
        if self.is_damaged:
            return
        expected = wish is Wish.COMMITTED
        if (
            transaction.outcome is not None
            and transaction.outcome is not expected
            and not transaction.is_void
        ):
            raise Violation(
                "told the wrong end", f"{transaction.transactional_id}: {wish.value}, markers say else"
            )
        if expected:
            self.committed.append(transaction)

    def decided(self, model: LogModel, entries: list[Entry], commit: bool) -> None:
        """A marker has ended the transaction that wrote these records."""
        for entry in entries if not self.is_damaged else ():
            transaction = None if entry.value is None else self.by_value.get(entry.value)
            if transaction is None or transaction.is_void:
                continue
            if transaction.outcome is not None and transaction.outcome is not commit:
                raise Violation("half a transaction", f"{transaction} in {model.name}, now commit={commit}")
            transaction.outcome = commit
            if commit and transaction.wish in (Wish.NONE, Wish.ABORT, Wish.ABORTED):
                raise Violation("committed unasked", f"{transaction} in {model.name}")
            if not commit and transaction.wish is Wish.COMMITTED:
                raise Violation("committed transaction aborted", f"{transaction} in {model.name}")

    def damage(self, topic: str, partition: int) -> None:
        self.is_damaged = self.is_damaged or topic == TRANSACTION_STATE

    def before_end(self, how: End) -> None:
        if how is End.POWER and not self.world.scenario.is_fsync:
            self.committed.clear()
            for transaction in self.by_value.values():
                transaction.is_void = True
                transaction.acknowledged.clear()

    def after_start(self, how: End) -> None:
        self._check_committed(is_final=False)

    def at_rest(self) -> None:
        self._check_committed(is_final=True)
        self.committed = self.committed[-20:]

    def at_end(self) -> None:
        """Transactions that their producers have left alone end: nobody waits for them for ever."""
        world = self.world
        for _ in range(TIMEOUT_MS_MAX // ROUND_MS + 2):
            world.advance(ROUND_MS)
            world.settle()
            if world.failure is not None:
                return
        for topic in self.core.topics if not self.is_damaged else ():
            for partition in topic.partitions if not topic.is_internal else ():
                model = self.logs.of(partition.log)
                still_open = partition.log.producer_states.open_transactions
                if still_open and not (model is not None and model.is_damaged):
                    raise Violation("transaction never ends", f"{partition.log.name}: {still_open}")

    def _check_committed(self, *, is_final: bool) -> None:
        """All that was acknowledged in a committed transaction is there, and readers are shown it."""
        logs = self.logs
        for transaction in self.committed if not self.is_damaged else ():
            for value in transaction.acknowledged:
                for model, offset in logs.places.get(value, ()):
                    is_there = logs.topics.get(model.topic) == model.topic_id and offset >= model.start
                    entry = model.entries.get(offset)
                    if not is_there or entry is None or model.is_damaged:
                        continue
                    if not entry.is_transactional:
                        continue  # a dead letter: a copy that belongs to no transaction
                    if entry.is_committed is False or (is_final and entry.is_committed is None):
                        raise Violation("committed transaction not shown", f"{model.name}: {entry}")
