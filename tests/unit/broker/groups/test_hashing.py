"""Goal: the fingerprint of topics changes when they do, and only then."""

import pytest

from headrace.broker.groups.subscriptions import topics_fingerprint

ORDERS, PAYMENTS = ("orders", bytes(15) + b"\1", 3), ("payments", bytes(15) + b"\2", 1)


def test_the_fingerprint_of_no_topics_is_0() -> None:
    assert topics_fingerprint([]) == 0


def test_the_fingerprint_does_not_depend_on_order() -> None:
    assert topics_fingerprint([ORDERS, PAYMENTS]) == topics_fingerprint([PAYMENTS, ORDERS])


@pytest.mark.parametrize(
    "changed", [("order", ORDERS[1], 3), ("orders", PAYMENTS[1], 3), ("orders", ORDERS[1], 4)]
)
def test_the_fingerprint_changes_with_name_id_and_partition_count(changed: tuple[str, bytes, int]) -> None:
    assert topics_fingerprint([changed]) != topics_fingerprint([ORDERS])
