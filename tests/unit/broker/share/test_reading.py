"""Reads for share fetches: every read ends, moves on, and together they pass over nothing."""

from typing import Any, cast

import pytest

from headrace.broker.share.reading import BYTES_TO_WALK, Slice, read_slice
from headrace.log.memory_disk import MemoryDisk
from headrace.log.partition_log import PartitionLog
from headrace.log.reading import Read
from headrace.wire.errors import ErrorCode, KafkaError
from tests.unit.broker.share.bench import ACCEPT, Bench, Member
from tests.unit.log.logs import NOW, batch, open_log

COMPACT = {"cleanup_policy": frozenset({"compact"}), "min_cleanable_dirty_ratio": 0.0, "segment_bytes": 400}
EVERYTHING = 1 << 30


class Counted:
    """The log, with a bound on how often it may be read: a loop that does not move on fails, and does not hang."""

    def __init__(self, log: PartitionLog) -> None:
        self.log = log
        self.reader = self
        self.reads = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.log, name)

    def read(self, offset: int, **options: Any) -> Read:
        self.reads += 1
        assert self.reads < 100, f"read {self.reads} times, at last from offset {offset}"
        return self.log.reader.read(offset, **options)


def slice_of(
    log: PartitionLog, offset: int, *, records_max: int, max_bytes: int = EVERYTHING, committed: bool = False
) -> Slice | None:
    counted = cast(PartitionLog, Counted(log))
    return read_slice(counted, offset, records_max=records_max, max_bytes=max_bytes, committed=committed)


def log_with_holes(kept: list[int], end: int) -> PartitionLog:
    """Batches of one record each; compaction has left those at `kept`, and the last of the others."""
    manager, log = open_log(**COMPACT)  # type: ignore[arg-type]
    for offset in range(end):
        key = f"key {offset}" if offset in kept else "hot"
        log.append(batch(f"v{offset}", keys=[key]), now_ms=NOW)
    log.roll(NOW)
    manager.run_background_work(NOW)
    manager.run_background_work(NOW)
    return log


@pytest.mark.parametrize("begin", range(14))
@pytest.mark.parametrize("length", [2, 4, 5, 6, 7, 20])
@pytest.mark.parametrize("max_bytes", [1, 150, EVERYTHING])
@pytest.mark.parametrize("committed", [False, True])
def test_a_hole_at_any_place_ends_a_read_and_is_passed_over(
    begin: int, length: int, max_bytes: int, committed: bool
) -> None:
    end = begin + length + 3
    kept = [offset for offset in range(end) if not begin <= offset < begin + length]
    log = log_with_holes(kept, end)
    found: list[int] = []
    offset = 0
    while offset < end:
        read = slice_of(log, offset, records_max=5, max_bytes=max_bytes, committed=committed)
        assert read is not None
        assert len(read.data) == read.positions[-1]
        assert all(first < offset + 5 for first, _ in read.batches[1:])
        found += [first for first, _ in read.batches]
        assert read.batches[-1][1] >= offset
        offset = read.batches[-1][1] + 1
    assert found == sorted({*kept, begin + length - 1})


def test_a_read_that_ends_in_a_hole_is_not_repeated() -> None:
    log = log_with_holes([0], 60)
    counted = Counted(log)
    read = read_slice(cast(PartitionLog, counted), 0, records_max=50, max_bytes=EVERYTHING, committed=False)
    assert read is not None
    assert read.batches == [(0, 0)]
    assert counted.reads <= 2


def test_a_committed_read_with_aborted_records_before_a_hole_ends() -> None:
    manager, log = open_log(**COMPACT)  # type: ignore[arg-type]
    log.append(batch("kept", keys=["a"]), now_ms=NOW)
    log.append(batch("bad", keys=["b"], producer=(7, 0, 0), transactional=True), now_ms=NOW)
    log.append_marker(producer_id=7, producer_epoch=0, commit=False, coordinator_epoch=0, now_ms=NOW)
    for number in range(60):
        log.append(batch(f"{number}", keys=["hot"]), now_ms=NOW)
    log.roll(NOW)
    manager.run_background_work(NOW)
    manager.run_background_work(NOW)
    for records_max in range(1, 70):
        read = slice_of(log, 0, records_max=records_max, committed=True)
        assert read is not None
        assert read.batches[0] == (0, 0)
        assert all(first < records_max for first, _ in read.batches[1:])


