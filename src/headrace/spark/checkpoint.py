"""Looks into Spark's checkpoint: has it logged, has it committed the micro-batch of an offset?

Spark asks `latestOffset(start)` only after it has committed the micro-batch that ends at `start`, and `partitions` only
after it has logged its end; acknowledging there rests on it. With asynchronous progress tracking it asks earlier. Then
a crash would forget which records a micro-batch held, after they were accepted. And a checkpoint may be another
query's. So before it acknowledges, the reader looks.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from headrace.spark.errors import CheckpointError

CLAIMS_MAX = 16


def is_committed(checkpoint: Path, offset: Mapping[str, Any]) -> bool:
    """Whether the newest micro-batch in the offset log ends at this offset and is in the commit log."""
    newest = _newest(checkpoint / "offsets")
    if newest is None or not (checkpoint / "commits" / newest.name).exists():
        return False
    return _is_in(newest, offset)


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
    newest = _newest(checkpoint / "offsets")
    if newest is None:
        raise _no_log(checkpoint)
    if not _is_in(newest, offset):
        raise CheckpointError(
            f"Spark runs micro-batch {offset.get('seq')}, which the offset log in {checkpoint} does not hold. With "
            "asynchronous progress tracking records would be lost in a crash: leave asyncProgressTrackingEnabled out "
            "of writeStream. If readStream was given another query's checkpoint, give it this query's."
        )
    return checkpoint / "commits" / newest.name


def require_committed(checkpoint: Path, offset: Mapping[str, Any]) -> None:
    if _newest(checkpoint / "offsets") is None:
        raise _no_log(checkpoint)
    if not is_committed(checkpoint, offset):
        raise CheckpointError(
            f"Spark asks for records beyond micro-batch {offset.get('seq')}, which {checkpoint} does not show as "
            "committed. With asynchronous progress tracking records would be lost in a crash: leave "
            "asyncProgressTrackingEnabled out of writeStream. If readStream was given another query's checkpoint, "
            "give it this query's."
        )


def claim(folder: Path, name: str) -> tuple[IO[str] | None, int]:
    """The lowest number that no living process has claimed under this name; it is ours until the file is closed."""
    try:
        import fcntl
    except ImportError:
        return None, 0
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(CLAIMS_MAX):
        file = (folder / f".reader-{name[:16]}-{number}").open("a")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.close()
        else:
            return file, number
    raise CheckpointError(
        f"{CLAIMS_MAX} readers have {folder} already; give each query a checkpointLocation of its own."
    )


def _no_log(checkpoint: Path) -> CheckpointError:
    return CheckpointError(
        f"checkpointLocation={str(checkpoint)!r}, as given to readStream, holds no offset log of Spark's. Give "
        "readStream and writeStream the same checkpointLocation."
    )


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
