"""Where bytes are kept: a folder of the machine, or memory that can be made to fail.

Everything the log does to storage goes through these few methods, so that tests can lose power at any of them.
Paths are relative to the disk's root and use "/". A file's bytes are safe after `File.sync`; that a file exists,
or has a new name, is safe after `sync_directory` of its directory.
"""

import contextlib
import fcntl
import logging
import os
import shutil
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol, TypeVar

from headrace.log.errors import FILES_USED_UP

logger = logging.getLogger("headrace.log")
T = TypeVar("T")
Buffer = bytes | bytearray | memoryview

LOCK_NAME = ".lock"
FOLDER_MODE, FILE_MODE = 0o700, 0o600
"""Records and credentials are for the user that runs the broker."""


class DirectoryLocked(Exception):
    """Another broker uses this data directory. Stop it first, or choose another directory."""


class PowerLost(BaseException):
    """The simulated machine is off: see `MemoryDisk.power_cycle`. No code survives that, so none may catch it."""


class FileClosed(Exception):
    """The file was closed by another thread; open it again by its path."""


class File(Protocol):
    """An open file. Used by one thread, except for `sync` and `close`, which may meet from two."""

    def read(self, position: int, size: int) -> bytes:
        """Up to `size` bytes: fewer where the file ends."""

    def write(self, position: int, data: Buffer) -> None:
        """All of it, or OSError with an unknown part of it written."""

    def truncate(self, size: int) -> None: ...
    def sync(self) -> None:
        """Returns when everything written so far would survive a power cut. FileClosed if it cannot."""

    def size(self) -> int: ...
    def close(self) -> None: ...


class Folder(Protocol):
    """A directory, whatever its name is by now: another one that has taken its name since is not touched.

    For workers, while the loop's thread may rename directories. Names are of files in it.
    """

    def open(self, name: str, *, create: bool = False) -> File: ...
    def read(self, name: str) -> bytes: ...
    def rename(self, source: str, target: str) -> None: ...
    def remove(self, name: str) -> None:
        """Does nothing if there is no such file."""

    def sync(self) -> None: ...
    def close(self) -> None: ...


class Disk(Protocol):
    @property
    def name(self) -> str:
        """For messages to people."""

    @property
    def is_volatile(self) -> bool:
        """True where syncing means nothing."""

    def lock(self) -> None:
        """Makes this the only process that uses the disk, or raises DirectoryLocked."""

    def unlock(self) -> None: ...
    def new_lock(self) -> AbstractContextManager[object]:
        """To keep workers apart while they use the disk. The loop's thread never takes one."""

    def open_folder(self, path: str) -> Folder:
        """FileNotFoundError."""

    def open(self, path: str, *, create: bool = False) -> File: ...
    def read(self, path: str) -> bytes:
        """A whole file; FileNotFoundError."""

    def size(self, path: str) -> int: ...
    def exists(self, path: str) -> bool: ...
    def list(self, path: str = "") -> list[str]:
        """Names in a directory, sorted; none if there is no such directory."""

    def make_directory(self, path: str) -> None:
        """Does nothing if it is there."""

    def rename(self, source: str, target: str) -> None:
        """Replaces a file `target` in one step."""

    def remove(self, path: str) -> None:
        """Does nothing if there is no such file."""

    def remove_directory(self, path: str) -> None:
        """With all that is in it."""

    def sync_directory(self, path: str = "") -> None: ...


class SpareDescriptor:
    """An open file that is given up where the process has used up its descriptors, and opened again later.

    What has to be synced must be opened first. Whoever uses this process, perhaps with too many files of its own, can
    keep the broker from writing, but not from making safe what it has written: a sync that fails ends the broker.
    """

    WAIT_S = 30.0
    """Others may be faster to take the descriptor that was given up."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._descriptor = -1

    def keep(self) -> None:
        if self._descriptor < 0:
            with self._guard, contextlib.suppress(OSError):
                if self._descriptor < 0:
                    self._descriptor = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)

    def give_up(self) -> None:
        with self._guard:
            if self._descriptor >= 0:
                os.close(self._descriptor)
                self._descriptor = -1

    def open(self, attempt: Callable[[], T]) -> T:
        """On a worker's thread: it may wait."""
        try:
            return attempt()
        except OSError as error:
            if error.errno not in FILES_USED_UP:
                raise
            logger.warning("a sync has to wait: %s", error)
        give_up_s = time.monotonic() + self.WAIT_S
        while True:
            self.give_up()
            try:
                return attempt()
            except OSError as error:
                if error.errno not in FILES_USED_UP or time.monotonic() > give_up_s:
                    raise
            time.sleep(0.01)


SPARE = SpareDescriptor()
"""Descriptors belong to the process."""


def parent_of(path: str) -> str:
    return path.rpartition("/")[0]


def write_file(disk: Disk, path: str, data: Buffer) -> None:
    """A whole file, not synced: for what can be made again."""
    file = disk.open(path, create=True)
    try:
        file.truncate(0)
        file.write(0, data)
    finally:
        file.close()


def sync_file(disk: Disk, path: str) -> None:
    """Does nothing if there is no such file (any more)."""
    with contextlib.suppress(FileNotFoundError):
        file = SPARE.open(lambda: disk.open(path))
        try:
            file.sync()
        finally:
            file.close()
            SPARE.keep()