@pytest.mark.parametrize("max_bytes", [1, 700_000, EVERYTHING])
@pytest.mark.parametrize("records_max", [1, 7, 500])
def test_a_read_without_data_finds_the_same_batches_and_reads_little_at_a_time(
    records_max: int, max_bytes: int
) -> None:
    _, log = open_log(max_message_bytes=1 << 22)
    sizes = [200_000, BYTES_TO_WALK + 1, 10, 300_000, 10, 2 * BYTES_TO_WALK, *[90_000] * 20]
    for size in sizes:
        log.append(batch("v" * size), now_ms=NOW)
    seen: list[int] = []

    class Watched(Counted):
        def read(self, offset: int, **options: Any) -> Read:
            read = super().read(offset, **options)
            seen.append(len(read.data))
            return read

    wanted = slice_of(log, 0, records_max=records_max, max_bytes=max_bytes)
    found = read_slice(
        cast(PartitionLog, Watched(log)),
        0,
        records_max=records_max,
        max_bytes=max_bytes,
        committed=False,
        keeps_data=False,
    )
    assert wanted is not None
    assert found is not None
    count = len(found.batches)
    assert found.data == b""
    assert count >= len(wanted.batches)
    assert found.batches[: len(wanted.batches)] == wanted.batches
    assert found.positions[: len(wanted.batches)] == wanted.positions[:-1]
    assert found.place(0, count - 1) == (0, found.positions[count])
    assert max(seen) <= 2 * BYTES_TO_WALK + 100
    if max_bytes == EVERYTHING:
        assert count == min(records_max, len(sizes))


def test_a_committed_read_ends_before_an_open_transaction() -> None:
    _, log = open_log()
    log.append(batch("decided"), now_ms=NOW)
    log.append(batch("open", producer=(7, 0, 0), transactional=True), now_ms=NOW)
    read = slice_of(log, 0, records_max=100, committed=True)
    assert read is not None
    assert read.batches == [(0, 0)]
    assert slice_of(log, 1, records_max=100, committed=True) is None


def test_a_batch_whose_length_was_damaged_ends_the_read_with_an_error() -> None:
    _, log = open_log()
    log.append(batch("one"), now_ms=NOW)

    class Damaged(Counted):
        def read(self, offset: int, **options: Any) -> Read:
            read = super().read(offset, **options)
            return read._replace(data=read.data[:8] + (-12).to_bytes(4, "big", signed=True) + read.data[12:])

    with pytest.raises(KafkaError) as refused:
        read_slice(cast(PartitionLog, Damaged(log)), 0, records_max=5, max_bytes=EVERYTHING, committed=False)
    assert refused.value.code is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("records_max", [1, 3, 50, 500])
def test_share_members_get_every_record_that_compaction_has_left(records_max: int) -> None:
    bench = Bench()
    topic = bench.topic(cleanup_policy="compact", min_cleanable_dirty_ratio="0.0", segment_bytes="1048576")
    log = topic.partitions[0].log
    kept = [0, 1, 7, 100, 101, 199]
    for offset in range(200):
        key = f"key {offset}" if offset in kept else "hot"
        log.append(batch(f"v{offset}", keys=[key], at=bench.clock.wall_ms()), now_ms=bench.clock.wall_ms())
    log.roll(bench.clock.wall_ms())
    for _ in range(2):
        bench.core.logs.run_background_work(bench.clock.wall_ms())
    member = Member(bench, "a")
    taken: list[int] = []
    for _ in range(200):
        acquired = member.take(topic, records_max=records_max)
        if not acquired:
            break
        taken += [offset for first, last, _ in acquired for offset in range(first, last + 1)]
        assert member.settle(topic, *((first, last, ACCEPT) for first, last, _ in acquired)) == 0
    assert set(kept) <= set(taken)
    assert len(taken) == len(set(taken))


@pytest.mark.parametrize("number", [0, 1, 2])
@pytest.mark.parametrize("flip", [1 << 31, 1 << 62, 4])
@pytest.mark.parametrize("max_bytes", [1, EVERYTHING])
def test_a_batch_whose_base_offset_is_damaged_is_refused(number: int, flip: int, max_bytes: int) -> None:
    """The checksum does not cover it."""
    disk = MemoryDisk()
    _, log = open_log(disk)
    sizes = [len(batch(f"v{offset}")) for offset in range(3)]
    for offset in range(3):
        log.append(batch(f"v{offset}"), now_ms=NOW)
    name = "orders-0/00000000000000000000.log"
    disk.open(name).write(sum(sizes[:number]), (number ^ flip).to_bytes(8, "big"))
    refused = []
    for offset in range(3):
        try:
            slice_of(log, offset, records_max=10, max_bytes=max_bytes)
        except KafkaError as error:
            refused.append(error)
    assert refused
    assert all("out of order" in str(one) and one.code == ErrorCode.CORRUPT_MESSAGE for one in refused)
