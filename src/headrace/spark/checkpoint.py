"""Looks into Spark's checkpoint: has it committed the micro-batch of an offset?

Spark asks `latestOffset(start)` only after it has committed the micro-batch that ends at `start`, and acknowledging
there rests on it. With asynchronous progress tracking it asks earlier. Then a crash would forget which records a
micro-batch held, after they were accepted. So before it settles, the reader looks.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headrace.spark.errors import CheckpointError


def is_committed(checkpoint: Path, offset: Mapping[str, Any]) -> bool:
    """Whether the newest micro-batch in the offset log ends at this offset and is in the commit log."""
    newest = _newest(checkpoint / "offsets")
    if newest is None or not (checkpoint / "commits" / newest.name).exists():
        return False
    sources = newest.read_text("utf-8").splitlines()[2:]  # after a version and Spark's own numbers
    return any(_mentions(source, offset) for source in sources)


def require_committed(checkpoint: Path, offset: Mapping[str, Any]) -> None:
    if _newest(checkpoint / "offsets") is None:
        raise CheckpointError(
            f"checkpointLocation={str(checkpoint)!r}, as given to readStream, holds no offset log of Spark's. Give "
            "readStream and writeStream the same checkpointLocation."
        )
    if not is_committed(checkpoint, offset):
        raise CheckpointError(
            f"Spark asks for records beyond micro-batch {offset.get('seq')}, which {checkpoint} does not show as "
            "committed. With asynchronous progress tracking records would be lost in a crash: leave "
            "asyncProgressTrackingEnabled out of writeStream. If readStream was given another query's checkpoint, "
            "give it this query's."
        )


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
