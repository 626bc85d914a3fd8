"""Segment: positions of batches by offset, extents of whole batches, files that close and open again."""

import errno

import pytest

from headrace.log.disk import write_file
from headrace.log.memory_disk import READS, MemoryDisk, MemoryFile
from headrace.log.segment import OpenFiles, Segment
from headrace.wire.batches import place, read_header
from headrace.wire.errors import ErrorCode, KafkaError
from tests.unit.log.logs import NOW, batch

INTERVAL = 200
LENGTH_AT = 8


def a_segment(disk: MemoryDisk | None = None, *, base_offset: int = 100) -> Segment:
    disk = disk or MemoryDisk()
    disk.make_directory("t-0")
    return Segment(disk, "t-0", base_offset, open_files=OpenFiles(), created_ms=NOW)


def fill(segment: Segment, count: int, *, step: int = 1) -> int:
    """Batches of one record, `step` offsets apart; the size of one."""
    size = 0
    for number in range(count):
        data = bytearray(batch(f"{number:03d}", at=NOW + number))
        offset = segment.base_offset + number * step
        place(data, 0, base_offset=offset, length=read_header(data).length, leader_epoch=0)
        size = len(data)
        segment.append(data, [(size, offset, NOW + number)], interval=INTERVAL)
    return size


@pytest.fixture
def segment() -> Segment:
    made = a_segment()
    made.create()
    return made


def test_every_offset_leads_to_its_batch(segment: Segment) -> None:
    size = fill(segment, 50, step=3)
    for number in range(50):
        assert segment.find(100 + number * 3) == (number * size, 100 + number * 3)
    assert segment.find(101) == (size, 103)
    assert segment.find(100 + 49 * 3 + 1) is None


def test_an_extent_ends_with_the_last_whole_batch(segment: Segment) -> None:
    size = fill(segment, 50)
    for first in (0, 1, 7, 30):
        for batches in (1, 2, 5, 15):
            for surplus in (0, 1, size - 1):
                limit = first * size + batches * size + surplus
                assert segment.extent(first * size, limit) == (
                    (first + batches) * size,
                    100 + first + batches,
                )


def test_an_extent_that_holds_no_batch_is_the_first_one(segment: Segment) -> None:
    size = fill(segment, 5)
    assert segment.extent(size, size + 1) == (2 * size, 102)


def test_an_extent_beyond_the_end_is_all_there_is(segment: Segment) -> None:
    size = fill(segment, 5)
    assert segment.extent(size, 10**6) == (5 * size, 105)


def test_headers_are_walked_across_chunks(segment: Segment) -> None:
    fill(segment, 200)
    assert [header.base_offset for _, header in segment.headers()] == list(range(100, 300))


def test_indexes_survive_on_the_disk_and_are_loaded_when_needed(segment: Segment) -> None:
    fill(segment, 50)
    before = segment.indexes()[0].encode()
    segment.save_indexes()
    segment.is_closed = True
    segment.close()
    reopened = Segment(segment.disk, "t-0", 100, open_files=OpenFiles(), created_ms=NOW, size=segment.size)
    assert reopened.indexes()[0].encode() == before
    assert reopened.newest_ms() == NOW + 49
    assert reopened.max_timestamp_offset == 149


def test_a_reopened_segment_goes_on_with_its_index(segment: Segment) -> None:
    whole = a_segment()
    whole.create()
    fill(whole, 50)
    fill(segment, 20)
    segment.save_indexes()
    segment.close()
    reopened = Segment(segment.disk, "t-0", 100, open_files=OpenFiles(), created_ms=NOW, size=segment.size)
    for number in range(20, 50):
        data = bytearray(batch(f"{number:03d}", at=NOW + number))
        place(data, 0, base_offset=100 + number, length=read_header(data).length, leader_epoch=0)
        reopened.append(data, [(len(data), 100 + number, NOW + number)], interval=INTERVAL)
    assert reopened.indexes()[0].encode() == whole.indexes()[0].encode()


def test_rubbish_instead_of_a_batch_is_a_storage_error_that_says_where() -> None:
    disk = MemoryDisk()
    segment = a_segment(disk)
    write_file(disk, "t-0/00000000000000000100.log", bytes(200))
    broken = Segment(disk, "t-0", 100, open_files=OpenFiles(), created_ms=NOW, size=200)
    for attempt in (lambda: broken.find(100), lambda: list(broken.headers()), lambda: broken.read(100, 200)):
        with pytest.raises(KafkaError) as caught:
            attempt()
        assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert segment.path in str(caught.value)
        assert "at byte" in str(caught.value)


