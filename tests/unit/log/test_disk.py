"""Both disks keep the same promises; the simulated one also forgets what was not synced, and fails when told to."""

import contextlib
import errno
import os
import random
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headrace.log.disk import (
    DirectoryLocked,
    Disk,
    FileClosed,
    OsDisk,
    PowerLost,
    replace_file,
    sync_file,
    write_file,
)
from headrace.log.memory_disk import CHANGES, READS, SYNC, MemoryDisk


@pytest.fixture(params=["folder", "memory", "simulated"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Disk:
    if request.param == "folder":
        made = OsDisk(tmp_path / "data")
        made.lock()
        return made
    return MemoryDisk(is_simulated=request.param == "simulated")


def test_bytes_come_back_from_where_they_were_written(disk: Disk) -> None:
    disk.make_directory("a")
    file = disk.open("a/x", create=True)
    file.write(0, b"hello")
    file.write(5, bytearray(b" world"))
    assert file.read(0, 100) == b"hello world"
    assert file.read(3, 4) == b"lo w"
    assert file.read(11, 5) == b""
    assert file.size() == disk.size("a/x") == 11
    file.truncate(5)
    assert disk.read("a/x") == b"hello"
    file.write(7, b"!")
    assert disk.read("a/x") == b"hello\0\0!"
    file.close()


def test_names_are_listed_renamed_and_removed(disk: Disk) -> None:
    disk.make_directory("a")
    disk.make_directory("a")
    for name in ("z", "y", "x"):
        write_file(disk, f"a/{name}", name.encode())
    disk.rename("a/z", "a/y")
    assert disk.list("a") == ["x", "y"]
    assert disk.read("a/y") == b"z"
    disk.remove("a/x")
    disk.remove("a/x")
    assert not disk.exists("a/x")
    disk.rename("a", "b")
    assert disk.list("a") == []
    assert disk.list("b") == ["y"]
    disk.remove_directory("b")
    disk.remove_directory("b")
    assert not disk.exists("b")


def test_missing_files_are_file_not_found(disk: Disk) -> None:
    for attempt in (
        lambda: disk.open("nothing"),
        lambda: disk.read("nothing"),
        lambda: disk.size("nothing"),
        lambda: disk.open("no/where", create=True),
        lambda: disk.rename("nothing", "something"),
    ):
        with pytest.raises(FileNotFoundError):
            attempt()
    sync_file(disk, "nothing")
    disk.sync_directory("nothing")


def test_a_closed_file_cannot_be_synced(disk: Disk) -> None:
    file = disk.open("x", create=True)
    file.sync()
    file.close()
    file.close()
    with pytest.raises(FileClosed):
        file.sync()


def test_a_replaced_file_holds_the_new_content(disk: Disk) -> None:
    replace_file(disk, "x", b"old content")
    replace_file(disk, "x", b"new")
    assert disk.read("x") == b"new"
    assert "x.tmp" not in disk.list()


def test_a_second_lock_names_the_directory(tmp_path: Path) -> None:
    first, second = OsDisk(tmp_path), OsDisk(tmp_path)
    first.lock()
    with pytest.raises(DirectoryLocked, match=str(tmp_path)):
        second.lock()
    first.unlock()
    second.lock()
    second.unlock()


def test_memory_can_be_locked_once_too() -> None:
    disk = MemoryDisk()
    disk.lock()
    with pytest.raises(DirectoryLocked):
        disk.lock()
    disk.unlock()
    disk.lock()


@pytest.fixture
def simulated() -> MemoryDisk:
    return MemoryDisk(is_simulated=True)


def test_unsynced_bytes_are_gone_after_a_power_cut(simulated: MemoryDisk) -> None:
    file = simulated.open("x", create=True)
    file.write(0, b"safe")
    file.sync()
    simulated.sync_directory()
    file.write(4, b" and lost")
    simulated.power_cycle()
    assert simulated.read("x") == b"safe"


def test_a_file_whose_directory_was_not_synced_is_gone(simulated: MemoryDisk) -> None:
    file = simulated.open("x", create=True)
    file.write(0, b"safe?")
    file.sync()
    simulated.power_cycle()
    assert not simulated.exists("x")


def test_an_unsynced_rename_or_removal_has_not_happened(simulated: MemoryDisk) -> None:
    for name in ("x", "y"):
        replace_file(simulated, name, name.encode())
    simulated.rename("x", "z")
    simulated.remove("y")
    simulated.power_cycle()
    assert simulated.list() == ["x", "y"]


def test_the_operation_that_fails_can_be_chosen(simulated: MemoryDisk) -> None:
    file = simulated.open("x", create=True)
    simulated.fail_at(2)
    file.write(0, b"first")
    with pytest.raises(PowerLost):
        file.write(5, b"second")
    with pytest.raises(PowerLost):
        file.sync()
    simulated.power_cycle()
    simulated.open("x", create=True).sync()


def test_a_full_disk_takes_part_of_a_write(simulated: MemoryDisk) -> None:
    file = simulated.open("x", create=True)
    simulated.fail_at(1, OSError(errno.ENOSPC, "full"))
    with pytest.raises(OSError, match="full"):
        file.write(0, b"0123456789")
    assert file.read(0, 100) == b"01234"
    file.write(0, b"now there is room")


def test_an_input_output_error_waits_for_a_sync(simulated: MemoryDisk) -> None:
    file = simulated.open("x", create=True)
    simulated.fail_at(1, OSError(errno.EIO, "broken"))
    file.write(0, b"x")
    with pytest.raises(OSError, match="broken"):
        file.sync()


def test_with_luck_part_of_what_was_not_synced_survives(simulated: MemoryDisk) -> None:
    file = simulated.open("x", create=True)
    file.write(0, b"S" * 1000)
    file.sync()
    simulated.sync_directory()
    seen = set()
    for seed in range(30):
        file = simulated.open("x")
        file.write(1000, b"U" * 2000)
        simulated.power_cycle(random.Random(seed))
        data = simulated.read("x")
        assert data[:1000] == b"S" * 1000
        rest = data[1000:]
        assert rest.count(b"U") + rest.count(0) == len(rest)
        seen.add((bool(rest.count(b"U")), bool(rest.count(0))))
        restored = simulated.open("x")
        restored.truncate(1000)
        restored.sync()
    assert len(seen) == 3


def test_a_read_can_be_chosen_to_fail_without_counting_changes(simulated: MemoryDisk) -> None:
    write_file(simulated, "x", b"some bytes")
    simulated.fail_at(2, OSError(errno.EIO, "bad sector"), kinds=READS)
    assert simulated.read("x") == b"some bytes"
    write_file(simulated, "y", b"changes do not count")
    with pytest.raises(OSError, match="bad sector"):
        simulated.open("x").read(0, 4)
    assert simulated.read("x") == b"some bytes"


def test_a_failure_can_wait_for_operations_of_a_kind(simulated: MemoryDisk) -> None:
    simulated.fail_at(1, OSError(errno.EIO, "bad disk"), kinds=CHANGES)
    with pytest.raises(OSError, match="bad disk"):
        simulated.open("x", create=True)
    simulated.fail_at(1, OSError(errno.ENOSPC, "full"), kinds={SYNC})
    file = simulated.open("x", create=True)
    file.write(0, b"x")
    with pytest.raises(OSError, match="full"):
        file.sync()


def test_an_ordered_failure_can_be_taken_back(simulated: MemoryDisk) -> None:
    simulated.fail_at(1)
    simulated.stop_failing()
    write_file(simulated, "x", b"x")
    assert simulated.read("x") == b"x"


def test_sectors_may_be_written_back_in_any_order(simulated: MemoryDisk) -> None:
    """Somewhere in a few hundred power cuts a later sector has survived and an earlier one has not."""
    synced, unsynced = b"a" * 700, b"b" * 3000
    found = set()
    for seed in range(300):
        disk = MemoryDisk(is_simulated=True)
        file = disk.open("x", create=True)
        file.write(0, synced)
        file.sync()
        disk.sync_directory()
        file.write(700, unsynced)
        disk.power_cycle(random.Random(seed))
        left = disk.read("x")
        assert left.startswith(synced)
        tail = left[700:]
        hole = tail.find(0)
        found.add(hole >= 0 and tail.rfind(b"b") > hole)
    assert found == {True, False}


def test_the_same_seed_leaves_the_same_bytes() -> None:
    def left(seed: int) -> list[bytes]:
        disk = MemoryDisk(is_simulated=True)
        for name in "xyz":
            write_file(disk, name, name.encode() * 2000)
        disk.power_cycle(random.Random(seed))
        return [disk.read(path) for path in disk.files()]

    for seed in range(50):
        assert left(seed) == left(seed)


def test_bytes_that_were_synced_and_not_touched_since_always_survive() -> None:
    for seed in range(200):
        disk = MemoryDisk(is_simulated=True)
        replace_file(disk, "x", b"a" * 2000)
        file = disk.open("x")
        file.truncate(1500)
        file.write(1500, b"c" * 1000)
        disk.power_cycle(random.Random(seed))
        assert disk.read("x").startswith(b"a" * 1500)


def test_one_bit_can_be_flipped_for_good(simulated: MemoryDisk) -> None:
    simulated.make_directory("a")
    replace_file(simulated, "a/x", b"\x00\x00")
    simulated.sync_directory()
    assert simulated.files() == ["a/x"]
    simulated.flip_bit("a/x", 9)
    assert simulated.read("a/x") == b"\x00\x02"
    simulated.power_cycle()
    assert simulated.read("a/x") == b"\x00\x02"


def test_a_folder_stays_the_same_whatever_takes_its_name(disk: Disk) -> None:
    disk.make_directory("a")
    write_file(disk, "a/x", b"old")
    folder = disk.open_folder("a")
    disk.rename("a", "b")
    disk.make_directory("a")
    write_file(disk, "a/x", b"new")
    assert folder.read("x") == b"old"
    folder.rename("x", "y")
    file = folder.open("z", create=True)
    file.write(0, b"z")
    file.close()
    folder.sync()
    folder.remove("y")
    folder.remove("y")
    assert disk.list("b") == ["z"]
    assert disk.read("a/x") == b"new"
    with pytest.raises(FileNotFoundError):
        folder.open("y")
    folder.close()
    with pytest.raises(FileNotFoundError):
        disk.open_folder("nothing")


@contextmanager
def no_descriptor_left() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken = [os.open(os.devnull, os.O_RDONLY)]
    resource.setrlimit(resource.RLIMIT_NOFILE, (taken[0] + 8, hard))
    try:
        with contextlib.suppress(OSError):
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))
        yield
    finally:
        for descriptor in taken:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_sync_finds_a_descriptor_in_a_process_that_has_used_up_its_own(tmp_path: Path) -> None:
    disk = OsDisk(tmp_path)
    disk.lock()
    try:
        write_file(disk, "a", b"1")
        with no_descriptor_left():
            with pytest.raises(OSError, match="Too many open files"):
                disk.open("a")
            for _ in range(3):
                sync_file(disk, "a")
                disk.sync_directory()
    finally:
        disk.unlock()
