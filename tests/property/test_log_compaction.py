"""Compaction against the rule that it must keep: a reader ends with the same value for each key as without it.

Method: Hypothesis writes records, tombstones and transactions, closes segments, compacts at its own times and
restarts; afterward what committed readers see is compared with all that was ever committed.
"""

from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.log.config import LogConfig
from headrace.log.manager import LogManager
from headrace.log.memory_disk import MemoryDisk
from headrace.log.partition_log import PartitionLog
from tests.unit.log.logs import NOW, TOPIC_ID, batch, records_of

CONFIG = LogConfig(
    segment_bytes=500,
    index_interval_bytes=60,
    cleanup_policy=frozenset({"compact"}),
    min_cleanable_dirty_ratio=0.0,
    delete_retention_ms=1000,
)
KEYS = st.sampled_from(["a", "b", "c", "a key that is longer than a digest"])
PAIRS = st.lists(st.tuples(KEYS, st.sampled_from(["v", "w" * 20, None])), min_size=1, max_size=4)


@dataclass(frozen=True)
class Put:
    pairs: list[tuple[str, str | None]]
    compression: int = 0


@dataclass(frozen=True)
class Transaction:
    producer_id: int
    pairs: list[tuple[str, str | None]]
    commit: bool


@dataclass(frozen=True)
class Compact:
    wait_ms: int


CLOSE, RESTART, DIE, LOSE_SNAPSHOTS = "close a segment", "restart", "die", "lose the snapshots and die"
STEPS = st.lists(
    st.builds(Put, PAIRS, st.sampled_from([0, 1]))
    | st.builds(Transaction, st.integers(1, 2), PAIRS, st.booleans())
    | st.builds(Compact, st.sampled_from([0, 600, 2000]))
    | st.sampled_from([CLOSE, RESTART, DIE, LOSE_SNAPSHOTS]),
    max_size=30,
)


class Run:
    def __init__(self) -> None:
        self.disk = MemoryDisk(is_simulated=True)
        self.now_ms = NOW
        self.committed: dict[int, tuple[str, str | None]] = {}
        self.sequences: dict[int, int] = {}
        self.last_batch: dict[int, bytes] = {}
        self.open()

    def open(self) -> None:
        self.manager = LogManager(self.disk, now_ms=self.now_ms)
        self.log: PartitionLog = self.manager.open_log("orders", 0, CONFIG, TOPIC_ID)

    def step(self, step: object) -> None:
        match step:
            case Put(pairs, compression):
                self.write(pairs, is_committed=True, compression=compression)
            case Transaction(producer_id, pairs, commit):
                self.transact(producer_id, pairs, commit)
            case Compact(wait_ms):
                self.now_ms += wait_ms
                self.manager.run_background_work(self.now_ms)
                self.manager.run_background_work(self.now_ms)
            case "close a segment":
                if self.log.segments:
                    self.log.roll(self.now_ms)
            case _:
                self.restart(step)

    def restart(self, how: object) -> None:
        if how == RESTART:
            self.manager.close()
        if how == LOSE_SNAPSHOTS:
            for name in self.disk.list("orders-0"):
                if name.endswith(".snapshot"):
                    self.disk.remove(f"orders-0/{name}")
        self.disk.restart()
        self.open()

    def write(self, pairs: list[tuple[str, str | None]], *, is_committed: bool, **more: object) -> bytes:
        keys, values = zip(*pairs, strict=True)
        data = batch(*values, keys=keys, at=self.now_ms, **more)  # type: ignore[arg-type]
        offset = self.log.append(data, now_ms=self.now_ms).base_offset
        if is_committed:
            self.committed |= {offset + index: pair for index, pair in enumerate(pairs)}
        return data

    def transact(self, producer_id: int, pairs: list[tuple[str, str | None]], commit: bool) -> None:
        sequence = self.sequences.get(producer_id, 0)
        self.last_batch[producer_id] = self.write(
            pairs, is_committed=commit, producer=(producer_id, 0, sequence), transactional=True
        )
        self.sequences[producer_id] = sequence + len(pairs)
        self.log.append_marker(
            producer_id=producer_id,
            producer_epoch=0,
            commit=commit,
            coordinator_epoch=0,
            now_ms=self.now_ms,
        )

    def found(self, offset: int = 0) -> dict[int, tuple[str, str | None]]:
        return {
            record.offset: (
                (record.key or b"").decode(),
                None if record.value is None else record.value.decode(),
            )
            for record in records_of(self.log, offset, committed=True, max_bytes=200)
        }


def final(records: dict[int, tuple[str, str | None]]) -> dict[str, tuple[int, str]]:
    """The live keys, with the offset of their last record."""
    last = {key: (offset, value) for offset, (key, value) in sorted(records.items())}
    return {key: (offset, value) for key, (offset, value) in last.items() if value is not None}


@settings(max_examples=150)
@given(STEPS, st.integers(0, 60))
def test_a_reader_ends_with_the_same_values_as_without_compaction(steps: list[object], start: int) -> None:
    run = Run()
    for step in steps:
        run.step(step)
        found = run.found()
        assert found.items() <= run.committed.items()
        assert final(found) == final(run.committed)
    assert run.log.stable_offset == run.log.end_offset
    later = {key: at for key, at in final(run.committed).items() if at[0] >= start}
    if start <= run.log.end_offset:
        assert later.items() <= final(run.found(start)).items()


@settings(max_examples=60)
@given(STEPS)
def test_a_producers_last_batch_is_known_again_whatever_was_compacted(steps: list[object]) -> None:
    run = Run()
    for step in [*steps, CLOSE, Compact(0), Compact(5000), LOSE_SNAPSHOTS]:
        run.step(step)
    for data in run.last_batch.values():
        assert run.log.append(data, now_ms=run.now_ms).is_duplicate
