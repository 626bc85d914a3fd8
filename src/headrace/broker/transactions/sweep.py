"""The sweep: transactional ids that were not used for `transactional.id.expiration.ms` are forgotten.

Some in each turn of the loop. One that is used again between two turns stays.
"""

import logging
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from headrace.broker.later import Later
from headrace.broker.slices import Steps
from headrace.broker.transactions import journal, machine
from headrace.broker.transactions.machine import TransactionMetadata
from headrace.wire.errors import KafkaError

if TYPE_CHECKING:
    from headrace.broker.core import BrokerCore

logger = logging.getLogger("headrace.transactions")

TOMBSTONES_MAX = 200
"""In one batch of the journal, and in one turn of the loop."""
Append = Callable[[int, Sequence[tuple[bytes, bytes | None]]], Later[None]]
"""To a partition of the journal."""


class Sweep:
    def __init__(
        self,
        core: "BrokerCore",
        transactions: dict[str, TransactionMetadata],
        partition_of: Callable[[str], int],
        append: Append,
    ) -> None:
        self._core = core
        self._transactions = transactions
        self._partition_of = partition_of
        self._append = append

    def arm(self) -> None:
        interval_ms = self._core.settings.get_int(
            "transaction.remove.expired.transaction.cleanup.interval.ms"
        )
        self._core.timers.at(self._core.clock.monotonic_ms() + interval_ms, self._run)

    def _run(self) -> None:
        self.arm()
        self._core.slices.run(self._steps())

    def _steps(self) -> Steps:
        expired: dict[int, list[str]] = defaultdict(list)
        for transactional_id, transaction in self._transactions.items():
            if self._is_expired(transaction):
                expired[self._partition_of(transactional_id)].append(transactional_id)
        spent = 0
        try:
            for partition, ids in expired.items():
                for first in range(0, len(ids), TOMBSTONES_MAX):
                    if spent >= TOMBSTONES_MAX:
                        yield
                        spent = 0
                    found = [self._transactions.get(one) for one in ids[first : first + TOMBSTONES_MAX]]
                    self._bury(partition, [one for one in found if one is not None and self._is_expired(one)])
                    spent += len(found)
        except KafkaError as error:
            logger.error("expired transactional IDs cannot be removed until the next sweep: %s", error)

    def _is_expired(self, transaction: TransactionMetadata) -> bool:
        return machine.is_expired(
            transaction,
            expiration_ms=self._core.settings.get_int("transactional.id.expiration.ms"),
            now_ms=self._core.expiry_clock.wall_ms(),
        )

    def _bury(self, partition: int, expired: Sequence[TransactionMetadata]) -> None:
        if not expired:
            return
        now_ms = self._core.expiry_clock.wall_ms()
        dead = [machine.expire(transaction, now_ms=now_ms) for transaction in expired]
        self._append(partition, [(journal.encode_key(each.transactional_id), None) for each in dead])
        for each in dead:
            del self._transactions[each.transactional_id]
        logger.info("removed %d expired transactional IDs", len(dead))
