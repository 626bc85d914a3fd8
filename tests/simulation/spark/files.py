"""Checkpoints: real files in a folder of this life, with a memory of what is safe from a power cut.

The source opens, renames and syncs files by itself, so they are real ones. `os.fsync`, `os.rename`, `os.replace` and
`os.unlink` are replaced: a thread of a node gives way before each, and what was synced is remembered: the bytes of a
file, the entries of a folder. A power cut leaves of everything else what chance wants: a file may be as it is, as it
was synced last, torn or empty; a name may be there or not.
"""

import fcntl
import os
import shutil
import tempfile
from pathlib import Path
from random import Random
from typing import IO, Any

from tests.simulation.spark.threads import Killed, current

FOLDER = None
"""For the entries of folders: a folder is there, whatever is in it."""
_fsync, _rename, _replace, _unlink, _scandir = os.fsync, os.rename, os.replace, os.unlink, os.scandir
_flock = fcntl.flock
_files: "list[Files]" = []


class Files:
    def __init__(self) -> None:
        memory = Path("/dev/shm")
        self.root = Path(
            tempfile.mkdtemp(prefix="headrace-simulation-", dir=memory if memory.is_dir() else None)
        )
        self._numbers = 0
        self._ids: dict[str, int] = {}
        """Which file a path leads to; one that was never synced may have none."""
        self._contents: dict[int, bytes] = {}
        """What is safe of each."""
        self._entries: dict[str, dict[str, int | None]] = {str(self.root): {}}
        """What is safe of each folder."""
        _files[:] = [self]

    def remove(self) -> None:
        shutil.rmtree(self.root, ignore_errors=True)

    def has(self, path: str) -> bool:
        return path.startswith(str(self.root))

    # What happens

    def synced(self, path: str) -> None:
        if os.path.isdir(path):
            self._entries[path] = {
                name: FOLDER if os.path.isdir(f"{path}/{name}") else self._id(f"{path}/{name}")
                for name in sorted(os.listdir(path))
            }
        elif os.path.exists(path):
            self._contents[self._id(path)] = Path(path).read_bytes()

    def renamed(self, source: str, target: str) -> None:
        self._ids[target] = self._id(source)
        del self._ids[source]

    def unlinked(self, path: str) -> None:
        self._ids.pop(path, None)

    def _id(self, path: str) -> int:
        if path not in self._ids:
            self._numbers += 1
            self._ids[path] = self._numbers
        return self._ids[path]

    # What is asked

    def safe(self, path: Path) -> bytes | None:
        """What a power cut would leave of a file at least; None when it might be gone."""
        parent = path
        while parent != self.root:
            parent, name = parent.parent, parent.name
            if name not in self._entries.get(str(parent), {}):
                return None
        number = self._entries[str(path.parent)][path.name]
        return None if number is None else self._contents.get(number, b"")

    # Faults

    def cut_power(self, folder: Path, rng: Random) -> None:
        survival = rng.choice((0.0, 0.5, 0.9))
        self._cut(str(folder), rng, survival)
        self.sync_all(folder)

    def sync_all(self, folder: Path) -> None:
        """What is there now is safe."""
        path = str(folder)
        while path != str(self.root):
            path = os.path.dirname(path)
            self.synced(path)
        for at, _, names in os.walk(folder):
            for name in names:
                self.synced(f"{at}/{name}")
            self.synced(at)

    def _cut(self, folder: str, rng: Random, survival: float) -> None:
        safe = self._entries.get(folder, {})
        for name in sorted({*safe, *os.listdir(folder)}):
            path = f"{folder}/{name}"
            if os.path.isdir(path):
                if name in safe or rng.random() < survival:
                    self._cut(path, rng, survival)
                else:
                    shutil.rmtree(path)
                continue
            found = Path(path).read_bytes() if os.path.exists(path) else None
            number = self._ids.get(path)
            if (name not in safe or safe[name] != number) and rng.random() >= survival:
                # The name leads to what it led to when the folder was synced.
                kept = safe.get(name)
                found, number = (None if kept is None else self._contents.get(kept, b"")), kept
            if found is None:
                if os.path.exists(path):
                    _unlink(path)
                continue
            content = b"" if number is None else self._contents.get(number, b"")
            if content != found and rng.random() >= survival:
                found = content if rng.random() < 0.7 else found[: len(found) // 2]
            Path(path).write_bytes(found)
        for path in [path for path in self._ids if os.path.dirname(path) == folder]:
            del self._ids[path]


def install() -> None:
    """Once in a process: its lives have no other files."""
    os.fsync = fsync
    os.rename = rename
    os.replace = replace
    os.unlink = unlink
    os.scandir = scandir
    fcntl.flock = flock


def _path_of(fd: int) -> str:
    if os.path.exists("/proc/self/fd"):
        return os.readlink(f"/proc/self/fd/{fd}")
    return fcntl.fcntl(fd, 50, bytes(1024)).rstrip(b"\0").decode()  # F_GETPATH of macOS


def _pause() -> None:
    thread = current()
    if thread is not None:
        thread.pause()


def fsync(file: Any) -> None:
    if not _files:
        _fsync(file)
        return
    _pause()
    path = _path_of(file if isinstance(file, int) else file.fileno())
    if _files[0].has(path):
        _files[0].synced(path)


def rename(source: Any, target: Any, **named: Any) -> None:
    _pause()
    _rename(source, target, **named)
    if _files and _files[0].has(os.fspath(target)):
        _files[0].renamed(os.fspath(source), os.fspath(target))


def replace(source: Any, target: Any, **named: Any) -> None:
    rename(source, target, **named)


def unlink(path: Any, **named: Any) -> None:
    if _files and isinstance(path, (str, os.PathLike)) and _files[0].has(os.fspath(path)):
        _pause()
        _unlink(path, **named)
        _files[0].unlinked(os.fspath(path))
    else:
        _unlink(path, **named)


class _Sorted:
    def __init__(self, path: Any) -> None:
        with _scandir(path) as found:
            self._entries = iter(sorted(found, key=lambda entry: entry.name))

    def __enter__(self) -> "_Sorted":
        return self

    def __exit__(self, *_: object) -> None: ...

    def __iter__(self) -> "_Sorted":
        return self

    def __next__(self) -> Any:
        return next(self._entries)

    def close(self) -> None: ...


def scandir(path: Any = ".") -> Any:
    """In the same order in every process."""
    is_ours = _files and isinstance(path, (str, os.PathLike)) and _files[0].has(os.fspath(path))
    return _Sorted(path) if is_ours else _scandir(path)


def flock(file: Any, operation: int) -> None:
    """Locks end with their process: here it closes the files that it had locked."""
    thread = current()
    if thread is not None:
        if thread.node.is_dead:
            raise Killed
        thread.node.locked.append(file)
    _flock(file, operation)


def close_all(files: list[IO[str]]) -> None:
    for file in files:
        if not file.closed:
            file.close()
