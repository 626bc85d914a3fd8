"""Lines come out as they went in, whatever the size of the pieces they are read in; and keys are split off."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from headrace.cli import inputs
from headrace.cli.failures import Refused
from headrace.cli.inputs import Input


def gathered(source: AsyncIterator[Input]) -> list[Input]:
    async def gather() -> list[Input]:
        return [one async for one in source]

    return asyncio.run(gather())


def written(tmp_path: Path, *contents: bytes) -> list[Path]:
    files = []
    for number, content in enumerate(contents):
        files.append(tmp_path / f"{number}.txt")
        files[-1].write_bytes(content)
    return files


def values(found: list[Input]) -> list[bytes | None]:
    return [one.value for one in found]


@pytest.mark.parametrize("chunk", [1, 2, 3, 1 << 16])
def test_lines_are_whole_however_they_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    monkeypatch.setattr(inputs, "CHUNK", chunk)
    files = written(tmp_path, b"one\ntwo\r\n\nfour", b"five\n", b"")
    assert values(gathered(inputs.lines(files, key_separator=None))) == [
        b"one",
        b"two",
        b"",
        b"four",
        b"five",
    ]


def test_the_first_separator_of_a_line_ends_the_key(tmp_path: Path) -> None:
    files = written(tmp_path, b"k: v: w\n:no key\nempty:\n")
    assert gathered(inputs.lines(files, key_separator=b":")) == [
        Input(b"k", b" v: w"),
        Input(b"", b"no key"),
        Input(b"empty", b""),
    ]


def test_a_line_without_the_separator_is_named_by_its_number(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="line 2 has no ':' between key and value: 'oops'"):
        gathered(inputs.lines(written(tmp_path, b"k:v\noops\n"), key_separator=b":"))


def test_a_line_that_no_broker_would_take_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inputs, "LINE_BYTES_MAX", 10)
    with pytest.raises(Refused, match="more than 10 bytes; use --whole"):
        gathered(inputs.lines(written(tmp_path, b"x" * 11), key_separator=None))


def test_a_whole_file_is_one_value(tmp_path: Path) -> None:
    assert values(gathered(inputs.whole(written(tmp_path, b"a\nb\n", b"")))) == [b"a\nb\n", b""]


def test_made_up_records_have_the_size_and_number_asked_for() -> None:
    found = values(gathered(inputs.made_up(3, 10)))
    assert len(found) == 3
    assert all(value is not None and len(value) == 10 and value.isupper() for value in found)


def test_reading_may_end_early(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`--count` stops in the middle of a file: the thread that reads must not be left behind."""
    import threading

    monkeypatch.setattr(inputs, "CHUNK", 2)
    files = written(tmp_path, b"x\n" * 100)

    async def first() -> Input:
        async for one in inputs.lines(files, key_separator=None):
            return one
        raise AssertionError

    before = set(threading.enumerate())
    assert asyncio.run(first()).value == b"x"
    for thread in set(threading.enumerate()) - before:
        thread.join(5)
        assert not thread.is_alive()
