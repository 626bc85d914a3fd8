"""Looks into Spark's checkpoint: has it logged, has it committed the micro-batch of an offset?

Spark asks `latestOffset(start)` only after it has committed the micro-batch that ends at `start`, and `partitions` only
after it has logged its end; acknowledging there rests on it. With asynchronous progress tracking it asks earlier. Then
a crash would forget which records a micro-batch held, after they were accepted. And a checkpoint may be another
query's. So before it acknowledges, the reader looks.

On a local file system Spark leaves its logs to the page cache: a power cut may take what it has "durably" logged. The
records of a lost log entry would be accepted at the broker and known to nobody, and its batch id would be given to
other records, which a repeatable sink takes for the same. So the entry is synced before its records are accepted.
A commit that is lost makes Spark repeat the micro-batch, and user code may decide about its records in another way. So
where it decides about records, the entry of the commit log is synced before that is carried out.
"""

import json
import logging
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any
from uuid import uuid4

from headrace.spark.errors import CheckpointError
from headrace.spark.locations import (
    Location,
    ObjectPath,
    sync_file,
    sync_folder,
    sync_folders,
    write_durably,
)
from headrace.wire.ids import uuid_text

logger = logging.getLogger("headrace.spark")
CLAIMS_MAX = 16
MEMBER_ID_LENGTH = 22
OLD_READER_S = 30.0
"""How long a new reader waits for the old one of the same query to close."""
SOURCE_EVOLUTION = "spark.sql.streaming.queryEvolution.enableSourceEvolution"
MOUNT_S = 2.0
CURE = (
    "Give readStream and writeStream the same checkpointLocation, and each query one of its own; and leave "
    "asyncProgressTrackingEnabled out of writeStream: with asynchronous progress tracking records would be lost in a "
    "crash."
)


def is_committed(checkpoint: Location, offset: Mapping[str, Any]) -> bool:
    """Whether the newest micro-batch in the offset log ends at this offset and is in the commit log."""
    newest = _newest(checkpoint / "offsets")
    if newest is None or not (checkpoint / "commits" / newest.name).exists():
        return False
    return _is_in(newest, offset)


def is_logged(checkpoint: Location, offset: Mapping[str, Any]) -> bool:
    """Whether the newest micro-batch in the offset log ends at this offset."""
    newest = _newest(checkpoint / "offsets")
    return newest is not None and _is_in(newest, offset)


def require_own(checkpoint: Location, offset: Mapping[str, Any]) -> None:
    """For the first offset of a new query: the checkpoint is new, or has this offset from another source's batches.

    Or the query may have new sources; then `require_logged` finds out whether the checkpoint is its own.
    """
    newest = _newest(checkpoint / "offsets")
    if newest is not None and not _is_in(newest, offset) and not _may_get_sources(newest):
        raise CheckpointError(
            f"checkpointLocation={str(checkpoint)!r}, as given to readStream, belongs to another query: it has "
            "offsets, and this query starts without any. Give each query a checkpointLocation of its own, the same in "
            "readStream and writeStream; a DataFrame that is written twice has to be loaded twice."
        )


def require_logged(checkpoint: Location, offset: Mapping[str, Any]) -> Location:
    """Spark's offset log ends with this offset. Returns its file there."""
    if not _soon(lambda: is_logged(checkpoint, offset)):
        raise CheckpointError(
            f"Spark runs micro-batch {offset.get('seq')}, which the offset log in {checkpoint} does not hold. {CURE}"
        )
    newest = _newest(checkpoint / "offsets")
    assert newest is not None
    if commit_of(newest).exists():
        # Spark runs it again if the entries of the offset log after it are gone and their commits are not.
        raise CheckpointError(
            f"{checkpoint} shows micro-batch {newest.name} as committed, and Spark runs it: later entries of its "
            "offset log have been lost, with the records that they named, or another query writes to it. "
            "Restore the folder `offsets` from a backup that is as new as `commits`, or give the query a new "
            "checkpointLocation; then records whose acknowledgement was not confirmed are processed again."
        )
    return newest


def commit_of(logged: Location) -> Location:
    """The file that is there when the micro-batch of an entry of the offset log is committed."""
    return logged.parent.parent / "commits" / logged.name


def require_committed(checkpoint: Location, offset: Mapping[str, Any]) -> Location:
    """Spark's offset log ends with this offset, and it is committed. Returns its file in the offset log."""
    if not _soon(lambda: is_committed(checkpoint, offset)):
        raise CheckpointError(
            f"Spark asks for records beyond micro-batch {offset.get('seq')}, which {checkpoint} does not show as "
            f"committed. {CURE}"
        )
    newest = _newest(checkpoint / "offsets")
    assert newest is not None
    return newest


class LogSync:
    """Makes entries of Spark's offset log and commit log safe from a power cut."""

    def __init__(self) -> None:
        self._synced: dict[str, Path] = {}
        """The last entry of each log."""

    def sync(self, logged: Location) -> None:
        """An entry and the folders that lead to it are on disk when it returns; CheckpointError when they cannot be.

        An object store keeps what it shows. Of a file system that cannot sync directories, the files are synced.
        """
        if isinstance(logged, ObjectPath):
            return
        log = logged.parent.name
        if logged == self._synced.get(log):
            return
        checkpoint = logged.parent.parent
        # When Spark starts it also reads the entry before, which nobody has synced if it had no records of ours.
        before = logged.with_name(str(int(logged.name) - 1))
        entries = [logged] if before == self._synced.get(log) else [before, logged]
        files = [file for entry in entries for file in (entry, entry.with_name(f".{entry.name}.crc"))]
        if log not in self._synced:
            files += [checkpoint / "metadata", checkpoint / ".metadata.crc"]
        try:
            for file in files:
                if file.exists():
                    sync_file(file)
            sync_folder(logged.parent)
            if log not in self._synced:
                sync_folders(checkpoint)
        except OSError as error:
            raise CheckpointError(
                f"{logged}, Spark's log of a micro-batch, cannot be synced to disk ({error}), so its records are not "
                "accepted. Look at the disk, then start the query again."
            ) from error
        self._synced[log] = logged


