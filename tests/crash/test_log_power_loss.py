"""Power fails at every operation of a long scenario, in turn.

Goal: whatever was synced is there after the power comes back: once, in order, with its producers; and the log
opens without an error. Method: the scenario runs on a simulated disk that fails at operation 1, 2, 3 ... until it
completes. After each failure the disk is power-cycled: everything unsynced is lost, or (by seed) survives in part.
The same for kill -9, where everything written survives and nothing may be lost at all.
"""

import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest

from headrace.log.config import LogConfig
from headrace.log.disk import PowerLost
from headrace.log.manager import LogManager
from headrace.log.memory_disk import MemoryDisk
from headrace.log.partition_log import PartitionLog
from headrace.wire.batches import read_header
from headrace.wire.records import read_records
from tests.unit.log.logs import DAY, NOW, TOPIC_ID, batch, delete_records

PLAIN = LogConfig(
    segment_bytes=700,
    retention_ms=DAY,
    file_delete_delay_ms=0,
    index_interval_bytes=100,
    producer_expiration_ms=30 * DAY,
)
KEPT = replace(PLAIN, retention_ms=-1)
COMPACTED = LogConfig(
    segment_bytes=700,
    cleanup_policy=frozenset({"compact"}),
    min_cleanable_dirty_ratio=0.0,
    delete_retention_ms=1000,
    producer_expiration_ms=30 * DAY,
    index_interval_bytes=100,
)


