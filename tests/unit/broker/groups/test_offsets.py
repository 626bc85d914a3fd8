"""Goal: committed and pending offsets, and what outlives what. Method: records and markers as the journal has them."""

from typing import Any

import pytest

from headrace.broker.groups.offsets import OffsetAndMetadata, OffsetStore, Transaction
from headrace.wire.messages.offset_commit_key import OffsetCommitKey

FIRST, SECOND = (7, 100), (7, 200)


@pytest.fixture
def store() -> OffsetStore:
    return OffsetStore()


def put(
    store: OffsetStore,
    offset: int | None,
    partition: int = 0,
    *,
    transaction: Transaction | None = None,
    **more: Any,
) -> None:
    value = OffsetAndMetadata(offset=offset, **more).as_record() if offset is not None else None
    store.apply(OffsetCommitKey(group="g", topic="t", partition=partition), value, transaction)


def offset(store: OffsetStore, partition: int = 0) -> int | None:
    committed = store.get("g", "t", partition)
    return committed.offset if committed is not None else None


def test_the_newest_commit_counts(store: OffsetStore) -> None:
    put(store, 1)
    put(store, 5)
    assert offset(store) == 5


def test_a_tombstone_removes_an_offset(store: OffsetStore) -> None:
    put(store, 1)
    put(store, None)
    assert offset(store) is None
    assert [*store.of_group("g")] == []


def test_an_offset_in_a_transaction_is_pending_until_its_marker(store: OffsetStore) -> None:
    put(store, 1)
    put(store, 5, transaction=FIRST)
    assert (offset(store), store.is_pending("g", "t", 0)) == (1, True)
    store.end_transaction(FIRST, commit=True)
    assert (offset(store), store.is_pending("g", "t", 0)) == (5, False)


def test_an_aborted_transaction_leaves_nothing(store: OffsetStore) -> None:
    put(store, 1)
    put(store, 5, transaction=FIRST)
    store.end_transaction(FIRST, commit=False)
    assert (offset(store), store.is_pending("g", "t", 0)) == (1, False)


def test_a_plain_commit_after_a_pending_one_outlives_it(store: OffsetStore) -> None:
    put(store, 5, transaction=FIRST)
    put(store, 3)
    store.end_transaction(FIRST, commit=True)
    assert offset(store) == 3


def test_of_two_transactions_the_one_that_wrote_last_wins_whatever_the_order_of_markers(
    store: OffsetStore,
) -> None:
    put(store, 5, transaction=FIRST)
    put(store, 9, transaction=SECOND)
    store.end_transaction(SECOND, commit=True)
    store.end_transaction(FIRST, commit=True)
    assert offset(store) == 9


def test_a_marker_ends_the_transaction_in_its_own_journal_partition_only(store: OffsetStore) -> None:
    put(store, 5, transaction=(7, 100))
    store.end_transaction((8, 100), commit=True)
    assert store.is_pending("g", "t", 0)


def test_a_marker_of_an_unknown_transaction_does_nothing(store: OffsetStore) -> None:
    store.end_transaction(FIRST, commit=True)
    assert offset(store) is None


def test_a_tombstone_removes_pending_offsets_too(store: OffsetStore) -> None:
    put(store, 5, transaction=FIRST)
    put(store, None)
    store.end_transaction(FIRST, commit=True)
    assert offset(store) is None


def test_tombstones_cover_committed_and_pending_offsets_once_each(store: OffsetStore) -> None:
    put(store, 1, 0)
    put(store, 2, 0, transaction=FIRST)
    put(store, 3, 1, transaction=SECOND)
    keys = [entry.key for entry in store.tombstones("g")]
    assert keys == [
        OffsetCommitKey(group="g", topic="t", partition=0),
        OffsetCommitKey(group="g", topic="t", partition=1),
    ]


def test_tombstones_of_a_deleted_topic_spare_the_new_topic_of_its_name(store: OffsetStore) -> None:
    old, new = b"o" * 16, b"n" * 16
    put(store, 1, 0, topic_id=old)
    put(store, 1, 1, topic_id=new)
    put(store, 1, 2)
    gone = [entry.key for entry in store.tombstones("g", topic="t", topic_id=old)]
    assert [key.partition for key in gone if isinstance(key, OffsetCommitKey)] == [0, 2]
    assert store.groups_reading("t") == ["g"]


def expired(
    store: OffsetStore, wall_ms: int, *, subscribed: bool = False, since_ms: int | None = -1
) -> tuple[int, bool]:
    entries, is_nothing_left = store.expired(
        "g",
        wall_ms=wall_ms,
        retention_ms=100,
        since=lambda committed: committed.committed_ms if since_ms == -1 else since_ms,
        is_subscribed=lambda _: subscribed,
    )
    return len(entries), is_nothing_left


def test_an_offset_expires_its_retention_after_its_commit(store: OffsetStore) -> None:
    put(store, 1, committed_ms=1000)
    assert expired(store, 1099) == (0, False)
    assert expired(store, 1100) == (1, True)


def test_an_offset_with_its_own_expiry_goes_by_that(store: OffsetStore) -> None:
    put(store, 1, committed_ms=1000, expires_ms=5000)
    assert expired(store, 4999) == (0, False)
    assert expired(store, 5000) == (1, True)


def test_offsets_of_subscribed_topics_do_not_expire(store: OffsetStore) -> None:
    put(store, 1, committed_ms=1000)
    assert expired(store, 9999, subscribed=True) == (0, False)


def test_offsets_of_a_group_whose_retention_does_not_count_stay(store: OffsetStore) -> None:
    put(store, 1, committed_ms=1000, expires_ms=1001)
    assert expired(store, 9999, since_ms=None) == (0, False)


def test_a_partition_with_a_pending_offset_does_not_expire(store: OffsetStore) -> None:
    put(store, 1, committed_ms=1000)
    put(store, 2, transaction=FIRST)
    assert expired(store, 9999) == (0, False)


def test_a_group_without_offsets_has_nothing_left_unless_a_transaction_is_open(store: OffsetStore) -> None:
    assert expired(store, 0) == (0, True)
    put(store, 2, transaction=FIRST)
    assert expired(store, 0) == (0, False)
