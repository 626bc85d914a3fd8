"""The note of what a reader has accepted ahead, which one reader at a time may write.

On a local disk it is one file, `ahead-<member id>.json`, and a lock on a file beside it. Object stores have no locks,
and a reader whose machine was cut off may go on writing after its successor has begun. Nothing that it accepts then
may be missing in the successor's note. So there each life of a reader has a note of its own, named by its member id and
the life, `taken-<member id>-<life>.json`, and the object `taken-<member id>.owner` names the life that may accept.

    begin     write `owner`; list the notes; write a copy of the newest one that was entered, with a number above all
              of them; read `owner`; write it again as entered; read `owner`; remove the notes that were listed
    accept    write the note; read `owner`; only then accept

A life that reads another name in `owner` has been succeeded and stops. Of two lives the one that wrote `owner` later
lists the notes after that. What the earlier one accepts, it wrote before it read its own name in `owner`: before that
list, and so in a note that is listed. A life that was succeeded before it entered leaves a note that does not count; if
it enters nevertheless, because it had read `owner` in time, then its successor has seen its note and has a higher
number. This needs no more of a store than that a read or a list shows every write that has returned. (The machine in
tests/property/test_spark_ahead_notes.py stops and interleaves lives at every step of it.)
"""

import contextlib
import json
import logging
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple, Protocol
from uuid import uuid4

from headrace.spark import checkpoint
from headrace.spark.checkpoint import MEMBER_ID_LENGTH, ahead_path, lock_file
from headrace.spark.errors import CheckpointError
from headrace.spark.locations import Location, ObjectPath, sync_folders, write_durably

logger = logging.getLogger("headrace.spark")
Ahead = dict[str, Any]
"""An offset as Spark logs them."""


class AheadNotes(Protocol):
    """What one reader has accepted ahead."""

    @property
    def where(self) -> str:
        """For messages."""

    def exists(self) -> bool:
        """Whether an earlier life has left a note."""

    def open(self) -> Ahead | None:
        """This reader is the only one that may write, from now on. What the note says; CheckpointError."""

    def write(self, ahead: Ahead) -> None:
        """Kept when it returns, and then it may be accepted. CheckpointError when another reader has taken over."""

    def close(self) -> None: ...


def notes_of(folder: Location, member_id: str) -> AheadNotes:
    if isinstance(folder, ObjectPath):
        return _OwnedNotes(folder, member_id)
    return _LockedNotes(folder, member_id)


def left_behind(folder: Location, own: str | None) -> Iterator[tuple[str, Ahead]]:
    """The notes of other readers than `own` that are not there any more, and where they are."""
    ahead = {each.stem.removeprefix("ahead-") for each in folder.glob("ahead-*.json")}
    taken = {each.stem[len("taken-") :][:MEMBER_ID_LENGTH] for each in folder.glob("taken-*.json")}
    for member_id in sorted((ahead | taken) - {own}):
        newest = _newest(_listed(folder, member_id))
        if newest is not None and newest.ahead is not None and not _is_alive(folder, member_id, newest):
            yield str(newest.path), newest.ahead


class _LockedNotes:
    """In a folder whose files can be locked (or, on some file systems, not: then it is said)."""

    def __init__(self, folder: Path, member_id: str) -> None:
        self._folder = folder
        self._member_id = member_id
        self._path = folder / f"ahead-{member_id}.json"
        self._lock: IO[str] | None = None

    @property
    def where(self) -> str:
        return str(self._path)

    def exists(self) -> bool:
        return bool(_listed(self._folder, self._member_id))

    def open(self) -> Ahead | None:
        try:
            self._lock = lock_file(self._path.with_suffix(".lock"), checkpoint.OLD_READER_S)
            if self._lock is None:
                raise CheckpointError(
                    f"Another reader has used {self._path} for {checkpoint.OLD_READER_S:g} s. Stop the query that it "
                    "belongs to."
                )
        except OSError as error:
            logger.warning("%s cannot be locked (%s): do not start this query twice.", self._path, error)
        sync_folders(self._folder)
        listed = _listed(self._folder, self._member_id)
        if self._path.exists():
            ahead: Ahead | None = json.loads(self._path.read_text("utf-8"))
        else:
            newest = _newest(listed)  # of a checkpoint that was in an object store
            ahead = None if newest is None else newest.ahead
            if ahead is not None:
                self.write(ahead)
        for note in listed:
            if note.path != self._path:
                note.path.unlink(missing_ok=True)
        return ahead

    def write(self, ahead: Ahead) -> None:
        write_durably(self._path, json.dumps(ahead))

    def close(self) -> None:
        if self._lock is not None:
            self._lock.close()


