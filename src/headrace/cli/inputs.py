"""Where the records of `headrace produce` come from: lines of standard input or of files, whole files, or made up."""

import asyncio
import contextlib
import os
import random
import sys
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from headrace.cli.failures import Refused

CHUNK = 1 << 16
LINE_BYTES_MAX = 64 * 1024 * 1024
"""Far above what any broker takes as one record."""
CHUNKS_WAITING_MAX = 4


Advance = Callable[[int], None]


class Input(NamedTuple):
    key: bytes | None
    value: bytes | None


async def lines(
    files: Sequence[Path], *, key_separator: bytes | None, advance: Advance = lambda _: None
) -> AsyncIterator[Input]:
    """Lines without their ends, of files or else of standard input; an empty line is an empty value.

    `advance` hears how many bytes of the files are done.
    """
    number = 0
    sources: Sequence[Path | None] = files or [None]
    for file in sources:
        async for line in _lines_of(file):
            number += 1
            yield _split(line, key_separator, number)
            advance(len(line) + 1)


async def whole(files: Sequence[Path]) -> AsyncIterator[Input]:
    """Each file as one value."""
    for file in files:
        yield Input(None, await asyncio.to_thread(file.read_bytes))


async def made_up(count: int, size: int) -> AsyncIterator[Input]:
    """Letters at random, as kafka-producer-perf-test.sh makes them; one value for all, so that making costs nothing."""
    value = bytes(random.choices(range(ord("A"), ord("Z") + 1), k=size))
    for _ in range(count):
        yield Input(None, value)


def _split(line: bytes, separator: bytes | None, number: int) -> Input:
    if separator is None:
        return Input(None, line)
    key, found, value = line.partition(separator)
    if not found:
        raise Refused(
            f"line {number} has no {separator.decode()!r} between key and value: "
            f"{line[:60].decode(errors='replace')!r}; that line and the following ones were not sent."
        )
    return Input(key, value)


async def _lines_of(file: Path | None) -> AsyncIterator[bytes]:
    rest = b""
    async for chunk in _chunks_of(file):
        *whole_lines, rest = (rest + chunk).split(b"\n")
        for line in whole_lines:
            yield line.removesuffix(b"\r")
        if len(rest) > LINE_BYTES_MAX:
            raise Refused(
                f"a line has more than {LINE_BYTES_MAX:,} bytes; use --whole to send a file as one record."
            )
    if rest:
        yield rest.removesuffix(b"\r")


async def _chunks_of(file: Path | None) -> AsyncIterator[bytes]:
    """As they come. A thread of its own reads, so that Ctrl+C need not wait for the next line to be typed."""
    descriptor = sys.stdin.fileno() if file is None else os.open(file, os.O_RDONLY)
    loop = asyncio.get_running_loop()
    chunks: asyncio.Queue[bytes | OSError] = asyncio.Queue()
    room = threading.Semaphore(CHUNKS_WAITING_MAX)
    is_wanted = True

    def read() -> None:
        chunk: bytes | OSError = b"-"
        while chunk and not isinstance(chunk, OSError) and room.acquire() and is_wanted:
            try:
                chunk = os.read(descriptor, CHUNK)
            except OSError as error:
                chunk = error
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(chunks.put_nowait, chunk)
        if file is not None:
            os.close(descriptor)

    threading.Thread(target=read, name="headrace-input", daemon=True).start()
    try:
        while chunk := await chunks.get():
            if isinstance(chunk, OSError):
                raise chunk
            room.release()
            yield chunk
    finally:
        is_wanted = False
        room.release()
