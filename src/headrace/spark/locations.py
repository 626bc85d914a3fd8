"""Where a checkpoint is: a folder that this process can open, or a folder in an object store.

The source reads what Spark writes to the checkpoint and keeps notes of its own beside it. Both kinds of place are used
by the few methods that `ObjectPath` has, which are those of `pathlib.Path`: exists, read_text, glob, unlink; and by
`write_durably`. A note is always put in place whole. Local files can be locked as well (`checkpoint.lock_file`);
objects cannot, nor can pyarrow create one only if there is none, so whoever must be alone does it by the order of
reads and writes (`ahead_notes.py`). Object stores give what was written last, to every reader.

Object stores are opened by pyarrow, which Spark's Python has anyway, in the driver's processes alone. Spark does not
tell a Python source its Hadoop settings, so credentials come from the environment, as the store's own libraries read
it: variables, profiles, and the role of the machine, the pod or the service account.
"""

import errno
import fnmatch
import itertools
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from headrace.spark.errors import CheckpointError, OptionError

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

logger = logging.getLogger("headrace.spark")
S3, AZURE, GOOGLE = ("s3", "s3a"), ("abfs", "abfss"), ("gs",)
HADOOP = ("hdfs", "viewfs", "webhdfs")
_writes = itertools.count()
S3_ENDPOINT = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
S3_REGION = ("AWS_REGION", "AWS_DEFAULT_REGION")
CONNECT_S, REQUEST_S, ATTEMPTS = 10, 30, 5
_CANNOT_SYNC = (errno.EINVAL, errno.ENOTSUP, errno.ENOSYS, errno.EROFS)
"""What a file system says that has no such thing for directories."""
_told_file_systems: set[int] = set()
"""By device: those whose directories this process could not sync."""


