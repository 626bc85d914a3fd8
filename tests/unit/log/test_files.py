"""LogFiles: what is written is noted, what is noted is synced once, and snapshots are kept by name."""

from headrace.log.files import LogFiles, read_topic_id
from headrace.log.memory_disk import MemoryDisk
from headrace.log.producers import ProducerStates
from headrace.log.store import Store
from tests.unit.log.logs import NOW, TOPIC_ID


def files_on(disk: MemoryDisk) -> LogFiles:
    return LogFiles(Store(disk), "orders-0", TOPIC_ID)


def test_the_directory_is_made_once_and_says_whose_it_is() -> None:
    disk = MemoryDisk()
    files = files_on(disk)
    assert read_topic_id(disk, "orders-0") is None
    files.make()
    files.make()
    assert read_topic_id(disk, "orders-0") == TOPIC_ID
    assert not files.is_in_root
    files.store.root.sync()
    assert files.is_in_root


def test_a_sync_with_nothing_written_touches_nothing() -> None:
    disk = MemoryDisk(is_simulated=True)
    files = files_on(disk)
    files.make()
    files.start_segment(0, NOW)
    files.sync()
    before = disk.operations
    files.sync()
    assert disk.operations == before


def test_only_the_last_segment_is_active() -> None:
    files = files_on(MemoryDisk())
    files.make()
    first, second = files.start_segment(0, NOW), files.start_segment(7, NOW)
    assert (first.is_closed, second.is_closed) == (True, False)
    assert files.after(first) is second
    assert files.after(second) is None
    assert files.drop_oldest(1) == [first]
    assert files.bases == [7]


def test_snapshots_that_are_not_kept_are_removed() -> None:
    disk = MemoryDisk()
    files = files_on(disk)
    files.make()
    for offset in (3, 5, 9, 9):
        files.save_snapshot(offset, ProducerStates())
        files.know_snapshot(offset)
    files.keep_snapshots([5, 100])
    assert files.snapshots == [5]
    assert disk.list("orders-0") == ["00000000000000000005.snapshot", "partition.metadata"]
