"""The simulated disk: a `MemoryDisk` that lets tasks be interrupted, counts, and fails for a while on purpose.

What it adds to `MemoryDisk`:
- before each operation a task gives way to the scheduler (`tasks.py`);
- a sync makes safe what was written before it began, not what came while it ran;
- operations can find the disk full or fail, once or for a while;
- every operation is in the trail, and those of the event loop count against the budget of the turn (`turns.py`).
"""

import errno
import os
import random
from collections.abc import Callable
from contextlib import AbstractContextManager
from os.path import commonpath

from headrace.log.disk import Buffer, FileClosed
from headrace.log.memory_disk import (
    SYNC,
    SYNC_DIRECTORY,
    MemoryDisk,
    MemoryFile,
    MemoryFolder,
    _apply,
    _Content,
    _Directory,
)
from tests.simulation.tasks import TASKS, SimulatedLock
from tests.simulation.trail import Trail
from tests.simulation.turns import Turns

BLOCK = 4096


class SimulatedFile(MemoryFile):
    __slots__ = ("_path",)

    _disk: "SimulatedDisk"

    def __init__(self, disk: "SimulatedDisk", content: _Content, path: str) -> None:
        super().__init__(disk, content)
        self._path = path

    def read(self, position: int, size: int) -> bytes:
        self._disk.before_read(self._path, size)
        return super().read(position, size)

    def write(self, position: int, data: Buffer) -> None:
        self._disk.before("write", self._path, len(data))
        super().write(position, data)

    def truncate(self, size: int) -> None:
        self._disk.before("truncate", self._path, size)
        super().truncate(size)

    def sync(self) -> None:
        if self._is_closed:
            raise FileClosed
        before = bytes(self._content.data)
        number = self._disk.next_sync()
        self._disk.before("sync", self._path, 0)
        self._disk.operation(kind=SYNC)
        self._disk.note_synced(self._content, before, number)


class SimulatedFolder(MemoryFolder):
    __slots__ = ("_path",)

    _disk: "SimulatedDisk"

    def __init__(self, disk: "SimulatedDisk", directory: _Directory, path: str) -> None:
        super().__init__(disk, directory)
        self._path = path

    def open(self, name: str, *, create: bool = False) -> MemoryFile:
        is_new = create and name not in self._directory.entries
        self._disk.before("create" if is_new else "open", f"{self._path}/{name}", 0)
        super().open(name, create=create)
        return SimulatedFile(self._disk, self._directory.content(name), f"{self._path}/{name}")

    def read(self, name: str) -> bytes:
        self._disk.before_read(f"{self._path}/{name}", 0)
        return super().read(name)

    def rename(self, source: str, target: str) -> None:
        self._disk.before("rename", f"{self._path}/{source} {target}", 0)
        super().rename(source, target)

    def remove(self, name: str) -> None:
        self._disk.before("remove", f"{self._path}/{name}", 0)
        super().remove(name)

    def sync(self) -> None:
        self._disk.sync_entries(self._directory, self._path)