@dataclass(frozen=True, slots=True)
class ObjectPath:
    """A folder or an object: scheme and bucket (or container and account), and a path without a slash at its ends."""

    root: str
    path: str

    def __str__(self) -> str:
        return f"{self.root}/{self.path}"

    def __truediv__(self, name: str) -> "ObjectPath":
        return ObjectPath(self.root, f"{self.path}/{name}")

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]

    @property
    def stem(self) -> str:
        return self.name.rpartition(".")[0] or self.name

    @property
    def parent(self) -> "ObjectPath":
        return ObjectPath(self.root, self.path.rpartition("/")[0])

    def with_name(self, name: str) -> "ObjectPath":
        return self.parent / name

    def exists(self) -> bool:
        from pyarrow.fs import FileType

        with self._told("looked for"):
            return bool(self._files.get_file_info(self._key).type != FileType.NotFound)

    def read_text(self, encoding: str = "utf-8") -> str:
        """FileNotFoundError where there is none."""
        with self._told("read"), self._files.open_input_stream(self._key) as file:
            return str(file.read(), encoding)

    def glob(self, pattern: str) -> Iterator["ObjectPath"]:
        """What is directly in this folder; nothing where there is no such folder."""
        from pyarrow.fs import FileSelector

        with self._told("listed"):
            found = self._files.get_file_info(FileSelector(self._key, allow_not_found=True))
        return (self / each.base_name for each in found if fnmatch.fnmatchcase(each.base_name, pattern))

    def unlink(self, missing_ok: bool = False) -> None:
        try:
            with self._told("removed"):
                self._files.delete_file(self._key)
        except FileNotFoundError:
            if not missing_ok:
                raise

    def write_whole(self, text: str) -> None:
        """Replaces the object. The store has it when this returns; until then there is what was there before."""
        with self._told("written"):
            # Azure shows an object while it is written; there it is renamed, which replaces what had the name.
            is_shown = self.root.startswith(AZURE)
            key = f"{self._key}.{os.getpid()}.tmp" if is_shown else self._key
            with self._files.open_output_stream(key) as file:
                file.write(text.encode())
            if is_shown:
                self._files.move(key, self._key)

    @property
    def _files(self) -> "FileSystem":
        return _files_of(self.root, os.getpid())

    @property
    def _key(self) -> str:
        """As pyarrow names it: it begins with the bucket or the container."""
        bucket = self.root.partition("://")[2].partition("@")[0]
        return f"{bucket}/{self.path}"

    @contextmanager
    def _told(self, what: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            raise
        except OSError as error:
            raise CheckpointError(
                f"{self} could not be {what} ({error}). Python opens the checkpoint's object store by the environment "
                "of the driver: credentials (variables, profile or role) and, for a store that is not the provider's "
                "own, AWS_ENDPOINT_URL. They are not read from Spark's settings."
            ) from error


Location: TypeAlias = Path | ObjectPath


def locate(location: str) -> Location:
    """The folder that a checkpoint location names, read as Spark reads it.

    That is: nothing is unquoted, and a relative path begins at the directory of this process. Spark's begin where its
    driver was started; so do those of the source, since its processes are the driver's children.
    """
    scheme, colon, path = location.partition(":")
    if not colon or len(scheme) <= 1 or "/" in scheme:
        return Path(os.path.abspath(location))
    host = ""
    if path.startswith("//"):
        host, slash, path = path.removeprefix("//").partition("/")
        path = slash + path
    if scheme == "file" and host in ("", "localhost"):
        return Path(os.path.abspath(path))
    parts = [part for part in path.split("/") if part]
    if scheme in (*S3, *AZURE, *GOOGLE) and host and parts and ("@" in host) == (scheme in AZURE):
        return ObjectPath(f"{scheme}://{host}", "/".join(parts))
    if scheme in HADOOP:
        raise OptionError(
            f"checkpointLocation={location!r}: the source cannot keep its notes in HDFS, which Python opens only with "
            "Hadoop's native library and a JVM of its own. Use an object store, mount HDFS and give its path to "
            "readStream and writeStream, or leave the option out of readStream; then every outcome is ACCEPT. "
            "writeStream's may stay in HDFS."
        )
    raise OptionError(
        f"checkpointLocation={location!r} is not a supported location. It may be a local or mounted path, "
        "s3a://BUCKET/PATH, gs://BUCKET/PATH or abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/PATH. With a checkpoint "
        "elsewhere leave the option out of readStream; then every outcome is ACCEPT. writeStream's may be anywhere."
    )


def spark_location(location: Location) -> str:
    """As Spark is told: with the scheme, or it would look in its default file system; not quoted, since Spark does not
    unquote."""
    return f"file://{location}" if isinstance(location, Path) else str(location)


def write_durably(location: Location, text: str) -> None:
    """Whole or not at all, and kept when it returns."""
    if isinstance(location, ObjectPath):
        location.write_whole(text)
        return
    location.parent.mkdir(parents=True, exist_ok=True)
    # Unique also within a process: a reader that was replaced may write the same file late.
    temporary = location.parent / f".{location.stem}.{os.getpid()}-{next(_writes)}.tmp"
    with temporary.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.rename(location)
    sync_folder(location.parent)


def sync_file(path: Path) -> None:
    """Its bytes, whoever wrote them."""
    sync_path(path)


def sync_folder(folder: Path) -> None:
    """The names of what is in it. If its file system has no such thing, this is logged, once in a process."""
    try:
        sync_path(folder)
    except OSError as error:
        if error.errno not in _CANNOT_SYNC:
            raise
        if _is_first_told(folder):
            logger.warning(
                "The file system of %s cannot sync directories (%s): a power failure may remove new files from it, "
                "and with them records that were accepted.",
                *(folder, error),
            )


def sync_folders(folder: Path) -> None:
    """A folder and those above it, as far as we may: they may be new."""
    sync_folder(folder)
    for each in folder.parents:
        try:
            sync_path(each)
        except PermissionError:
            return
        except OSError as error:
            if error.errno not in _CANNOT_SYNC:
                raise
            if _is_first_told(each):
                logger.warning(
                    "%s cannot be synced (%s): if directories in it that lead to %s are new, a power failure may "
                    "remove them.",
                    *(each, error, folder),
                )


def sync_path(path: Path) -> None:
    """OSError where the file system or the disk says no."""
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def _is_first_told(folder: Path) -> bool:
    device = folder.stat().st_dev
    is_first = device not in _told_file_systems
    _told_file_systems.add(device)
    return is_first


@cache
def _files_of(root: str, process: int) -> "FileSystem":
    """`process` because a connection must not be used on both sides of a fork."""
    from pyarrow import fs

    scheme, _, host = root.partition("://")
    if scheme in S3:
        endpoint = _first_set(S3_ENDPOINT)
        region = _first_set(S3_REGION)
        if region is None and endpoint is None:
            region = fs.resolve_s3_region(host)
        return fs.S3FileSystem(
            endpoint_override=endpoint,
            region=region,
            connect_timeout=CONNECT_S,
            request_timeout=REQUEST_S,
            retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=ATTEMPTS),
            background_writes=False,
            allow_delayed_open=True,  # one request for a small object
        )
    if scheme in AZURE:
        return fs.AzureFileSystem(host.partition("@")[2].partition(".")[0])
    return fs.GcsFileSystem()


def _first_set(names: tuple[str, ...]) -> str | None:
    return next((os.environ[name] for name in names if os.environ.get(name)), None)