class _OwnedNotes:
    """In an object store."""

    def __init__(self, folder: ObjectPath, member_id: str) -> None:
        self._folder = folder
        self._member_id = member_id
        self._life = uuid4().hex
        self._path = folder / f"taken-{member_id}-{self._life}.json"
        self._owner = folder / f"taken-{member_id}.owner"
        self._number = 0
        self._lock: IO[str] | None = None

    @property
    def where(self) -> str:
        return str(self._path)

    def exists(self) -> bool:
        return bool(_listed(self._folder, self._member_id))

    def open(self) -> Ahead | None:
        with contextlib.suppress(OSError):
            self._lock = lock_file(_alive_path(self._life))
        write_durably(self._owner, self._life)
        listed = _listed(self._folder, self._member_id)
        newest = _newest(listed)
        ahead = None if newest is None else newest.ahead
        self._number = 1 + max((note.number for note in listed), default=0)
        self._put(ahead, is_entered=False)
        self._require_owned()
        self._put(ahead, is_entered=True)
        self._require_owned()
        for note in listed:
            note.path.unlink(missing_ok=True)
        return ahead

    def write(self, ahead: Ahead) -> None:
        self._put(ahead, is_entered=True)
        self._require_owned()

    def close(self) -> None:
        if self._lock is not None:
            self._lock.close()
            _alive_path(self._life).unlink(missing_ok=True)

    def _put(self, ahead: Ahead | None, *, is_entered: bool) -> None:
        write_durably(self._path, json.dumps({"number": self._number, "entered": is_entered, "ahead": ahead}))

    def _require_owned(self) -> None:
        owner = self._owner.read_text()
        if owner != self._life:
            raise CheckpointError(
                f"Another reader uses {self._folder}, so this one no longer accepts records. Run each query once: stop "
                "the other one."
            )


class _Note(NamedTuple):
    number: int
    is_entered: bool
    path: Location
    ahead: Ahead | None


def _listed(folder: Location, member_id: str) -> list[_Note]:
    """The local note counts as the oldest: a life in an object store removes it when it has entered."""
    notes = []
    for path in [ahead_path(folder, member_id), *folder.glob(f"taken-{member_id}-*.json")]:
        try:
            found = json.loads(path.read_text("utf-8"))
        except FileNotFoundError:
            continue  # a later life has a copy
        if path.name.startswith("ahead-"):
            notes.append(_Note(0, True, path, found))
        else:
            notes.append(_Note(found["number"], found["entered"], path, found["ahead"]))
    return notes


def _newest(notes: list[_Note]) -> _Note | None:
    entered = [note for note in notes if note.is_entered]
    return max(entered, key=lambda note: note.number, default=None)


def _alive_path(life: str) -> Path:
    """All readers of one query are on one host: there one can see whether another is alive."""
    return Path(tempfile.gettempdir()) / f"headrace-reader-{life}.lock"


def _is_alive(folder: Location, member_id: str, newest: _Note) -> bool:
    if isinstance(folder, ObjectPath):
        path = _alive_path(newest.path.stem.rpartition("-")[2])
    else:
        path = folder / f"ahead-{member_id}.lock"
    try:
        lock = lock_file(path)
    except OSError:
        return False
    if lock is None:
        return True
    lock.close()
    if isinstance(folder, ObjectPath):
        path.unlink(missing_ok=True)
    return False
