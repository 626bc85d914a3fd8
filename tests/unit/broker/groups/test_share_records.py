"""Changes of share groups in the journal: every kind comes back as it went in, in Kafka's schemas."""

import pytest

from headrace.broker.groups import share_records
from headrace.broker.groups.records import decode
from headrace.share.membership import (
    CurrentAssignment,
    CurrentChanged,
    EpochChanged,
    MemberChanged,
    MemberMetadata,
    StateTopicsChanged,
    TargetChanged,
    TargetEpochChanged,
    TopicState,
)

TOPIC, OTHER = bytes(range(16)), bytes(range(16, 32))
CHANGES = [
    (10, MemberChanged("m", MemberMetadata(rack_id="r", client_id="c", client_host="/h", subscribed=("a", "b")))),
    (10, MemberChanged("m", MemberMetadata())),
    (10, MemberChanged("m", None)),
    (11, EpochChanged(3, -5)),
    (12, TargetEpochChanged(7)),
    (13, TargetChanged("m", {TOPIC: (0, 2), OTHER: (1,)})),
    (13, TargetChanged("m", {})),
    (13, TargetChanged("m", None)),
    (14, CurrentChanged("m", CurrentAssignment(member_epoch=4, previous_epoch=2, assigned={TOPIC: (0,)}))),
    (14, CurrentChanged("m", None)),
    (15, StateTopicsChanged({TOPIC: TopicState("t", (0, 1))}, {OTHER: TopicState("o", (0,))}, {OTHER: "x"})),
    (15, StateTopicsChanged({})),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "change"), CHANGES)
def test_a_change_comes_back_from_the_journal(kind: int, change) -> None:
    key, value = share_records.entry("g", change, 1234).encode()
    assert key[:2] == kind.to_bytes(2, "big")
    entry = decode(key, value)
    assert entry is not None
    assert isinstance(entry.key, share_records.KEYS)
    assert entry.key.group_id == "g"
    assert share_records.change(entry.key, entry.value) == change


def test_a_target_carries_the_time_at_which_it_was_computed() -> None:
    _, value = share_records.entry("g", TargetEpochChanged(7), 1234).encode()
    assert value == b"\0\0" + b"\0\0\0\7" + b"\1" + b"\0\x08" + (1234).to_bytes(8, "big")


def test_a_deleted_group_ends_with_the_tombstone_of_its_epoch() -> None:
    entries = [entry.encode() for entry in share_records.group_tombstones("g")]
    assert [key[:2] for key, _ in entries] == [b"\0\x0c", b"\0\x0f", b"\0\x0b"]
    assert {value for _, value in entries} == {None}


def test_tombstones_of_a_group_change_no_member() -> None:
    for entry in share_records.group_tombstones("g"):
        assert share_records.change(entry.key, entry.value) is None
