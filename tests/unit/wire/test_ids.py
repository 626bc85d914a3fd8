"""Goal: groups live where Kafka would put them. Method: hashes that Java computes, and the corners of its int."""

import pytest

from headrace.wire.ids import java_hash, partition_for, uuid_text


@pytest.mark.parametrize(
    ("text", "hashed"),
    [
        ("", 0),
        ("a", 97),
        ("hello", 99162322),
        ("polygenelubricants", -(2**31)),
        ("gruppe-\u00e4", 673522898),
        ("\U0001f600", 1772899),
    ],
)
def test_hashes_are_those_of_java_strings(text: str, hashed: int) -> None:
    assert java_hash(text) == hashed


def test_the_one_hash_without_a_positive_twin_goes_to_partition_0() -> None:
    assert partition_for("polygenelubricants", 50) == 0


def test_a_negative_hash_is_taken_by_its_size() -> None:
    assert java_hash("my-group") < 0
    assert partition_for("my-group", 50) == abs(java_hash("my-group")) % 50


def test_an_id_is_shown_by_22_characters_that_are_safe_in_addresses() -> None:
    assert uuid_text(bytes(16)) == "A" * 22
    assert uuid_text(b"\xff" * 16) == "_" * 21 + "w"
