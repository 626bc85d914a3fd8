"""Settings from files, words and keywords."""

from pathlib import Path

import pytest

from headrace.broker.settings import from_keywords, parse_assignments, read_properties
from headrace.broker.settings.properties import parse_properties


def test_comments_blank_lines_and_every_separator_are_understood() -> None:
    text = "# note\n! note\n\n a = 1\nb: 2\nc 3\n  d=\ne\n"
    assert parse_properties(text) == {"a": "1", "b": "2", "c": "3", "d": "", "e": ""}


def test_a_backslash_joins_lines_and_two_do_not() -> None:
    assert parse_properties("a=1,\\\n   2\nb=x\\\\\nc=3") == {"a": "1,2", "b": "x\\", "c": "3"}


def test_a_file_that_ends_inside_a_joined_line_keeps_what_it_has() -> None:
    assert parse_properties("a=1,\\") == {"a": "1,"}


def test_escapes_are_resolved() -> None:
    assert parse_properties("a\\:b=\\u0041\\tz\\=") == {"a:b": "A\tz="}


def test_the_last_of_two_equal_keys_wins() -> None:
    assert parse_properties("a=1\na=2") == {"a": "2"}


def test_windows_line_ends_are_line_ends() -> None:
    assert parse_properties("a=1\r\nb=2\r\n") == {"a": "1", "b": "2"}


def test_a_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_text("num.partitions=3\n")
    assert read_properties(path) == {"num.partitions": "3"}


def test_words_are_split_at_the_first_equals_sign() -> None:
    assert parse_assignments(["a=b=c", " d = e "]) == {"a": "b=c", "d": "e"}


@pytest.mark.parametrize("word", ["a", "=b", " =b"])
def test_a_word_without_key_or_equals_sign_is_refused(word: str) -> None:
    with pytest.raises(ValueError, match="expected KEY=VALUE"):
        parse_assignments([word])


def test_keywords_become_kafkas_names_and_values_text() -> None:
    keywords = {
        "num_partitions": 3,
        "delete.topic.enable": False,
        "log_cleanup_policy": ["compact", "delete"],
    }
    assert from_keywords(keywords) == {
        "num.partitions": "3",
        "delete.topic.enable": "false",
        "log.cleanup.policy": "compact,delete",
    }