class SimulatedDisk(MemoryDisk):
    def __init__(self, trail: Trail, turns: Turns) -> None:
        super().__init__(is_simulated=True)
        self._trail = trail
        self._turns = turns
        self._syncs = 0
        self._synced_by: dict[int, tuple[_Content, int]] = {}
        self._error: OSError | None = None
        self._error_in = 0
        self._error_count = 0
        self._error_kinds: frozenset[str] = frozenset()
        self._awaited: Callable[[str, str], bool] | None = None
        self._awaited_within = 0
        self.faults_met = 0
        """Operations that were made to fail."""

    # What the broker does

    def before(self, kind: str, path: str, size: int) -> None:
        TASKS.pause()
        self._trail.note(f"{'loop' if TASKS.is_on_loop else 'task'} {kind} {path} {size}")
        if TASKS.is_on_loop:
            self._turns.count_operation(kind, path, size)
        if self._awaited is not None and self._awaited(kind, path):
            self._awaited = None
            self.fail_at(self._awaited_within)
        if self._error is not None:
            self._maybe_fail(kind, path)

    def before_read(self, path: str, size: int) -> None:
        TASKS.pause()
        if TASKS.is_on_loop:
            self._turns.count_read(path, size)
        if self._error is not None:
            self._maybe_fail("read", path)

    def new_lock(self) -> AbstractContextManager[object]:
        return SimulatedLock()

    def open(self, path: str, *, create: bool = False) -> MemoryFile:
        self.before("create" if create and self._node(path) is None else "open", path, 0)
        super().open(path, create=create)
        return SimulatedFile(self, self._content(path), path)

    def open_folder(self, path: str) -> MemoryFolder:
        TASKS.pause()
        return SimulatedFolder(self, self._directory(path), path)

    def read(self, path: str) -> bytes:
        self.before_read(path, 0)
        return super().read(path)

    def exists(self, path: str) -> bool:
        TASKS.pause()
        return super().exists(path)

    def make_directory(self, path: str) -> None:
        self.before("mkdir", path, 0)
        super().make_directory(path)

    def rename(self, source: str, target: str) -> None:
        self.before("rename", f"{source} {target}", 0)
        super().rename(source, target)

    def remove(self, path: str) -> None:
        self.before("remove", path, 0)
        super().remove(path)

    def sync_directory(self, path: str = "") -> None:
        node = self._node(path)
        self.sync_entries(node if isinstance(node, _Directory) else None, path)

    def sync_entries(self, directory: _Directory | None, path: str) -> None:
        steps = list(directory.pending) if directory is not None else []
        self.before("syncdir", path, 0)
        self.operation(kind=SYNC_DIRECTORY)
        if directory is not None:
            done = set(map(id, steps))
            for step in directory.pending:
                if id(step) in done:
                    _apply(directory.synced, step)
            directory.pending = [step for step in directory.pending if id(step) not in done]

    def next_sync(self) -> int:
        self._syncs += 1
        return self._syncs

    def note_synced(self, content: _Content, data: bytes, number: int) -> None:
        """Of two syncs at once, the one that began later saw more."""
        latest = self._synced_by.get(id(content))
        if latest is None or latest[1] < number:
            self._synced_by[id(content)] = (content, number)
            content.synced = data
            if content.data.startswith(data):
                content.kept = len(data)
            else:
                content.kept = len(commonpath([bytes(content.data), data]))

    # What the world does to it

    def fail_soon(self, number: int, *, after: int, count: int, kinds: frozenset[str]) -> None:
        """After so many operations of these kinds, so many of them fail with this errno."""
        self._error = OSError(number, os.strerror(number))
        self._error_in, self._error_count, self._error_kinds = after, count, kinds

    def fail_near(self, is_awaited: Callable[[str, str], bool], *, within: int) -> None:
        """Once there is an operation of this kind at this path, the machine fails within so many operations."""
        self._awaited, self._awaited_within = is_awaited, within

    def stop_failing(self) -> None:
        super().stop_failing()
        self._awaited = None

    def mend(self) -> None:
        self._error = None

    def _maybe_fail(self, kind: str, path: str) -> None:
        if kind not in self._error_kinds:
            return
        if self._error_in:
            self._error_in -= 1
            return
        error = self._error
        assert error is not None
        self._error_count -= 1
        if self._error_count <= 0:
            self._error = None
        self.faults_met += 1
        self._trail.note(f"fault {errno.errorcode[error.errno]} at {kind} {path}")
        raise OSError(error.errno, error.strerror)

    def switch_off(self) -> None:
        """What a dying process still tries to do fails."""
        self._is_off = True

    def restart(self) -> None:
        super().restart()
        self._awaited = None
        self.mend()

    def power_cycle(self, survival: random.Random | None = None) -> None:
        self._synced_by.clear()
        super().power_cycle(survival)

    def flip_some_bit(self, rng: random.Random, is_meant: Callable[[str], bool]) -> str | None:
        """In a file of those meant; its path and where."""
        candidates = [path for path in self.files() if is_meant(path) and self.size(path)]
        if not candidates:
            return None
        segments = [path for path in candidates if path.endswith(".log")]
        path = rng.choice(segments if segments and rng.random() < 0.6 else candidates)
        # Headers of batches are small, and what they say matters most.
        size = min(self.size(path), 61) if rng.random() < 0.4 else self.size(path)
        bit = rng.randrange(8 * size)
        self.flip_bit(path, bit)
        return f"{path}:{bit}"

    def lose_block(self, path: str) -> None:
        """The first block of a file reads as zeros: of a small segment, all of it."""
        content = self._content(path)
        content.data[:BLOCK] = bytes(min(BLOCK, len(content.data)))
        content.synced = bytes(min(BLOCK, len(content.synced))) + content.synced[BLOCK:]