def test_more_than_there_is_is_damage_and_is_not_asked_of_the_disk(
    segment: Segment, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = fill(segment, 3)
    asked: list[int] = []
    read = MemoryFile.read

    def noted(file: MemoryFile, position: int, wanted: int) -> bytes:
        asked.append(wanted)
        return read(file, position, wanted)

    monkeypatch.setattr(MemoryFile, "read", noted)
    with pytest.raises(KafkaError, match=f"is damaged at byte {size}"):
        segment.read(size, 1 << 28)
    assert not asked


def test_a_file_in_use_gets_a_second_chance_before_it_is_closed() -> None:
    disk = MemoryDisk()
    files = OpenFiles(limit=2)
    disk.make_directory("t-0")
    first, second, third = (
        Segment(disk, "t-0", base, open_files=files, created_ms=NOW) for base in (0, 1, 2)
    )
    first.create()
    second.create()
    first.file()
    third.create()
    assert first._file is not None
    assert second._file is None
    assert len(files) == 2
    second.file()
    assert len(files) == 2
    for segment in (first, second, third):
        segment.close()
    assert len(files) == 0


def closed(segment: Segment) -> Segment:
    """The same one after a restart, with indexes on the disk."""
    segment.save_indexes()
    segment.close()
    return Segment(segment.disk, "t-0", 100, open_files=OpenFiles(), created_ms=NOW, size=segment.size)


@pytest.mark.parametrize("suffix", ["index", "timeindex"])
def test_no_flipped_bit_of_an_index_file_misleads_anybody(segment: Segment, suffix: str) -> None:
    size = fill(segment, 12)
    disk = segment.disk
    assert isinstance(disk, MemoryDisk)
    path = f"t-0/00000000000000000100.{suffix}"
    closed(segment)
    for bit in range(8 * disk.size(path)):
        disk.flip_bit(path, bit)
        reopened = Segment(disk, "t-0", 100, open_files=OpenFiles(), created_ms=NOW, size=segment.size)
        for number in range(12):
            assert reopened.find(100 + number) == (number * size, 100 + number)
            assert reopened.extent(0, number * size + size) == (number * size + size, 101 + number)
            headers = reopened.headers(reopened.position_before_time(NOW + number))
            found = next(header for _, header in headers if header.max_timestamp >= NOW + number)
            assert found.last_offset == 100 + number
        assert reopened.newest_ms() == NOW + 11
        disk.flip_bit(path, bit)


@pytest.mark.parametrize("suffix", ["index", "timeindex"])
def test_an_index_file_that_a_crash_has_cut_misleads_nobody(segment: Segment, suffix: str) -> None:
    size = fill(segment, 12)
    disk = segment.disk
    path = f"t-0/00000000000000000100.{suffix}"
    closed(segment)
    whole = disk.read(path)
    for length in range(len(whole)):
        write_file(disk, path, whole[:length])
        reopened = Segment(disk, "t-0", 100, open_files=OpenFiles(), created_ms=NOW, size=segment.size)
        assert reopened.newest_ms() == NOW + 11
        for number in range(12):
            assert reopened.find(100 + number) == (number * size, 100 + number)


def test_damaged_batches_leave_the_index_files_in_use(segment: Segment) -> None:
    size = fill(segment, 12)
    disk = segment.disk
    assert isinstance(disk, MemoryDisk)
    reopened = closed(segment)
    disk.flip_bit(segment.path, 8 * (4 * size + LENGTH_AT) + 7)  # the length of the fifth batch
    for _ in range(2):
        assert reopened.find(100) == (0, 100)
        with pytest.raises(KafkaError):
            reopened.find(105)
        assert reopened.find(111) == (11 * size, 111)
    assert reopened.newest_ms() == NOW + 11


def test_a_read_that_fails_while_indexes_are_made_is_not_the_end_of_the_segment() -> None:
    disk = MemoryDisk(is_simulated=True)
    segment = a_segment(disk)
    segment.create()
    fill(segment, 200)  # more than one read
    segment.close()
    reopened = Segment(disk, "t-0", 100, open_files=OpenFiles(), created_ms=NOW, size=segment.size)
    disk.fail_at(2, OSError(errno.EIO, "Input/output error"), kinds=READS)
    with pytest.raises(OSError, match="Input/output"):
        reopened.newest_ms()
    disk.stop_failing()
    assert reopened.newest_ms() == NOW + 199
