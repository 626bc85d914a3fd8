"""Goal: groups live where Kafka would put them. Method: hashes that Java computes, and the corners of its int."""

import pytest

from headrace.broker.groups.hashing import java_hash, partition_for, topics_fingerprint

ORDERS, PAYMENTS = ("orders", bytes(15) + b"\1", 3), ("payments", bytes(15) + b"\2", 1)


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


def test_the_fingerprint_of_no_topics_is_0() -> None:
    assert topics_fingerprint([]) == 0


def test_the_fingerprint_does_not_depend_on_order() -> None:
    assert topics_fingerprint([ORDERS, PAYMENTS]) == topics_fingerprint([PAYMENTS, ORDERS])


@pytest.mark.parametrize(
    "changed", [("order", ORDERS[1], 3), ("orders", PAYMENTS[1], 3), ("orders", ORDERS[1], 4)]
)
def test_the_fingerprint_changes_with_name_id_and_partition_count(changed: tuple[str, bytes, int]) -> None:
    assert topics_fingerprint([changed]) != topics_fingerprint([ORDERS])
