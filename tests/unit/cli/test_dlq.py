"""A dead letter is named by its partition and offset."""

import pytest
import typer

from headrace.cli.dlq import _parse_place, moment


def test_a_letter_s_place_is_read() -> None:
    assert _parse_place("0@17") == (0, 17)


@pytest.mark.parametrize("wrong", ["17", "0@", "@1", "a@1", "-1@2"])
def test_what_is_no_place_is_named(wrong: str) -> None:
    with pytest.raises(typer.BadParameter, match="such as 0@17"):
        _parse_place(wrong)


def test_times_are_utc() -> None:
    assert moment(0) == "1970-01-01 00:00:00"