def replace_file(disk: Disk, path: str, data: Buffer) -> None:
    """Old content or new content, whatever happens; safe when it returns."""
    draft = path + ".tmp"
    write_file(disk, draft, data)
    sync_file(disk, draft)
    disk.rename(draft, path)
    disk.sync_directory(parent_of(path))


def _sync_descriptor(descriptor: int) -> None:
    full_sync = getattr(fcntl, "F_FULLFSYNC", None)  # macOS: fsync alone stops at the drive's own cache
    if full_sync is not None:
        fcntl.fcntl(descriptor, full_sync)
    else:
        os.fdatasync(descriptor)


class OsFile:
    __slots__ = ("_descriptor", "_guard", "_is_closed", "_syncs")

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._guard = threading.Lock()
        self._syncs = 0
        self._is_closed = False

    def read(self, position: int, size: int) -> bytes:
        data = os.pread(self._descriptor, size, position)
        if len(data) == size or not data:
            return data
        parts = [data]  # the system may give less than is there
        while data:
            position += len(data)
            size -= len(data)
            data = os.pread(self._descriptor, size, position)
            parts.append(data)
        return b"".join(parts)

    def write(self, position: int, data: Buffer) -> None:
        written = os.pwrite(self._descriptor, data, position)
        if written < len(data):
            with memoryview(data) as view:
                while written < len(view):
                    written += os.pwrite(self._descriptor, view[written:], position + written)

    def truncate(self, size: int) -> None:
        os.ftruncate(self._descriptor, size)

    def sync(self) -> None:
        with self._guard:
            if self._is_closed:
                raise FileClosed
            self._syncs += 1
        try:
            _sync_descriptor(self._descriptor)
        finally:
            with self._guard:
                self._syncs -= 1
                if self._is_closed and not self._syncs:
                    os.close(self._descriptor)

    def size(self) -> int:
        return os.fstat(self._descriptor).st_size

    def close(self) -> None:
        """A sync that is under way in another thread ends first; the descriptor must not be reused under it."""
        with self._guard:
            if not self._is_closed:
                self._is_closed = True
                if not self._syncs:
                    os.close(self._descriptor)


class OsFolder:
    __slots__ = ("_descriptor",)

    def __init__(self, path: str) -> None:
        self._descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def open(self, name: str, *, create: bool = False) -> OsFile:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        return OsFile(os.open(name, flags, FILE_MODE, dir_fd=self._descriptor))

    def read(self, name: str) -> bytes:
        file = self.open(name)
        try:
            return file.read(0, file.size())
        finally:
            file.close()

    def rename(self, source: str, target: str) -> None:
        os.replace(source, target, src_dir_fd=self._descriptor, dst_dir_fd=self._descriptor)

    def remove(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.remove(name, dir_fd=self._descriptor)

    def sync(self) -> None:
        os.fsync(self._descriptor)

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class OsDisk:
    """A folder of this machine; made if missing."""

    is_volatile = False

    def __init__(self, folder: str | os.PathLike[str], *, is_read_only: bool = False) -> None:
        self.name = os.path.abspath(os.fspath(folder))
        self._is_read_only = is_read_only
        self._lock_descriptor = -1

    def _path(self, path: str) -> str:
        return f"{self.name}/{path}" if path else self.name

    def lock(self) -> None:
        os.makedirs(self.name, FOLDER_MODE, exist_ok=True)
        self._lock(os.open(self._path(LOCK_NAME), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE))

    def _lock(self, descriptor: int) -> None:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise DirectoryLocked(
                f"The data directory {self.name} is in use by another broker. "
                "Stop that broker, or use another directory."
            ) from None
        self._lock_descriptor = descriptor
        SPARE.keep()

    def lock_to_read(self) -> None:
        """The same for whoever changes nothing, perhaps because nothing can be written there."""
        try:
            descriptor = os.open(self._path(LOCK_NAME), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return  # a broker that runs has made it
        self._lock(descriptor)

    def unlock(self) -> None:
        if self._lock_descriptor >= 0:
            os.close(self._lock_descriptor)
            self._lock_descriptor = -1

    def new_lock(self) -> AbstractContextManager[object]:
        return threading.Lock()

    def open_folder(self, path: str) -> OsFolder:
        return OsFolder(self._path(path))

    def open(self, path: str, *, create: bool = False) -> OsFile:
        access = os.O_RDONLY if self._is_read_only else os.O_RDWR
        flags = access | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        return OsFile(os.open(self._path(path), flags, FILE_MODE))

    def read(self, path: str) -> bytes:
        with open(self._path(path), "rb") as file:
            return file.read()

    def size(self, path: str) -> int:
        return os.stat(self._path(path)).st_size

    def exists(self, path: str) -> bool:
        return os.path.exists(self._path(path))

    def list(self, path: str = "") -> list[str]:
        try:
            return sorted(os.listdir(self._path(path)))
        except FileNotFoundError:
            return []

    def make_directory(self, path: str) -> None:
        os.makedirs(self._path(path), FOLDER_MODE, exist_ok=True)

    def rename(self, source: str, target: str) -> None:
        os.replace(self._path(source), self._path(target))

    def remove(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.remove(self._path(path))

    def remove_directory(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(self._path(path))

    def sync_directory(self, path: str = "") -> None:
        try:
            descriptor = SPARE.open(lambda: os.open(self._path(path), os.O_RDONLY | os.O_CLOEXEC))
        except FileNotFoundError:
            return  # deleted since: nothing to keep
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
            SPARE.keep()
