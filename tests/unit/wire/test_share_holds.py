"""Who held records, in the state topic: what is written is read back, and what is not there is unknown."""

import pytest

from headrace.share.changes import StateBatch
from headrace.share.holds import EndedHold, Hold, HoldEnd, PastHold
from headrace.share.states import RecordState
from headrace.wire.codec import encode
from headrace.wire.messages.share_update_value import ShareUpdateValue
from headrace.wire.messages.share_update_value import StateBatch as UpdateBatch
from headrace.wire.share_holds import HOLDS_MAX, NAME_MAX, decode_holds, encode_holds, encode_member, holds_of
from headrace.wire.share_state import (
    ShareKey,
    Snapshot,
    Update,
    decode,
    encode_snapshot,
    encode_update,
    snapshot_key,
    update_key,
)

ACKNOWLEDGED, AVAILABLE = RecordState.ACKNOWLEDGED, RecordState.AVAILABLE
ANN, BOB = Hold("ann", 4_000), Hold("bob", 9_500, renewals=3)
MEMBERS = {"ann": encode_member("ann", "mailer", "/10.0.0.1"), "bob": encode_member("bob", None, "")}
NAMES = MEMBERS.__getitem__
ENDED = [
    EndedHold(3, 7, ANN, HoldEnd.ACCEPTED),
    EndedHold(8, 8, BOB, HoldEnd.EXPIRED),
    EndedHold(9, 9, ANN, HoldEnd.RELEASED),
]
BATCHES = [
    StateBatch(3, 5, ACKNOWLEDGED, 1),
    StateBatch(6, 8, ACKNOWLEDGED, 4),
    StateBatch(9, 9, AVAILABLE, 2),
]
KEY = ShareKey("g", bytes(16), 0)


def test_holds_are_read_back_with_the_times_and_delivery_counts_of_their_record() -> None:
    data = encode_holds(ENDED, NAMES, ahead_ms=1_699_999_990_000)
    assert (data.count(NAMES("ann")), data.count(NAMES("bob"))) == (1, 1)
    ann, bob = ("ann", "mailer", "/10.0.0.1"), ("bob", "", "")
    assert decode_holds(data, BATCHES, timestamp=1_700_000_000_000) == [
        PastHold(3, 5, 1, *ann, 1_699_999_994_000, 1_700_000_000_000, HoldEnd.ACCEPTED),
        PastHold(6, 7, 4, *ann, 1_699_999_994_000, 1_700_000_000_000, HoldEnd.ACCEPTED),
        PastHold(8, 8, 4, *bob, 1_699_999_999_500, 1_700_000_000_000, HoldEnd.EXPIRED),
        PastHold(9, 9, 2, *ann, 1_699_999_994_000, 1_700_000_000_000, HoldEnd.RELEASED),
    ]


@pytest.mark.parametrize("complete_count", [-1, 5])
def test_they_travel_in_a_tagged_field_of_updates_and_snapshots(complete_count: int) -> None:
    data = encode_holds(ENDED, NAMES, ahead_ms=1_699_999_990_000)
    update = Update(1, 2, 3, complete_count, BATCHES, data)
    assert decode(update_key(KEY), encode_update(update)) == (KEY, update)
    snapshot = Snapshot(1, 2, 3, 4, complete_count, 6, 7, BATCHES, data)
    assert decode(snapshot_key(KEY), encode_snapshot(snapshot)) == (KEY, snapshot)
    assert [hold.member_id for hold in holds_of(update, 0)] == ["ann", "ann", "bob", "ann"]
    value = ShareUpdateValue(
        snapshot_epoch=1,
        leader_epoch=2,
        start_offset=3,
        delivery_complete_count=complete_count,
        state_batches=[
            UpdateBatch(first_offset=first, last_offset=last, delivery_state=state, delivery_count=count)
            for first, last, state, count in BATCHES
        ],
        holds=data,
    )
    assert encode_update(update) == bytes(2) + encode(value, 0)


def test_one_member_is_named_once_however_many_ranges_it_let_go_of() -> None:
    few, many = (
        len(encode_holds([EndedHold(2 * n, 2 * n, ANN, HoldEnd.ACCEPTED) for n in range(count)], NAMES, 0))
        for count in (1, 101)
    )
    assert few == 1 + 21 + len(NAMES("ann"))
    assert many - few == 100 * 21


def test_more_ranges_than_are_written_leave_the_state_alone() -> None:
    ended = [EndedHold(2 * n, 2 * n, ANN, HoldEnd.ACCEPTED) for n in range(HOLDS_MAX + 1)]
    assert encode_holds(ended, NAMES, 0) == b""
    assert len(encode_holds(ended[1:], NAMES, 0)) < 44_000
    update = Update(0, 0, 0, -1, BATCHES)
    assert encode_update(update)[-1:] == b"\0"
    assert holds_of(update, 0) == []


def test_names_that_clients_choose_are_bounded() -> None:
    assert len(encode_member("m", "c" * 30_000, "h" * 300)) == 2 * NAME_MAX + 4


def test_nothing_was_acquired_after_it_was_let_go_of() -> None:
    """The clock was set back between the two."""
    (hold,) = decode_holds(encode_holds(ENDED[:1], NAMES, 0), [StateBatch(3, 7, ACKNOWLEDGED, 1)], 3_000)
    assert (hold.acquired_at, hold.held_ms) == (3_000, 0)


def test_another_format_is_unknown_and_so_is_another_end() -> None:
    data = encode_holds(ENDED[:1], NAMES, 0)
    assert decode_holds(b"\1" + data[1:], BATCHES, 0) == []
    at = data.index(NAMES("ann")) - 1
    later = data[:at] + bytes([data[at] | 0x40]) + data[at + 1 :]
    assert decode_holds(later, BATCHES[:1], 0)[0].end is None


@pytest.mark.parametrize("cut", [1, 3, 5, 20])
def test_holds_that_cannot_be_read_are_unknown(cut: int) -> None:
    data = encode_holds(ENDED[:2], NAMES, 0)
    assert decode_holds(data[:-cut], BATCHES, 0) == []
