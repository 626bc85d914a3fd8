"""Spark's checkpoint: the offset log and the commit log, as Spark writes and reads them. It syncs nothing."""

import json
import os
import zlib
from pathlib import Path

OFFSETS, COMMITS = "offsets", "commits"


class UnreadableError(Exception):
    """Spark cannot read its own log, and the query does not start."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"{path.parent.name}/{path.name} is incomplete")
        self.path = path


class SparkLog:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def begin(self) -> None:
        for name in (OFFSETS, COMMITS):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        if not (self.folder / "metadata").exists():
            self._put(self.folder / "metadata", '{"id":"00000000-0000-0000-0000-000000000000"}')

    def write_offsets(self, batch: int, offsets: list[str]) -> None:
        numbers = json.dumps({"batchWatermarkMs": 0, "batchTimestampMs": 0, "conf": {}})
        self._put(self.folder / OFFSETS / str(batch), "\n".join(["v1", numbers, *offsets]))

    def write_commit(self, batch: int) -> None:
        self._put(self.folder / COMMITS / str(batch), 'v1\n{"nextBatchWatermarkMs":0}')

    def _put(self, path: Path, text: str) -> None:
        """A temporary file that is renamed; and another one with its checksum."""
        data = text.encode()
        temporary = path.with_name(f".{path.name}.tmp")
        temporary.write_bytes(data)
        os.rename(temporary, path)
        temporary.write_bytes(zlib.crc32(data).to_bytes(4))
        os.rename(temporary, path.with_name(f".{path.name}.crc"))

    def newest(self, kind: str) -> int | None:
        folder = self.folder / kind
        numbers = (
            [int(path.name) for path in folder.iterdir() if path.name.isdigit()] if folder.is_dir() else []
        )
        return max(numbers, default=None)

    def read_offsets(self, batch: int) -> list[str]:
        return self._read(self.folder / OFFSETS / str(batch))[2:]

    def has_commit(self, batch: int) -> bool:
        newest = self.newest(COMMITS)
        if newest is not None:
            self._read(self.folder / COMMITS / str(newest))
        return newest is not None and newest >= batch

    def _read(self, path: Path) -> list[str]:
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            raise UnreadableError(path) from None
        checksum = path.with_name(f".{path.name}.crc")
        found = checksum.read_bytes() if checksum.exists() else b""
        lines = data.decode().splitlines()
        if (len(found) == 4 and found != zlib.crc32(data).to_bytes(4)) or len(lines) < 2:
            raise UnreadableError(path)
        try:
            for line in lines[1:]:
                json.loads(line)
        except ValueError:
            raise UnreadableError(path) from None
        return lines

    def purge(self, before: int) -> None:
        for kind in (OFFSETS, COMMITS):
            for path in sorted((self.folder / kind).iterdir()):
                number = path.name.removeprefix(".").removesuffix(".crc")
                if number.isdigit() and int(number) < before:
                    path.unlink()

    def forget(self, path: Path) -> None:
        """Somebody removes what cannot be read."""
        path.unlink(missing_ok=True)
        path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