@dataclass
class Promise:
    """What a log may not forget: the records that were synced and not deleted."""

    values: dict[int, str | None] = field(default_factory=dict)
    """By offset; those of open or aborted transactions are not visible to committed readers."""
    written: dict[int, str | None] = field(default_factory=dict)
    start_offset: int = 0
    start_limit: int = 0
    """Where it may start at the latest."""
    end_offset: int = 0
    sequences: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Producer id to (epoch, last sequence), as synced."""
    written_sequences: dict[int, tuple[int, int]] = field(default_factory=dict)
    aborted: list[tuple[int, int]] = field(default_factory=list)
    """Producer id and first offset of transactions whose end was synced."""
    stable_offset: int = 0


class Scenario:
    def __init__(self, disk: MemoryDisk) -> None:
        self.disk = disk
        self.promises = {"plain": Promise(), "compacted": Promise(), "doomed": Promise()}
        self.is_deleted = False
        self.now_ms = NOW

    def run(self) -> None:
        self._open()
        self._produce()
        self._transactions()
        self._delete_records()
        self._compact()
        self._retire()
        self._delete_topic()
        self._close()
        self._open()
        self._append(self.plain, "after a clean restart", producer=(7, 0, 29))
        self._sync(self.plain)
        self._append(self.plain, "the last one", producer=(7, 0, 30))
        self._close()

    def _open(self) -> None:
        self.manager = LogManager(self.disk, now_ms=self.now_ms)
        self.plain = self.manager.open_log("plain", 0, PLAIN, TOPIC_ID)
        self.compacted = self.manager.open_log("compacted", 0, COMPACTED, bytes(16))
        self.doomed = self.manager.open_log("doomed", 0, KEPT, b"d" * 16)

    def _append(self, log: PartitionLog, *values: str, keys: list[str] | None = None, **more: object) -> None:
        promise = self.promises[log.topic]
        appended = log.append(
            batch(*values, keys=keys, at=self.now_ms, **more),  # type: ignore[arg-type]
            now_ms=self.now_ms,
        )
        for index, value in enumerate(values):
            promise.written[appended.base_offset + index] = value
        producer = more.get("producer")
        if isinstance(producer, tuple):
            promise.written_sequences[producer[0]] = (producer[1], producer[2] + len(values) - 1)

    def _sync(self, *logs: PartitionLog) -> None:
        self.manager.sync(logs)
        for log in logs:
            promise = self.promises[log.topic]
            promise.values = dict(promise.written)
            promise.sequences = dict(promise.written_sequences)
            promise.end_offset = log.end_offset
            promise.stable_offset = log.stable_offset
            promise.aborted = [(entry.producer_id, entry.first_offset) for entry in log.transactions.aborted]

    def _produce(self) -> None:
        for number in range(14):
            self._append(self.plain, f"p{number}", "x" * 30, producer=(7, 0, 2 * number))
            self._append(self.doomed, f"d{number}")
            if number % 3 == 2:
                self._sync(self.plain)
        self._sync(self.doomed, self.plain)

    def _transactions(self) -> None:
        for number, commit in enumerate([True, False, True, False]):
            self._append(self.plain, f"t{number}", producer=(8, number, 0), transactional=True)
            self._sync(self.plain)
            self.plain.append_marker(
                producer_id=8, producer_epoch=number, commit=commit, coordinator_epoch=1, now_ms=self.now_ms
            )
            self._sync(self.plain)

    def _delete_records(self) -> None:
        self.promises["plain"].start_limit = 9
        delete_records(self.plain, 9)
        self.promises["plain"].start_offset = 9
        self.manager.run_background_work(self.now_ms)

    def _compact(self) -> None:
        for number in range(16):
            key = f"k{number % 3}"
            self._append(self.compacted, f"{number}", keys=[key], producer=(9, 0, number))
            if number % 3 == 0:
                self.compacted.roll(self.now_ms)  # small segments, to be compacted into one
        self._sync(self.compacted)
        self.manager.run_background_work(self.now_ms)
        for number in range(16, 24):
            self._append(self.compacted, f"{number}", keys=[f"k{number % 4}"], producer=(9, 0, number))
        self._sync(self.compacted)
        self.manager.run_background_work(self.now_ms)
        self.manager.run_background_work(self.now_ms + 2000)

    def _retire(self) -> None:
        self.now_ms += 3 * DAY
        self.promises["plain"].start_limit = self.plain.end_offset + 1
        self._append(self.plain, "after retention", producer=(7, 0, 28))
        self.manager.run_background_work(self.now_ms)
        self._sync(self.plain)
        self.promises["plain"].start_offset = max(9, self.plain.start_offset)

    def _delete_topic(self) -> None:
        self.is_deleted = True
        self.manager.delete_topic("doomed", now_ms=self.now_ms)
        self.manager.run_background_work(self.now_ms)

    def _close(self) -> None:
        self.manager.close()
        for log in (self.plain, self.compacted):
            promise = self.promises[log.topic]
            promise.values, promise.end_offset = dict(promise.written), log.end_offset
            promise.sequences = dict(promise.written_sequences)


def contents(log: PartitionLog) -> dict[int, str | None]:
    found: dict[int, str | None] = {}
    last = log.start_offset - 1
    for one in log.reader.batches():
        header = read_header(one)
        assert header.last_offset > last
        last = header.last_offset
        if header.is_control or not header.record_count:
            continue
        for record in read_records(one):
            if record.offset >= log.start_offset:
                assert record.offset not in found
                found[record.offset] = None if record.value is None else record.value.decode()
    return found


def check_plain(log: PartitionLog, promise: Promise) -> None:
    assert log.damage is None
    assert promise.start_offset <= log.start_offset <= promise.start_limit
    assert log.end_offset >= promise.end_offset
    found = contents(log)
    assert list(found) == sorted(found)
    for offset, value in promise.values.items():
        if offset >= log.start_offset:
            assert found[offset] == value
    for offset, value in found.items():
        assert promise.written[offset] == value
    assert promise.stable_offset <= log.stable_offset <= log.end_offset
    aborted = [(entry.producer_id, entry.first_offset) for entry in log.transactions.aborted]
    assert [entry for entry in promise.aborted if entry[1] >= log.start_offset and entry not in aborted] == []
    check_producers(log, promise)


def check_producers(log: PartitionLog, promise: Promise) -> None:
    known = {
        view.producer_id: (view.producer_epoch, view.last_sequence) for view in log.producer_states.views()
    }
    for producer_id, (epoch, sequence) in promise.sequences.items():
        assert known[producer_id] >= (epoch, sequence)
        assert known[producer_id] <= promise.written_sequences[producer_id]


def check_compacted(log: PartitionLog, promise: Promise) -> None:
    assert log.damage is None
    assert log.start_offset == 0
    assert log.end_offset >= promise.end_offset
    found = contents(log)
    for offset, value in found.items():
        assert promise.written[offset] == value
    newest: dict[str, int] = {}
    for offset in promise.values:
        newest[key_of(offset)] = offset
    for key, offset in newest.items():
        later = [other for other in found if other > offset and key_of(other) == key]
        assert offset in found or later, f"the newest record of {key}, at {offset}, is gone"
    check_producers(log, promise)


def key_of(offset: int) -> str:
    return f"k{offset % 3}" if offset < 16 else f"k{offset % 4}"


def check_after(scenario: Scenario, now_ms: int) -> None:
    manager = LogManager(scenario.disk, now_ms=now_ms)
    promises = scenario.promises
    plain = manager.open_log("plain", 0, PLAIN, TOPIC_ID)
    compacted = manager.open_log("compacted", 0, COMPACTED, bytes(16))
    check_plain(plain, promises["plain"])
    check_compacted(compacted, promises["compacted"])
    if not scenario.is_deleted:
        check_plain(manager.open_log("doomed", 0, KEPT, b"d" * 16), promises["doomed"])
    ends = plain.end_offset, compacted.end_offset
    for log in (plain, compacted):
        log.append(batch("still works", keys=["key"], at=now_ms), now_ms=now_ms)
    manager.sync([plain, compacted])
    manager.run_background_work(now_ms)
    manager.close()
    manager = LogManager(scenario.disk, now_ms=now_ms)
    plain = manager.open_log("plain", 0, PLAIN, TOPIC_ID)
    compacted = manager.open_log("compacted", 0, COMPACTED, bytes(16))
    assert (plain.end_offset, compacted.end_offset) == (ends[0] + 1, ends[1] + 1)
    assert contents(plain)[ends[0]] == "still works"
    manager.close()


def run_until_it_completes(
    after_failure: Callable[[Scenario, int], None], *, first: int = 1, step: int = 1
) -> int:
    for fail_at in itertools.count(first, step):
        disk = MemoryDisk(is_simulated=True)
        disk.fail_at(fail_at)
        scenario = Scenario(disk)
        try:
            scenario.run()
        except PowerLost:
            after_failure(scenario, fail_at)
            check_after(scenario, scenario.now_ms)
        else:
            disk.restart()
            check_after(scenario, scenario.now_ms)
            break
    return fail_at


def test_no_synced_record_is_lost_wherever_power_fails() -> None:
    operations = run_until_it_completes(lambda scenario, _: scenario.disk.power_cycle())
    assert operations > 300


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_no_synced_record_is_lost_when_part_of_the_rest_survives(seed: int) -> None:
    """Every operation in one of the seeds."""

    def fail(scenario: Scenario, fail_at: int) -> None:
        scenario.disk.power_cycle(random.Random(fail_at))

    run_until_it_completes(fail, first=seed, step=3)


def open_and_sync(disk: MemoryDisk) -> None:
    manager = LogManager(disk, now_ms=NOW)
    manager.open_log("plain", 0, PLAIN, TOPIC_ID)
    manager.open_log("compacted", 0, COMPACTED, bytes(16))
    manager.open_log("doomed", 0, KEPT, b"d" * 16)
    manager.sync(manager.logs.values())


def test_nothing_at_all_is_lost_when_only_the_process_dies() -> None:
    """Power fails a little later, when the next process has synced what it found."""

    def die(scenario: Scenario, fail_at: int) -> None:
        scenario.disk.restart()
        for topic in ("plain", "doomed"):
            promise = scenario.promises[topic]
            promise.values, promise.sequences = promise.written, promise.written_sequences
        open_and_sync(scenario.disk)
        scenario.disk.power_cycle()

    run_until_it_completes(die)


def test_power_may_fail_again_while_the_log_recovers() -> None:
    def fail_in_recovery_until_it_completes(scenario: Scenario, fail_at: int) -> None:
        disk = scenario.disk
        for again_at in itertools.count(1):
            disk.power_cycle(random.Random(fail_at * 1009 + again_at))
            disk.fail_at(again_at)
            try:
                open_and_sync(disk)
            except PowerLost:
                continue
            disk.power_cycle()
            return

    run_until_it_completes(fail_in_recovery_until_it_completes, step=7)
