"""Goal: records of the state topic are named by what they are; one that cannot be read is named by its place."""

import pytest

from headrace.client.admin.results import StateRecordKind
from headrace.client.admin.share_state import _decode, _kind
from headrace.client.errors import CorruptRecordError
from headrace.wire.records import NewRecord, Record, build_batch, read_records
from headrace.wire.share_state import ShareKey, Snapshot, Update, snapshot_key


def record(key: bytes | None, value: bytes | None) -> Record:
    (only,) = read_records(build_batch([NewRecord(key, value, (), 1)], base_offset=7))
    return only


def test_the_three_kinds_of_records() -> None:
    assert _kind(Snapshot(0, 0, 0, 0, 0, 0, 0, [])) is StateRecordKind.SNAPSHOT
    assert _kind(Update(0, 0, 0, 0, [])) is StateRecordKind.UPDATE
    assert _kind(None) is StateRecordKind.TOMBSTONE


def test_a_tombstone_names_what_it_ends() -> None:
    key = ShareKey("g", bytes(16), 0)
    assert _decode(3, record(snapshot_key(key), None)) == (key, None)


@pytest.mark.parametrize(
    ("key", "value"), [(None, b""), (snapshot_key(ShareKey("g", bytes(16), 0)), b"\x00\x09")]
)
def test_a_record_that_is_no_share_state_is_named(key: bytes | None, value: bytes) -> None:
    with pytest.raises(
        CorruptRecordError,
        match=r"partition 3 of topic '__share_.*record 7 is not a valid share-state record",
    ):
        _decode(3, record(key, value))
