"""Where large downloads live: one folder per user, filled atomically, safe for several test runs at once."""

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
    """Holds the cache's lock of that name; a second process waits here until the first is done."""
    folder = cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def filled(name: str, *, is_current: Callable[[Path], bool], fill: Callable[[Path], None]) -> Path:
    """The cache's folder `name`; when it is missing or not current, `fill(empty folder)` makes it anew.

    The folder appears whole or not at all: it is filled under another name and then renamed.
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
