"""The reference of Python names leaves out no public one, and reads as the source does."""

import runpy
from pathlib import Path

import pytest

import headrace

GENERATOR = runpy.run_path(str(Path(__file__).resolve().parents[3] / "tools" / "generate_python_docs.py"))
PAGE = GENERATOR["python_names"]()


@pytest.mark.parametrize("name", [name for name in headrace.__all__ if name != "__version__"])
def test_every_public_name_has_its_place(name: str) -> None:
    assert f"### `{name}`\n" in PAGE


@pytest.mark.parametrize(
    "name", [name for name in vars(headrace.ShareConsumer) if not name.startswith("_")], ids=str
)
def test_every_method_of_a_consumer_is_shown(name: str) -> None:
    assert f"-   `{name}" in PAGE


def test_signatures_read_as_they_are_written_with_constants_by_their_value() -> None:
    assert (
        "-   `poll(timeout: float | None = 1.0, *, max_records: int | None = None) -> list[Delivery]`" in PAGE
    )


def test_long_signatures_have_a_line_for_each_argument() -> None:
    assert GENERATOR["_pieces"]("a: dict[str, int] = {}, *, b: int = 1") == [
        "a: dict[str, int] = {}",
        "*",
        "b: int = 1",
    ]


def test_nothing_private_is_shown() -> None:
    assert "-   `_" not in PAGE
    assert "| `_" not in PAGE


def test_sentences_are_not_wrapped_and_parameters_are_a_list() -> None:
    assert GENERATOR["_unwrapped"](
        "Sends a\nrecord.\n\nAnd says\nso.\n`timeout` (seconds): how long\nit takes.\n"
        "`key`: its key.\n\n    code\n    more"
    ) == (
        "Sends a record.\n\nAnd says so.\n\n- `timeout` (seconds): how long it takes.\n- `key`: its key.\n\n"
        "    code\n    more"
    )
