"""Java's properties files are read by Java's rules."""

from pathlib import Path

import pytest

from headrace.client.errors import ConfigError
from headrace.client.properties import read_properties


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=1\nb:2\nc 3\nd = 4\n", {"a": "1", "b": "2", "c": "3", "d": "4"}),
        ("# no\n! no\n\n  a=1\n", {"a": "1"}),
        ("a=one \\\n   two\n", {"a": "one two"}),
        ("a=one\\\\\nb=2\n", {"a": "one\\", "b": "2"}),
        ("a\\=b=c\\u00e9\\td\n", {"a=b": "cé\td"}),
        ("a=x=y:z\n", {"a": "x=y:z"}),
        ("a=\nb\n", {"a": "", "b": ""}),
        ("a=1\r\nb=2", {"a": "1", "b": "2"}),
        ("a=last line \\", {"a": "last line"}),
    ],
)
def test_lines_become_names_and_values(tmp_path: Path, text: str, expected: dict[str, str]) -> None:
    file = tmp_path / "client.properties"
    file.write_text(text, newline="")
    assert read_properties(file) == expected


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"settings file '.*nowhere\.properties' cannot be read: .*No such file"
    ):
        read_properties(tmp_path / "nowhere.properties")


def test_a_file_that_is_no_text_is_named(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="cannot be read"):
        read_properties(file)
