"""Pruning of `__share_group_state`: what no share-partition's snapshot needs is deleted.

Theory of operation. Of a state partition everything before the oldest snapshot in use can go. Share-partitions that
are seldom written hold an old snapshot in use, so those whose snapshot lies in the older half of the partition get a
new one first, a few in each turn of the loop. What replaces the deleted records is synced, and the new start offsets
are written down, on a worker's thread; then the logs' starts move. A crash at any point leaves either the old start,
or the new one with all that it needs.

It happens at an interval (Kafka's `share.coordinator.state.topic.prune.interval.ms`), when many records have come
together, because a start reads them all, and before a clean stop.
"""

import logging
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from headrace.log.background import Work
from headrace.log.times import offset_for_time
from headrace.wire.error_groups import TOO_LARGE
from headrace.wire.errors import KafkaError
from headrace.wire.share_state import STATE_TOPIC, ShareKey

if TYPE_CHECKING:
    from headrace.broker.core import BrokerCore
    from headrace.broker.share.state_store import ShareStateStore
    from headrace.log.partition_log import PartitionLog

logger = logging.getLogger("headrace.share")

SLACK_RECORDS = 10_000
"""Over all partitions, appended since the last pruning. Reading them takes about 0.1 s."""
STOP_SLACK_RECORDS = 1_000
ROLL_BYTES = 1024 * 1024
HISTORY_RECORDS_MAX = 10_000
"""Kept although no snapshot needs them, over all partitions that are pruned at a time."""
RENEWALS_MAX = 100
"""In one turn of the loop."""


