"""Locks of objects that the child of a fork goes on using.

Only the thread that forks lives on in the child. A lock that another thread held there would stay locked for good.
"""

import os
import threading
import weakref


class ForkSafeLock:
    """A reentrant lock, since a signal handler may come again. In the child of a fork only the thread that forked can
    still hold it, and releases it."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        _LOCKS.add(self)

    def renew(self) -> None:
        """In the child, before anything else runs there."""
        if not self._lock._is_owned():  # type: ignore[attr-defined]
            self._lock = threading.RLock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


_LOCKS: "weakref.WeakSet[ForkSafeLock]" = weakref.WeakSet()


def _forked() -> None:
    for lock in list(_LOCKS):
        lock.renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
