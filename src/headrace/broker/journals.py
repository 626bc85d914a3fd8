"""The coordinators' journals stay about as small as what they hold, so that a start is bounded by live state.

Theory of operation. `__consumer_offsets` and `__transaction_state` are compacted, `__share_group_state` is pruned. By
segment size alone they would grow by 100 MB before that happens, and a start reads all of it. So every append is
counted, and whenever LOOK_EVERY_BYTES have come together the journals are looked at. When the bytes appended since
the last compaction exceed those that it left, by more than SLACK_BYTES over all partitions of a journal, the logs that
hold most of them are rolled, synced and compacted on the worker's thread: the cost is in proportion to what was
written. A clean stop does the same with a smaller slack.
"""

import logging
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from headrace.broker.topics import CONSUMER_OFFSETS, TRANSACTION_STATE
from headrace.log.background import Work

if TYPE_CHECKING:
    from headrace.broker.core import BrokerCore
    from headrace.log.partition_log import PartitionLog

logger = logging.getLogger("headrace.broker")

COMPACTED = (CONSUMER_OFFSETS, TRANSACTION_STATE)
SLACK_BYTES = 2 * 1024 * 1024
"""Of one journal, over all its partitions. Reading it takes about 0.2 s."""
STOP_SLACK_BYTES = 256 * 1024
LOOK_EVERY_BYTES = SLACK_BYTES // 4
ROLLS_MAX = 16
"""In one turn of the loop; each writes a few small files."""


class Journals:
    def __init__(self, core: "BrokerCore") -> None:
        self._core = core
        self._unseen = LOOK_EVERY_BYTES  # so that the first append after a start looks, too
        self._running = 0

    def note_append(self, size: int) -> None:
        """A coordinator has appended to its journal."""
        self._unseen += size
        if self._unseen >= LOOK_EVERY_BYTES:
            self._unseen = 0
            self._core.timers.at(self._core.clock.monotonic_ms(), self._look)

    def _look(self) -> None:
        core = self._core
        if core.failure is not None:
            return
        core.share_state.pruning.prune_if_large()
        if not self._running:
            self._compact(self._overgrown(SLACK_BYTES)[:ROLLS_MAX])

    def compact_before_stop(self) -> None:
        """On this thread: the broker answers nobody any more. OSError: the disk cannot be relied on."""
        core = self._core
        core.share_state.pruning.prune_before_stop()
        logs = self._overgrown(STOP_SLACK_BYTES)
        self._roll(logs)
        core.logs.sync(logs)
        for log in logs:
            work = core.logs.compaction_of(log, core.expiry_clock.wall_ms())
            if work is not None:
                work.run()
                work.finish()

    def _compact(self, logs: Sequence["PartitionLog"]) -> None:
        if not logs:
            return
        core = self._core
        try:
            self._roll(logs)
        except OSError as error:
            logger.warning("the journals of the coordinators are not compacted for now: %s", error)
            return
        self._start(Work("sync journals", partial(core.logs.sync, logs), partial(self._rewrite, logs)))

    def _start(self, work: Work) -> None:
        def ended() -> None:
            self._running -= 1

        self._running += 1
        self._core.housekeeping.start(work, ended)

    def _roll(self, logs: Sequence["PartitionLog"]) -> None:
        """Closes what is to be compacted. Where an open transaction holds compaction up, segments double."""
        for log in logs:
            _, dirty = self._core.logs.clean_and_dirty_bytes(log)
            if log.segments[-1].size * 2 >= dirty:
                log.roll(self._core.clock.wall_ms())

    def _rewrite(self, logs: Sequence["PartitionLog"]) -> None:
        """On the loop, once they are synced: only what is safe on disk may be rewritten."""
        core = self._core
        planned = (core.logs.compaction_of(log, core.expiry_clock.wall_ms()) for log in logs)
        works = [work for work in planned if work is not None]

        def run() -> None:
            for work in works:
                work.run()

        def finish() -> None:
            for work in works:
                work.finish()

        if works:
            self._start(Work("compact journals", run, finish))

    def _overgrown(self, slack: int) -> list["PartitionLog"]:
        """The logs to compact now, of the journals where that is due; those with most to gain first."""
        found = [one for name in COMPACTED for one in self._overgrown_of(name, slack)]
        return [log for _, log in sorted(found, key=lambda one: one[0], reverse=True)]

    def _overgrown_of(self, name: str, slack: int) -> list[tuple[int, "PartitionLog"]]:
        topic = self._core.topics.get(name)
        sizes = []
        for log in [partition.log for partition in topic.partitions] if topic is not None else ():
            if log.segments and log.damage is None and "compact" in log.config.cleanup_policy:
                clean, dirty = self._core.logs.clean_and_dirty_bytes(log)
                sizes.append((dirty - clean, log))
        excess = sum(gain for gain, _ in sizes)
        if excess <= slack:
            return []
        chosen = []
        for gain, log in sorted(sizes, key=lambda one: one[0], reverse=True):
            if excess <= slack // 4 or gain <= 0:
                break
            chosen.append((gain, log))
            excess -= gain
        return chosen
