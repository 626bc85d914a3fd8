"""The settings of a group that its share-partitions obey."""

from headrace.share.limits import Limits


def test_isolation_begins_at_half_of_the_deliveries_but_not_before_the_third() -> None:
    counts = [Limits(delivery_limit=limit).isolation_count for limit in (2, 3, 4, 5, 6, 7, 10, 25)]
    assert counts == [2, 2, 2, 3, 3, 4, 5, 13]
