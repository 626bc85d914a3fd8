"""A disk in memory: for brokers that keep nothing, and, with `is_simulated`, for tests that lose power.

A simulated disk remembers what has been synced. `power_cycle` forgets the rest, wholly or in part as a real disk
might: torn, or written back out of order, sector by sector. `fail_at(n, ...)` makes the n-th operation from then on
lose power, find the disk full, or fail; `flip_bit` damages what is on the disk.
"""

import errno
import random
import threading
from collections.abc import Callable, Container
from contextlib import AbstractContextManager

from headrace.log.disk import Buffer, DirectoryLocked, FileClosed, PowerLost

SECTOR = 512

WRITE = "write"
TRUNCATE = "truncate"
CREATE = "create"
MAKE_DIRECTORY = "make directory"
RENAME = "rename"
REMOVE = "remove"
SYNC = "sync"
SYNC_DIRECTORY = "sync directory"
READ = "read"

SYNCS = frozenset({SYNC, SYNC_DIRECTORY})
CHANGES = frozenset({WRITE, TRUNCATE, CREATE, MAKE_DIRECTORY, RENAME, REMOVE})
READS = frozenset({READ})
"""Of a file's bytes. Reads are counted apart, so that the n-th change is the same whatever is read in between."""


class _Content:
    """What an inode is to a file system: bytes that names point to."""

    __slots__ = ("_synced", "data", "kept")

    def __init__(self, data: bytes = b"") -> None:
        self.data = bytearray(data)
        self._synced = data
        self.kept = len(data)
        """So many of the synced bytes, at least, have not been overwritten or cut since."""

    @property
    def synced(self) -> bytes:
        return self._synced

    @synced.setter
    def synced(self, data: bytes) -> None:
        """What a sync has made safe; the file may have grown since the sync began."""
        self._synced = data
        self.kept = len(data) if self.data.startswith(data) else 0


class _Directory:
    __slots__ = ("entries", "pending", "synced")

    def __init__(self, entries: "dict[str, _Content | _Directory] | None" = None) -> None:
        self.entries: dict[str, _Content | _Directory] = entries or {}
        self.synced: dict[str, _Content | _Directory] = dict(self.entries)
        self.pending: list[dict[str, _Content | _Directory | None]] = []
        """Changes since the last sync, in order; each entry is one step that happens wholly or not at all."""

    def change(self, step: "dict[str, _Content | _Directory | None]", *, is_simulated: bool) -> None:
        _apply(self.entries, step)
        if is_simulated:
            self.pending.append(step)

    def content(self, name: str) -> _Content:
        node = self.entries.get(name)
        if not isinstance(node, _Content):
            raise FileNotFoundError(errno.ENOENT, "no such file", name)
        return node


def _apply(
    entries: "dict[str, _Content | _Directory]", step: "dict[str, _Content | _Directory | None]"
) -> None:
    for name, node in step.items():
        if node is None:
            entries.pop(name, None)
        else:
            entries[name] = node


