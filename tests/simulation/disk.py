"""The simulated disk: a `MemoryDisk` that lets tasks be interrupted, counts, fails on purpose, and forgets.

What it adds to `MemoryDisk`:
- before each operation a task gives way to the scheduler (`tasks.py`);
- a sync makes safe what was written before it began, not what came while it ran;
- a power cut may write sectors back out of order, so that a file has a hole of zeros before sound bytes;
- operations can find the disk full or fail, once or for a while, and one bit of a file can flip.
"""

import errno
import os
import random
from collections.abc import Callable

from headrace.log.disk import Buffer, FileClosed
from headrace.log.memory_disk import SECTOR, MemoryDisk, MemoryFile, _Content, _Directory
from tests.simulation.tasks import TASKS
from tests.simulation.trail import Trail
from tests.simulation.turns import Turns


class SimulatedFile(MemoryFile):
    __slots__ = ("_path",)

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
        content = self._content
        before = bytes(content.data)
        number = self._disk.next_sync()
        self._disk.before("sync", self._path, 0)
        self._disk.operation(is_sync=True)
        self._disk.note_synced(content, before, number)


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
        self.faults_met = 0
        """Operations that were made to fail."""

    # What the broker does

    def before(self, kind: str, path: str, size: int) -> None:
        TASKS.pause()
        self._trail.note(f"{'loop' if TASKS.is_on_loop else 'task'} {kind} {path} {size}")
        if TASKS.is_on_loop:
            self._turns.count_operation(kind, path, size)
        if self._error is not None:
            self._maybe_fail(kind, path)

    def before_read(self, path: str, size: int) -> None:
        TASKS.pause()
        if TASKS.is_on_loop:
            self._turns.count_read(path, size)
        if self._error is not None:
            self._maybe_fail("read", path)

    def open(self, path: str, *, create: bool = False) -> MemoryFile:
        self.before("open", path, create)
        super().open(path, create=create)
        return SimulatedFile(self, self._content(path), path)

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
        steps = list(node.pending) if isinstance(node, _Directory) else []
        self.before("syncdir", path, 0)
        self.operation(is_sync=True)
        if isinstance(node, _Directory):
            done = set(map(id, steps))
            for step in node.pending:
                if id(step) in done:
                    for name, entry in step.items():
                        if entry is None:
                            node.synced.pop(name, None)
                        else:
                            node.synced[name] = entry
            node.pending = [step for step in node.pending if id(step) not in done]

    def next_sync(self) -> int:
        self._syncs += 1
        return self._syncs

    def note_synced(self, content: _Content, data: bytes, number: int) -> None:
        """Of two syncs at once, the one that began later saw more."""
        latest = self._synced_by.get(id(content))
        if latest is None or latest[1] < number:
            self._synced_by[id(content)] = (content, number)
            content.synced = data

    # What the world does to it

    def fail_soon(self, number: int, *, after: int, count: int, kinds: frozenset[str]) -> None:
        """After so many operations of these kinds, so many of them fail with this errno."""
        self._error = OSError(number, os.strerror(number))
        self._error_in, self._error_count, self._error_kinds = after, count, kinds

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
        self.mend()

    def power_cycle(self, survival: random.Random | None = None) -> None:
        self._synced_by.clear()
        if survival is not None and survival.random() < 0.3:
            self._scatter(self._root, survival)
        super().power_cycle(survival)

    def _scatter(self, directory: _Directory, survival: random.Random) -> None:
        """Some files get a hole: a sector of what was appended since the last sync never arrived, later ones did."""
        for _, node in sorted(directory.entries.items()):
            if isinstance(node, _Directory):
                self._scatter(node, survival)
                continue
            is_longer = len(node.data) - len(node.synced) > 1 and node.data.startswith(node.synced)
            if is_longer and survival.random() < 0.3:
                first = survival.randint(len(node.synced), len(node.data) - 1)
                last = min(len(node.data), (first // SECTOR + 1) * SECTOR)
                node.data[first:last] = bytes(last - first)

    def files(self) -> list[tuple[str, _Content]]:
        return list(_files(self._root, ""))

    def flip_bit(self, rng: random.Random, is_meant: Callable[[str], bool]) -> str | None:
        """In a file of those meant; its path and where."""
        candidates = [(path, content) for path, content in self.files() if content.data and is_meant(path)]
        if not candidates:
            return None
        path, content = rng.choice(candidates)
        at, bit = rng.randrange(len(content.data)), rng.randrange(8)
        content.data[at] ^= 1 << bit
        if at < len(content.synced):
            changed = bytearray(content.synced)
            changed[at] ^= 1 << bit
            content.synced = bytes(changed)
        return f"{path}:{at}.{bit}"


def _files(directory: _Directory, path: str) -> list[tuple[str, _Content]]:
    found: list[tuple[str, _Content]] = []
    for name, node in sorted(directory.entries.items()):
        here = f"{path}/{name}" if path else name
        if isinstance(node, _Directory):
            found += _files(node, here)
        else:
            found.append((here, node))
    return found