class Pruning:
    def __init__(self, core: "BrokerCore", store: "ShareStateStore") -> None:
        self._core = core
        self._store = store
        self._after: dict[int, tuple[int, int]] = {}
        """By partition: how many records it held after the last pruning, and where it ended."""
        self._with_history: set[int] = set()
        """Partitions that hold more than their snapshots need. It grows old although nobody writes there."""
        self._is_running = False
        self._arm()

    def _arm(self) -> None:
        interval_ms = self._core.settings.get_int("share.coordinator.state.topic.prune.interval.ms")
        self._core.timers.at(self._core.clock.monotonic_ms() + interval_ms, self._round)

    def _round(self) -> None:
        self._arm()
        if self._core.failure is None:
            self.prune()

    def prune(self) -> None:
        """Every partition that was written since it was last pruned, or that still keeps history."""
        growth = self._growth().items()
        self._begin([index for index, (written, _) in growth if written or index in self._with_history])

    def prune_if_large(self) -> None:
        self._begin(self._overgrown(SLACK_RECORDS))

    def prune_before_stop(self) -> None:
        """On this thread: the broker answers nobody any more. OSError: the disk cannot be relied on."""
        partitions = self._overgrown(STOP_SLACK_RECORDS)
        if partitions:
            for _ in self._renewals(partitions):
                pass
            work = self._deletion(partitions)
            work.run()
            work.finish()

    def _growth(self) -> dict[int, tuple[int, int]]:
        """By partition: records appended since the last pruning, and records left by it."""
        topic = self._core.topics.get(STATE_TOPIC)
        growth = {}
        for partition in topic.partitions if topic is not None else ():
            log = partition.log
            kept, end_offset = self._after.get(partition.index, (0, log.start_offset))
            if log.damage is None:
                growth[partition.index] = (log.end_offset - end_offset, kept)
        return growth

    def _overgrown(self, slack: int) -> list[int]:
        """The partitions to prune now: what was appended is more than what was there before, and than the slack."""
        gains = {index: written - kept for index, (written, kept) in self._growth().items()}
        if sum(gains.values()) <= slack:
            return []
        return sorted((index for index, gain in gains.items() if gain > 0), key=lambda index: -gains[index])

    def _begin(self, partitions: Sequence[int]) -> None:
        if not self._is_running and partitions:
            self._is_running = True
            self._go_on(self._renewals(partitions), partitions)

    def _go_on(self, renewals: Iterator[None], partitions: Sequence[int]) -> None:
        for _ in renewals:
            soon_ms = self._core.clock.monotonic_ms() + 1
            self._core.timers.at(soon_ms, lambda: self._go_on(renewals, partitions))
            return
        self._core.housekeeping.start(self._deletion(partitions), self._end)

    def _end(self) -> None:
        self._is_running = False

    def _renewals(self, partitions: Sequence[int]) -> Iterator[None]:
        """Gives new snapshots to share-partitions whose old one is in the way; yields after so many."""
        count = 0
        for index in partitions:
            try:
                for key in self._in_the_way(index):
                    self._renew(key)
                    count += 1
                    if count % RENEWALS_MAX == 0:
                        yield
            except KafkaError as error:
                logger.warning("%s is not pruned: %s", self._log(index).name, error)

    def _in_the_way(self, index: int) -> list[ShareKey]:
        """Of the older half; none if renewing them would write about as much as could be deleted."""
        log = self._log(index)
        middle = (log.start_offset + log.end_offset) / 2
        old = [key for key, state in self._store.of_partition(index) if state.snapshot_at < middle]
        return old if 2 * len(old) < log.end_offset - log.start_offset else []

    def _renew(self, key: ShareKey) -> None:
        try:
            self._store.renew(key)
        except KafkaError as error:
            # A window of very many ranges does not fit in one snapshot; in the updates that led to it, it does.
            if error.code not in TOO_LARGE:
                raise

    def _deletion(self, partitions: Sequence[int]) -> Work:
        """Of all that no snapshot needs. What is deleted must not go before what replaces it is safe."""
        core = self._core
        needed: dict[int, int] = {}
        for index in partitions:
            log = self._log(index)
            at = [state.snapshot_at for _, state in self._store.of_partition(index)]
            oldest = min(at, default=log.end_offset)
            offset = min(oldest, self._history_start(log, len(partitions)))
            (self._with_history.add if offset < oldest else self._with_history.discard)(index)
            if offset > log.start_offset:
                needed[index] = offset
                self._roll(log)
        logs = [self._log(index) for index in needed]
        is_saved = False

        def run() -> None:
            nonlocal is_saved
            if not needed:
                return
            core.logs.sync(logs)
            try:
                core.logs.save_start_offsets(dict(zip(logs, needed.values(), strict=True)))
            except KafkaError as error:
                logger.warning("%s is not pruned: %s", STATE_TOPIC, error)
            else:
                is_saved = True

        def finish() -> None:
            for index, log in zip(needed, logs, strict=True):
                if is_saved and not log.is_deleted and needed[index] > log.start_offset:
                    log.move_start(needed[index])
            for index in partitions if is_saved or not needed else ():
                log = self._log(index)
                self._after[index] = (log.end_offset - log.start_offset, log.end_offset)

        return Work("prune share state", run, finish)

    def _history_start(self, log: "PartitionLog", partitions: int) -> int:
        """Where the history begins that is kept for those who look back."""
        history_ms = self._core.settings.get_int("headrace.share.state.history.ms")
        if not history_ms:
            return log.end_offset
        try:
            found = offset_for_time(log, self._core.clock.wall_ms() - history_ms)
        except KafkaError as error:  # nobody else can read it either
            logger.warning("the history in %s is not kept: %s", log.name, error)
            return log.end_offset
        bounded = log.end_offset - HISTORY_RECORDS_MAX // max(1, partitions)
        return log.end_offset if found is None else max(found[1], bounded)

    def _roll(self, log: "PartitionLog") -> None:
        """A large segment goes as a whole, and only what follows it is scanned after a crash."""
        if log.segments[-1].size >= ROLL_BYTES:
            try:
                log.roll(self._core.clock.wall_ms())
            except OSError as error:
                logger.warning("%s: no new segment can be started now: %s", log.name, error)

    def _log(self, index: int) -> "PartitionLog":
        return self._core.topics.internal(STATE_TOPIC).partitions[index].log
