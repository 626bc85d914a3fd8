"""A little room that is kept for the day the disk is full: freeing space needs to write a little first.

The reserve is a file of zeros in the data directory. An operation that frees space (DeleteRecords, DeleteTopics,
retention) and finds the disk full gives it up and tries again. While it is out, producers' records are refused, so
that they do not take the room that was meant for deleting; it is made again as soon as there is room for it.
"""

import contextlib
import logging
import threading
from collections.abc import Callable
from typing import TypeVar

from headrace.log.disk import Disk, File
from headrace.log.errors import FULL, REFUSALS, cure_of

logger = logging.getLogger("headrace.log")

T = TypeVar("T")
RESERVE = "reserve"
_CHUNK = bytes(1024 * 1024)


class Reserve:
    def __init__(self, disk: Disk, size: int) -> None:
        """Of 0 bytes: there is none."""
        self._disk = disk
        self._size = size
        self._guard = threading.Lock()
        self._is_there = False
        self._is_missed = False
        """It could not be made: that is said once."""

    @property
    def is_out(self) -> bool:
        return not self._is_there and self._size > 0

    def make(self) -> None:
        """At the start, and from a worker after it was given up. Does nothing while there is no room."""
        if not self._size:
            self._disk.remove(RESERVE)
            return
        try:
            file = self._disk.open(RESERVE, create=True)
            try:
                self._fill(file)
            finally:
                file.close()
        except OSError as error:
            if error.errno not in REFUSALS:
                raise
            if not self._is_missed:
                self._is_missed = True
                logger.error(
                    "there is no room for the reserve of %d bytes (%s): records are refused until there is. "
                    "%s, or set headrace.disk.reserve.bytes lower",
                    self._size,
                    error.strerror,
                    cure_of(error),
                )
            return
        self._is_missed = False
        with self._guard:
            self._is_there = True

    def _fill(self, file: File) -> None:
        size = file.size()
        if size > self._size:
            file.truncate(self._size)
        try:
            for start in range(size, self._size, len(_CHUNK)):
                file.write(start, _CHUNK[: min(len(_CHUNK), self._size - start)])
        except OSError as error:
            with contextlib.suppress(OSError):
                file.truncate(size)
            if not size or error.errno not in REFUSALS:
                raise
            logger.warning(
                "the reserve has %d bytes instead of %d: there is no room for more (%s)",
                size,
                self._size,
                error.strerror,
            )

    def give_up(self) -> bool:
        """From any thread. False if there was nothing to give up."""
        with self._guard:
            was_there, self._is_there = self._is_there, False
        if not was_there:
            return False
        logger.error("the disk is full: the reserve of %d bytes is used to free space", self._size)
        try:
            file = self._disk.open(RESERVE)
            try:
                file.truncate(0)
            finally:
                file.close()
        except OSError as error:  # the caller's own error says more
            logger.error("the reserve cannot be released: %s", error)
            with self._guard:
                self._is_there = True
            return False
        return True

    def with_room(self, attempt: Callable[[], T]) -> T:
        """Does what frees space; on a full disk once more without the reserve."""
        try:
            return attempt()
        except Exception as error:
            cause = error if isinstance(error, OSError) else error.__cause__
            is_full = isinstance(cause, OSError) and cause.errno in FULL
            if not (is_full or "disk is full" in str(cause)) or not self.give_up():
                raise
        return attempt()
