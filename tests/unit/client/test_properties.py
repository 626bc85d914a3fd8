"""Settings files of clients; the rules of properties files have their own test (tests/unit/base)."""

from pathlib import Path

import pytest

from headrace.client.errors import ConfigError
from headrace.client.properties import read_properties


def test_a_file_becomes_names_and_values(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_bytes("client.id=caf\u00e9\u0085bar\r\nsasl.password=blank \n".encode())
    assert read_properties(file) == {"client.id": "caf\u00e9\u0085bar", "sasl.password": "blank "}


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


def test_a_malformed_escape_is_named(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("client.id=\\u12")
    with pytest.raises(ConfigError, match=r"cannot be read: malformed \\uXXXX escape"):
        read_properties(file)
