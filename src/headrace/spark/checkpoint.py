"""Looks into Spark's checkpoint: has it logged, has it committed the micro-batch of an offset?

Spark asks `latestOffset(start)` only after it has committed the micro-batch that ends at `start`, and `partitions` only
after it has logged its end; acknowledging there rests on it. With asynchronous progress tracking it asks earlier. Then
a crash would forget which records a micro-batch held, after they were accepted. And a checkpoint may be another
query's. So before it acknowledges, the reader looks.
"""

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

from headrace.spark.errors import CheckpointError

CLAIMS_MAX = 16
MOUNT_S = 2.0
_CURE = (
    "Give readStream and writeStream the same checkpointLocation, and each query one of its own; and leave "
    "asyncProgressTrackingEnabled out of writeStream: with asynchronous progress tracking records would be lost in a "
    "crash."
)


def is_committed(checkpoint: Path, offset: Mapping[str, Any]) -> bool:
    """Whether the newest micro-batch in the offset log ends at this offset and is in the commit log."""
    newest = _newest(checkpoint / "offsets")
    if newest is None or not (checkpoint / "commits" / newest.name).exists():
        return False
    return _is_in(newest, offset)


def is_logged(checkpoint: Path, offset: Mapping[str, Any]) -> bool:
    """Whether the newest micro-batch in the offset log ends at this offset."""
    newest = _newest(checkpoint / "offsets")
    return newest is not None and _is_in(newest, offset)


def require_own(checkpoint: Path, offset: Mapping[str, Any]) -> None:
    """For the first offset of a new query: the checkpoint is new, or has this offset from another source's batches."""
    newest = _newest(checkpoint / "offsets")
    if newest is not None and not _is_in(newest, offset):
        raise CheckpointError(
            f"checkpointLocation={str(checkpoint)!r}, as given to readStream, belongs to another query: it has "
            "offsets, and this query starts without any. Give each query a checkpointLocation of its own, the same in "
            "readStream and writeStream; a DataFrame that is written twice has to be loaded twice."
        )


def require_logged(checkpoint: Path, offset: Mapping[str, Any]) -> Path:
    """Spark's offset log ends with this offset. Returns the file that will be there when it is committed."""
    if not _soon(lambda: is_logged(checkpoint, offset)):
        raise CheckpointError(
            f"Spark runs micro-batch {offset.get('seq')}, which the offset log in {checkpoint} does not hold. {_CURE}"
        )
    newest = _newest(checkpoint / "offsets")
    assert newest is not None
    return checkpoint / "commits" / newest.name


def require_committed(checkpoint: Path, offset: Mapping[str, Any]) -> None:
    if not _soon(lambda: is_committed(checkpoint, offset)):
        raise CheckpointError(
            f"Spark asks for records beyond micro-batch {offset.get('seq')}, which {checkpoint} does not show as "
            f"committed. {_CURE}"
        )


def claim(folder: Path, name: str) -> tuple[IO[str] | None, int]:
    """The lowest number that no living process has claimed under this name; it is ours until the file is closed."""
    for number in range(CLAIMS_MAX):
        file = lock_file(folder / f".reader-{name[:16]}-{number}")
        if file is not None:
            return file, number
    raise CheckpointError(
        f"{CLAIMS_MAX} readers have {folder} already; give each query a checkpointLocation of its own."
    )


def lock_file(path: Path, wait_s: float = 0.0) -> IO[str] | None:
    """Locked for this process until it is closed; None when another one has it. (Where files have no locks: never.)"""
    path.parent.mkdir(parents=True, exist_ok=True)
    file = path.open("a")
    try:
        import fcntl
    except ImportError:
        return file
    deadline = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            if time.monotonic() >= deadline:
                file.close()
                return None
            time.sleep(0.05)
        else:
            return file


def _soon(condition: Callable[[], bool]) -> bool:
    """A mounted folder may show a moment later what Spark has written."""
    deadline = time.monotonic() + MOUNT_S
    while not (is_true := condition()) and time.monotonic() < deadline:
        time.sleep(0.05)
    return is_true


def _is_in(log: Path, offset: Mapping[str, Any]) -> bool:
    sources = log.read_text("utf-8").splitlines()[2:]  # after a version and Spark's own numbers
    return any(_mentions(source, offset) for source in sources)


def _newest(folder: Path) -> Path | None:
    numbered = [path for path in folder.glob("[0-9]*") if path.name.isdigit()] if folder.is_dir() else []
    return max(numbered, key=lambda path: int(path.name), default=None)


def _mentions(found: Any, offset: Mapping[str, Any]) -> bool:
    """Spark writes one line per source; newer log formats put the sources into one object, by name."""
    if found == offset:
        return True
    if isinstance(found, str) and found.startswith("{"):
        return _mentions(json.loads(found), offset)
    return isinstance(found, dict) and any(_mentions(value, offset) for value in found.values())
