"""The coordinators' journals: how they are read at start, and why they stay about as small as what they hold.

Theory of operation. A start reads every batch of a journal and checks it. A partition with a damaged batch is left out
as a whole, because nobody knows what the records behind the damage said: those who ask for anything in it are told so
(`require`), everybody else is served.

`__consumer_offsets` and `__transaction_state` are compacted, `__share_group_state` is pruned. By
segment size alone they would grow by 100 MB before that happens, and a start reads all of it. So every append is
counted, and whenever LOOK_EVERY_BYTES have come together the journals are looked at. When the bytes appended since
the last compaction exceed those that it left, by more than SLACK_BYTES over all partitions of a journal, the logs that
hold most of them are rolled, synced and compacted on the worker's thread: the cost is in proportion to what was
written. A clean stop does the same with a smaller slack.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from headrace.broker.topics import CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE
from headrace.log.background import Work
from headrace.wire.batches import is_intact, read_header
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.ids import partition_for
from headrace.wire.records import Record, read_records

if TYPE_CHECKING:
    from headrace.broker.core import BrokerCore
    from headrace.broker.topics import Partition
    from headrace.log.partition_log import PartitionLog

logger = logging.getLogger("headrace.broker")

HELD = {
    CONSUMER_OFFSETS: "The groups",
    TRANSACTION_STATE: "The transactional ids",
    SHARE_GROUP_STATE: "The share-partitions",
}
COMPACTED = (CONSUMER_OFFSETS, TRANSACTION_STATE)
SLACK_BYTES = 2 * 1024 * 1024
"""Of one journal, over all its partitions. Reading it takes about 0.2 s."""
STOP_SLACK_BYTES = 256 * 1024
LOOK_EVERY_BYTES = SLACK_BYTES // 4
ROLLS_MAX = 16
"""In one turn of the loop; each writes a few small files."""


def current_records(
    batches: Iterable[bytes], is_replaceable: Callable[[bytes], bool] = lambda key: True
) -> list[Record]:
    """Without those whose value the next record of the same key replaces: most are never decoded.

    `is_replaceable` says of which keys a value depends on nothing but itself.
    """
    kept: list[Record] = []
    replaced: set[bytes] = set()
    for record in reversed([record for batch in batches for record in read_records(batch)]):
        key = record.key
        if key is not None and is_replaceable(key):
            if record.value is None:
                replaced.discard(key)
            elif key in replaced:
                continue
            else:
                replaced.add(key)
        kept.append(record)
    kept.reverse()
    return kept


class Journals:
    def __init__(self, core: "BrokerCore") -> None:
        self._core = core
        self._unsound: dict[tuple[str, int], str] = {}
        """What is wrong with a journal's partition, and the cure."""
        self._unseen = LOOK_EVERY_BYTES  # so that the first append after a start looks, too
        self._running = 0

    def read(self, name: str) -> Iterator[tuple[int, list[bytes]]]:
        """A journal's partitions with all their batches; none for a damaged one."""
        topic = self._core.topics.get(name)
        for partition in topic.partitions if topic is not None else ():
            batches = self._sound_batches(partition)
            if batches:
                yield partition.index, batches

    def _sound_batches(self, partition: "Partition") -> list[bytes]:
        log = partition.log
        batches: list[bytes] = []
        offset = log.start_offset
        try:
            for batch in log.reader.batches():
                header = read_header(batch)
                if not is_intact(batch, 0, header):
                    log.refuse_from(offset, "a record batch with a wrong checksum")
                    break
                # Pruning may have moved the start into the first batch.
                begins = header.base_offset if batches else max(offset, header.base_offset)
                if not offset <= begins < header.next_offset <= log.end_offset:
                    log.refuse_from(offset, f"a record batch of offset {header.base_offset}")
                    break
                batches.append(batch)
                offset = header.next_offset
                self._core.progress.note(f"reading {log.name}", offset - log.start_offset, "records")
        except KafkaError as error:
            if log.damage is None:
                log.refuse_from(offset, error.message or error.code.name)
        if log.damage is None:
            return batches
        damage = log.damage
        self._unsound[partition.topic.name, partition.index] = (
            f"{log.name} is damaged at offset {damage.offset} ({damage.path}, byte {damage.position}: "
            f"{damage.reason}). {HELD[partition.topic.name]} in it are not served. "
            f"Stop the broker and run `headrace log repair {self._core.logs.disk.name}`."
        )
        logger.error("%s", self._unsound[partition.topic.name, partition.index])
        return []

    def is_sound(self, name: str, key: str | None = None) -> bool:
        """Of the partition that holds a key; without a key, of the whole journal."""
        if key is None:
            return not self._unsound or all(topic != name for topic, _ in self._unsound)
        return self._refusal(name, key) is None

    def require(self, name: str, key: str) -> None:
        """COORDINATOR_NOT_AVAILABLE, after which clients ask again, if the journal's partition for a key is damaged."""
        refusal = self._refusal(name, key)
        if refusal is not None:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, refusal)

    def _refusal(self, name: str, key: str) -> str | None:
        topic = self._core.topics.get(name) if self._unsound else None
        if topic is None:
            return None
        return self._unsound.get((name, partition_for(key, len(topic.partitions))))

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
        core.logs.abandon_compactions()  # a log whose compaction was under way is compacted here, too
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
            logger.warning("the journals of the coordinators cannot be compacted now: %s", error)
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
            for _ in finishing():
                pass

        def finishing() -> Iterator[None]:
            for number, work in enumerate(works):
                if number:
                    yield
                if work.finishing is not None:
                    yield from work.finishing()
                else:
                    work.finish()

        if works:
            self._start(Work("compact journals", run, finish, finishing))

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