def claim(folder: Location, name: str, *, is_alone: bool) -> tuple[IO[str] | None, str | None]:
    """A member id for a reader of this name, which is ours until the file is closed: the same in the next life.

    It is chosen at random, so that queries on different machines never have the same. Readers of the same name have
    one each, unless they must be alone, or one that another has accepted records ahead. Without locks in the folder's
    file system there is none to be kept; in an object store there is one for a reader that must be alone.
    """
    if isinstance(folder, ObjectPath):
        return None, _noted_member_id(folder / f".reader-{name[:16]}-0", is_alone=is_alone)
    for number in range(CLAIMS_MAX):
        path = folder / f".reader-{name[:16]}-{number}"
        try:
            file = lock_file(path)
            if file is None and (is_alone or ahead_path(folder, path.read_text("utf-8")).exists()):
                file = lock_file(path, OLD_READER_S)
                if file is None:
                    raise CheckpointError(
                        f"Another reader has used {folder} for {OLD_READER_S:g} s. Stop the query that it belongs to; "
                        "two sources of one query with maxRecordsAhead need different topics or groups."
                    )
        except OSError as error:
            logger.warning("Files in %s cannot be locked (%s): a new member id is used.", folder, error)
            return None, None
        if file is not None:
            return file, _member_id_in(file)
    raise CheckpointError(
        f"{CLAIMS_MAX} readers already use {folder}; give each query a checkpointLocation of its own."
    )


def _noted_member_id(path: ObjectPath, *, is_alone: bool) -> str | None:
    try:
        found = path.read_text()
    except FileNotFoundError:
        found = ""
    if found and (is_alone or any(path.parent.glob(f"taken-{found}-*.json"))):
        return found
    if not is_alone:
        return None
    write_durably(path, uuid_text(uuid4().bytes))
    return path.read_text()  # of two that begin at the same time, most likely the same


def ahead_path(folder: Location, member_id: str) -> Location:
    """The log of what a reader has accepted ahead (see `ahead.py`)."""
    return folder / f"ahead-{member_id}.json"


def _member_id_in(file: IO[str]) -> str:
    file.seek(0)
    found = file.read()
    if len(found) == MEMBER_ID_LENGTH:
        return found
    file.truncate(0)  # a new file, or one whose writer was killed
    member_id = uuid_text(uuid4().bytes)
    file.write(member_id)
    file.flush()
    os.fsync(file.fileno())
    return member_id


def lock_file(path: Path, wait_s: float = 0.0) -> IO[str] | None:
    """Locked for this process until it is closed; None when another one has it. OSError where files have no locks."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        import fcntl
    except ImportError:
        raise OSError("this system has no flock") from None
    file = path.open("a+", encoding="utf-8")
    deadline = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                file.close()
                return None
            time.sleep(0.05)
        except OSError:
            file.close()
            raise
        else:
            return file


def _soon(condition: Callable[[], bool]) -> bool:
    """A mounted folder may show a moment later what Spark has written."""
    deadline = time.monotonic() + MOUNT_S
    while not (is_true := condition()) and time.monotonic() < deadline:
        time.sleep(0.05)
    return is_true


def sources_in(log: Location) -> list[dict[str, Any]]:
    """The offsets in an entry of Spark's offset log, those that are objects, as ours are.

    After a version and Spark's own numbers there is one line per source: its offset, or a dash; in version 2, which
    knows sources by name, with the name and a colon before it.
    """
    lines = log.read_text("utf-8").splitlines()
    is_named = lines[:1] == ["v2"]
    texts = [line.partition(":")[2] if is_named else line for line in lines[2:]]
    return [json.loads(text) for text in texts if text.startswith("{")]


def brings_one_source(log: Location) -> bool:
    """Whether one source of the query, at most, has records in the micro-batch of an entry of the offset log."""
    before = log.with_name(str(int(log.name) - 1))
    old = before.read_text("utf-8").splitlines()[2:] if before.exists() else []
    new = log.read_text("utf-8").splitlines()[2:]
    return len([line for line in new if line not in old and not line.endswith("-")]) <= 1


def _is_in(log: Location, offset: Mapping[str, Any]) -> bool:
    return offset in sources_in(log)


def _may_get_sources(log: Location) -> bool:
    """Whether Spark lets this query have other sources than before (source evolution)."""
    numbers = log.read_text("utf-8").splitlines()[1:2]
    conf = json.loads(numbers[0]).get("conf", {}) if numbers else {}
    return bool(conf.get(SOURCE_EVOLUTION) == "true")


def _newest(folder: Location) -> Location | None:
    numbered = [path for path in folder.glob("[0-9]*") if path.name.isdigit()]
    return max(numbered, key=lambda path: int(path.name), default=None)
