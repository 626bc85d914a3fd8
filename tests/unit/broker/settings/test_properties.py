"""Settings from files, words and keywords."""

from pathlib import Path

import pytest

from headrace.broker.settings import from_keywords, parse_assignments, read_properties


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
