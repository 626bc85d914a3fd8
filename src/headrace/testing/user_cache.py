"""A folder for large downloads: one for each user, filled atomically, safe for several test runs at once."""

import contextlib
import fcntl
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path


def cache_folder() -> Path:
    """`$XDG_CACHE_HOME/headrace`, or `~/.cache/headrace`."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "headrace"


@contextlib.contextmanager
def locked(name: str) -> Iterator[None]:
    """Holds the lock of that name in the cache. A second process waits for the first one."""
    folder = cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def filled(name: str, *, is_current: Callable[[Path], bool], fill: Callable[[Path], None]) -> Path:
    """The folder `name` of the cache. If it is missing or not current, `fill(empty folder)` fills a new one.

    The folder is never incomplete: it is filled under another name and then renamed.
    """
    target = cache_folder() / name
    if target.is_dir() and is_current(target):
        return target
    with locked(name):
        if target.is_dir() and is_current(target):
            return target
        with tempfile.TemporaryDirectory(prefix=f"{name}.", dir=cache_folder()) as scratch:
            fresh = Path(scratch) / "fresh"
            fresh.mkdir()
            fill(fresh)
            if target.exists():
                target.rename(Path(scratch) / "old")
            fresh.rename(target)
    return target
