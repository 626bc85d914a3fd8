"""Spark is asked to leave a traceback out for errors of ours, in its own processes and nowhere else."""

import os
import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from types import ModuleType

import pytest

from headrace.spark.errors import OptionError
from headrace.spark.options import SourceOptions
from headrace.spark.reader import ShareStreamReader
from headrace.spark.telling import HIDE_TRACEBACK, is_told, plainly, plainly_each


@pytest.fixture(autouse=True)
def shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(HIDE_TRACEBACK, "")  # so that it is put back


@pytest.fixture
def sparks_process(monkeypatch: pytest.MonkeyPatch) -> None:
    main = ModuleType("__main__")
    main.__spec__ = ModuleSpec("pyspark.daemon", None)
    monkeypatch.setitem(sys.modules, "__main__", main)


@plainly
def fail(error: Exception) -> None:
    raise error


def fail_late() -> Iterator[int]:
    yield 1
    raise OptionError("wrong")


@pytest.mark.usefixtures("sparks_process")
def test_an_error_of_ours_is_told_without_its_traceback() -> None:
    assert not is_told()
    with pytest.raises(OptionError):
        fail(OptionError("wrong"))
    assert os.environ[HIDE_TRACEBACK] == "1"
    assert is_told()


@pytest.mark.usefixtures("sparks_process")
def test_so_is_one_that_comes_while_rows_are_made() -> None:
    with pytest.raises(OptionError):
        list(plainly_each(fail_late()))
    assert os.environ[HIDE_TRACEBACK] == "1"


@pytest.mark.usefixtures("sparks_process")
def test_any_other_error_keeps_it() -> None:
    with pytest.raises(ZeroDivisionError):
        fail(ZeroDivisionError())
    assert os.environ[HIDE_TRACEBACK] == ""


def test_a_process_of_the_users_is_left_alone() -> None:
    with pytest.raises(OptionError):
        fail(OptionError("wrong"))
    assert os.environ[HIDE_TRACEBACK] == ""


class Unclosable:
    def close(self) -> None:
        raise ValueError("cannot be closed")


@pytest.mark.usefixtures("sparks_process")
def test_a_reader_that_failed_and_cannot_be_closed_tells_why_it_failed() -> None:
    given = {"kafka.bootstrap.servers": "h:1", "subscribe": "t", "kafka.group.id": "g"}
    reader = ShareStreamReader(SourceOptions.parse(given))
    reader._driver = Unclosable()  # type: ignore[assignment]
    with pytest.raises(ValueError, match="cannot be closed"):
        reader.stop()
    with pytest.raises(OptionError):
        fail(OptionError("wrong"))
    reader._driver = Unclosable()  # type: ignore[assignment]
    reader.stop()