class MemoryFile:
    __slots__ = ("_content", "_disk", "_is_closed")

    def __init__(self, disk: "MemoryDisk", content: _Content) -> None:
        self._disk = disk
        self._content = content
        self._is_closed = False

    def read(self, position: int, size: int) -> bytes:
        if self._disk.is_simulated:
            self._disk.operation(kind=READ)
        with memoryview(self._content.data) as view:
            return bytes(view[position : position + size])

    def write(self, position: int, data: Buffer) -> None:
        content = self._content.data
        if self._disk.is_simulated:
            self._disk.operation(
                lambda: self._write_over(position, bytes(data)[: len(data) // 2]), kind=WRITE
            )
        if position == len(content):
            content += data
        else:
            self._write_over(position, data)

    def _write_over(self, position: int, data: Buffer) -> None:
        content = self._content.data
        if position > len(content):
            content += bytes(position - len(content))
        content[position : position + len(data)] = data
        self._content.kept = min(self._content.kept, position)

    def truncate(self, size: int) -> None:
        content = self._content.data
        if self._disk.is_simulated:
            self._disk.operation(kind=TRUNCATE)
        if size < len(content):
            del content[size:]
            self._content.kept = min(self._content.kept, size)
        else:
            content += bytes(size - len(content))

    def sync(self) -> None:
        if self._is_closed:
            raise FileClosed
        if self._disk.is_simulated:
            self._disk.operation(kind=SYNC)
            self._content.synced = bytes(self._content.data)

    def size(self) -> int:
        return len(self._content.data)

    def close(self) -> None:
        self._is_closed = True


class MemoryFolder:
    """A directory by what it is, not by its name: see `disk.Folder`."""

    __slots__ = ("_directory", "_disk")

    def __init__(self, disk: "MemoryDisk", directory: _Directory) -> None:
        self._disk = disk
        self._directory = directory

    def _change(self, kind: str, step: "dict[str, _Content | _Directory | None]") -> None:
        if self._disk.is_simulated:
            self._disk.operation(kind=kind)
        self._directory.change(step, is_simulated=self._disk.is_simulated)

    def open(self, name: str, *, create: bool = False) -> MemoryFile:
        if create and name not in self._directory.entries:
            self._change(CREATE, {name: _Content()})
        return MemoryFile(self._disk, self._directory.content(name))

    def read(self, name: str) -> bytes:
        content = self._directory.content(name)
        if self._disk.is_simulated:
            self._disk.operation(kind=READ)
        return bytes(content.data)

    def rename(self, source: str, target: str) -> None:
        self._change(RENAME, {source: None, target: self._directory.content(source)})

    def remove(self, name: str) -> None:
        if name in self._directory.entries:
            self._change(REMOVE, {name: None})

    def sync(self) -> None:
        if self._disk.is_simulated:
            self._disk.operation(kind=SYNC_DIRECTORY)
            _sync_entries(self._directory)

    def close(self) -> None:
        """Nothing is held."""


class MemoryDisk:
    def __init__(self, *, is_simulated: bool = False) -> None:
        self.name = "memory"
        self.is_simulated = is_simulated
        self.is_volatile = not is_simulated
        self.operations = 0
        """How many operations changed or synced something; counted on a simulated disk."""
        self.reads = 0
        """How many operations read a file's bytes; counted on a simulated disk."""
        self._root = _Directory()
        self._is_locked = False
        self._is_off = False
        self._fail_at = 0
        self._failure: BaseException | None = None
        self._failing: Container[str] = ()

    def fail_at(
        self, operation: int, failure: BaseException | None = None, *, kinds: Container[str] | None = None
    ) -> None:
        """The n-th operation from now fails, by a power cut if nothing else is given.

        With `kinds` it is the first operation of these kinds from the n-th on; `READS` alone counts reads. Unless
        told otherwise, an OSError of EIO waits for the next sync. After a power cut every operation fails.
        """
        assert self.is_simulated
        self._failure = failure or PowerLost("power lost")
        is_bad_disk = isinstance(failure, OSError) and failure.errno == errno.EIO
        self._failing = kinds if kinds is not None else SYNCS if is_bad_disk else SYNCS | CHANGES
        self._fail_at = (self.reads if kinds == READS else self.operations) + operation

    def stop_failing(self) -> None:
        """What `fail_at` has ordered and has not happened yet will not happen."""
        self._failure = None

    def operation(
        self, before_failing: Callable[[], None] | None = None, *, kind: str = WRITE, is_sync: bool = False
    ) -> None:
        """Counts one operation of a simulated disk, or fails it. A simulator may let others go first here."""
        kind = SYNC if is_sync else kind
        if self._is_off:
            raise PowerLost("the power is off")
        if kind == READ:
            self.reads += 1
            count = self.reads if self._failing == READS else self.operations
        else:
            self.operations += 1
            count = self.operations
        if self._failure is None or kind not in self._failing or count < self._fail_at:
            return
        failure, self._failure = self._failure, None
        self._is_off = isinstance(failure, PowerLost)
        if before_failing is not None:
            before_failing()
        raise failure

    def power_cycle(self, survival: random.Random | None = None) -> None:
        """Off and on again. What was not synced is gone, or, with `survival`, partly there as chance has it."""
        assert self.is_simulated
        self._root = _survivor(self._root, survival)
        self.restart()

    def restart(self) -> None:
        """The process died and the machine did not: all is as it was written."""
        self._is_locked = self._is_off = False
        self._failure = None

    def flip_bit(self, path: str, bit: int) -> None:
        """The disk has lost one bit of a file, counted from its first byte's lowest."""
        content = self._content(path)
        byte, shift = divmod(bit, 8)
        content.data[byte] ^= 1 << shift
        if byte < len(content.synced):
            synced = bytearray(content.synced)
            synced[byte] ^= 1 << shift
            content.synced = bytes(synced)

    def files(self, path: str = "") -> list[str]:
        """The paths of all files below a directory, sorted: for whoever chooses one to damage."""
        found = []
        for name, node in sorted(self._directory(path).entries.items()):
            below = f"{path}/{name}" if path else name
            found += self.files(below) if isinstance(node, _Directory) else [below]
        return found

    def new_lock(self) -> AbstractContextManager[object]:
        return threading.Lock()

    def lock(self) -> None:
        if self._is_locked:
            raise DirectoryLocked(f"The data directory {self.name} is in use by another broker.")
        self._is_locked = True

    def unlock(self) -> None:
        self._is_locked = False

    def _directory(self, path: str) -> _Directory:
        node: _Content | _Directory | None = self._root
        if path:
            for name in path.split("/"):
                node = node.entries.get(name) if isinstance(node, _Directory) else None
        if not isinstance(node, _Directory):
            raise FileNotFoundError(errno.ENOENT, "no such directory", path)
        return node

    def _node(self, path: str) -> "_Content | _Directory | None":
        parent, _, name = path.rpartition("/")
        try:
            return self._directory(parent).entries.get(name) if name else self._directory(parent)
        except FileNotFoundError:
            return None

    def _content(self, path: str) -> _Content:
        node = self._node(path)
        if not isinstance(node, _Content):
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        return node

    def _change(self, kind: str, directory: str, step: "dict[str, _Content | _Directory | None]") -> None:
        if self.is_simulated:
            self.operation(kind=kind)
        self._directory(directory).change(step, is_simulated=self.is_simulated)

    def open_folder(self, path: str) -> MemoryFolder:
        return MemoryFolder(self, self._directory(path))

    def open(self, path: str, *, create: bool = False) -> MemoryFile:
        if create and self._node(path) is None:
            parent, _, name = path.rpartition("/")
            self._change(CREATE, parent, {name: _Content()})
        return MemoryFile(self, self._content(path))

    def read(self, path: str) -> bytes:
        content = self._content(path)
        if self.is_simulated:
            self.operation(kind=READ)
        return bytes(content.data)

    def size(self, path: str) -> int:
        return len(self._content(path).data)

    def exists(self, path: str) -> bool:
        return self._node(path) is not None

    def list(self, path: str = "") -> list[str]:
        node = self._node(path)
        return sorted(node.entries) if isinstance(node, _Directory) else []

    def make_directory(self, path: str) -> None:
        if not self.exists(path):
            parent, _, name = path.rpartition("/")
            self._change(MAKE_DIRECTORY, parent, {name: _Directory()})

    def rename(self, source: str, target: str) -> None:
        parent, _, old = source.rpartition("/")
        new_parent, _, new = target.rpartition("/")
        assert parent == new_parent, "names change within a directory only"
        node = self._node(source)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", source)
        self._change(RENAME, parent, {old: None, new: node})

    def remove(self, path: str) -> None:
        if self.exists(path):
            parent, _, name = path.rpartition("/")
            self._change(REMOVE, parent, {name: None})

    def remove_directory(self, path: str) -> None:
        if not self.exists(path):
            return
        for name in self.list(path):
            self.remove(f"{path}/{name}")
        self.remove(path)

    def sync_directory(self, path: str = "") -> None:
        if self.is_simulated:
            self.operation(kind=SYNC_DIRECTORY)
            node = self._node(path)
            if isinstance(node, _Directory):
                _sync_entries(node)


def _sync_entries(directory: _Directory) -> None:
    directory.synced = dict(directory.entries)
    directory.pending.clear()


def _survivor(directory: _Directory, survival: random.Random | None) -> _Directory:
    """What a directory and its files are after the power comes back. Directory changes survive in order."""
    entries = dict(directory.synced)
    for step in directory.pending[: survival.randint(0, len(directory.pending)) if survival else 0]:
        _apply(entries, step)
    return _Directory(
        {
            name: _survivor(node, survival)
            if isinstance(node, _Directory)
            else _Content(_surviving_bytes(node, survival))
            for name, node in entries.items()
        }
    )


def _surviving_bytes(content: _Content, survival: random.Random | None) -> bytes:
    """The synced bytes that nobody has touched since are there, whatever else is."""
    now, synced, kept = bytes(content.data), content.synced, content.kept
    if survival is None or now == synced:
        return synced
    match survival.choice(["lost", "kept", "torn", "zeroed", "scattered"]):
        case "lost":
            return synced
        case "kept":
            return now
        case "torn":
            return now[: survival.randint(kept, len(now))]
        case "zeroed":
            # The file has its new length, and the sectors after some point never reached the disk.
            cut = min(len(now), survival.randint(kept, len(now)) // SECTOR * SECTOR + SECTOR)
            return now[:cut] + bytes(len(now) - cut)
    # Written back in any order: of the sectors that changed, each has reached the disk or not.
    left = bytearray(now)
    for start in range(kept // SECTOR * SECTOR, len(now), SECTOR):
        if survival.random() < 0.5:
            first, end = max(start, kept), min(start + SECTOR, len(now))
            left[first:end] = bytes(end - first)
    return bytes(left)
