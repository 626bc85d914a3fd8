"""A disk in memory: for brokers that keep nothing, and, with `is_simulated`, for tests that lose power.

A simulated disk remembers what has been synced. `power_cycle` forgets the rest, wholly or in part as a real disk
might, and `fail_at(n, ...)` makes the n-th operation from then on lose power, find the disk full, or fail to sync.
"""

import errno
import random
from collections.abc import Callable

from headrace.log.disk import Buffer, DirectoryLocked, FileClosed, PowerLost

SECTOR = 512


class _Content:
    """What an inode is to a file system: bytes that names point to."""

    __slots__ = ("data", "synced")

    def __init__(self, data: bytes = b"") -> None:
        self.data = bytearray(data)
        self.synced = data


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
        with memoryview(self._content.data) as view:
            return bytes(view[position : position + size])

    def write(self, position: int, data: Buffer) -> None:
        content = self._content.data
        if self._disk.is_simulated:
            self._disk.operation(lambda: self._write_part(position, data))
        if position == len(content):
            content += data
        else:
            self._write_over(position, data)

    def _write_over(self, position: int, data: Buffer) -> None:
        content = self._content.data
        if position > len(content):
            content += bytes(position - len(content))
        content[position : position + len(data)] = data

    def _write_part(self, position: int, data: Buffer) -> None:
        self._write_over(position, bytes(data)[: len(data) // 2])

    def truncate(self, size: int) -> None:
        content = self._content.data
        if self._disk.is_simulated:
            self._disk.operation()
        if size < len(content):
            del content[size:]
        else:
            content += bytes(size - len(content))

    def sync(self) -> None:
        if self._is_closed:
            raise FileClosed
        if self._disk.is_simulated:
            self._disk.operation(is_sync=True)
            self._content.synced = bytes(self._content.data)

    def size(self) -> int:
        return len(self._content.data)

    def close(self) -> None:
        self._is_closed = True


class MemoryDisk:
    def __init__(self, *, is_simulated: bool = False) -> None:
        self.name = "memory"
        self.is_simulated = is_simulated
        self.is_volatile = not is_simulated
        self.operations = 0
        """How many operations changed or synced something; counted on a simulated disk."""
        self._root = _Directory()
        self._is_locked = False
        self._is_off = False
        self._fail_at = 0
        self._failure: BaseException | None = None

    def fail_at(self, operation: int, failure: BaseException | None = None) -> None:
        """The n-th operation from now fails, by a power cut if nothing else is given.

        An OSError of EIO waits for the next sync from then on. After a power cut every operation fails.
        """
        assert self.is_simulated
        self._fail_at = self.operations + operation
        self._failure = failure or PowerLost("power lost")

    def operation(self, before_failing: Callable[[], None] | None = None, *, is_sync: bool = False) -> None:
        """Counts one operation of a simulated disk, or fails it."""
        if self._is_off:
            raise PowerLost("the power is off")
        self.operations += 1
        if self._failure is None or self.operations < self._fail_at:
            return
        failure = self._failure
        if isinstance(failure, OSError) and failure.errno == errno.EIO and not is_sync:
            return
        self._failure = None
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

    def _change(self, directory: str, step: "dict[str, _Content | _Directory | None]") -> None:
        if self.is_simulated:
            self.operation()
        self._directory(directory).change(step, is_simulated=self.is_simulated)

    def open(self, path: str, *, create: bool = False) -> MemoryFile:
        if create and self._node(path) is None:
            parent, _, name = path.rpartition("/")
            self._change(parent, {name: _Content()})
        return MemoryFile(self, self._content(path))

    def read(self, path: str) -> bytes:
        return bytes(self._content(path).data)

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
            self._change(parent, {name: _Directory()})

    def rename(self, source: str, target: str) -> None:
        parent, _, old = source.rpartition("/")
        new_parent, _, new = target.rpartition("/")
        assert parent == new_parent, "names change within a directory only"
        node = self._node(source)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", source)
        self._change(parent, {old: None, new: node})

    def remove(self, path: str) -> None:
        if self.exists(path):
            parent, _, name = path.rpartition("/")
            self._change(parent, {name: None})

    def remove_directory(self, path: str) -> None:
        if not self.exists(path):
            return
        for name in self.list(path):
            self.remove(f"{path}/{name}")
        self.remove(path)

    def sync_directory(self, path: str = "") -> None:
        if self.is_simulated:
            self.operation(is_sync=True)
            node = self._node(path)
            if isinstance(node, _Directory):
                node.synced = dict(node.entries)
                node.pending.clear()


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
    now, synced = bytes(content.data), content.synced
    if survival is None or now == synced:
        return synced
    if not now.startswith(synced):
        return survival.choice([now, synced])
    match survival.choice(["lost", "kept", "torn", "zeroed"]):
        case "lost":
            return synced
        case "kept":
            return now
        case "torn":
            return now[: survival.randint(len(synced), len(now))]
    # The file has its new length, and the sectors after some point never reached the disk.
    cut = min(len(now), survival.randint(len(synced), len(now)) // SECTOR * SECTOR + SECTOR)
    return now[:cut] + bytes(len(now) - cut)
