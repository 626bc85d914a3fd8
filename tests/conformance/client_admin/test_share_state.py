"""Goal: the state topic of both brokers is read and played back as they themselves would, and the embedded broker's
live view agrees with it.

Method: members that take, answer and hold records; what is written down is known by hand.
"""

from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from headrace import Broker
from headrace.client.admin import EARLIEST, Admin
from headrace.client.admin.results import StateRecordKind
from headrace.client.errors import GroupIdNotFoundError
from headrace.share.holds import HoldEnd
from headrace.share.states import RecordState
from headrace.share.view import StateRun
from headrace.wire.share_state import Snapshot, Update
from tests.conformance.conftest import BrokerUnderTest
from tests.conformance.share.share_client import ACCEPT, LEAVE, REJECT, RELEASE, ShareMember, new_queue
from tests.conformance.steps import new_topic, wait_for
from tests.conformance.wire_client import WireClient

AVAILABLE, ACQUIRED, ACKNOWLEDGED, ARCHIVED = (
    RecordState.AVAILABLE,
    RecordState.ACQUIRED,
    RecordState.ACKNOWLEDGED,
    RecordState.ARCHIVED,
)
NewMember = Callable[[bytes], ShareMember]


def test_the_window_is_what_was_answered(
    admin: Admin, wire: WireClient, member: NewMember, unique: str
) -> None:
    alone = member(new_queue(wire, unique, 10, partitions=2))
    alone.join(unique)
    alone.take(20, 0, 1)
    assert alone.ack((2, 3, ACCEPT), (5, 5, REJECT), (6, 7, RELEASE)) == 0
    states = admin.share_state(unique)
    assert list(states) == [(unique, 0), (unique, 1)]
    first, second = states.values()
    assert first.runs == (
        StateRun(2, 3, ACKNOWLEDGED, 1),
        StateRun(5, 5, ARCHIVED, 1),
        StateRun(6, 7, AVAILABLE, 1),
    )
    assert (first.start_offset, first.next_offset, first.in_flight) == (0, 8, 8)
    assert (first.delivery_complete_count, first.log_start_offset, first.log_end_offset) == (3, 0, 10)
    assert (first.is_live, first.window_max, first.group_id, first.topic) == (False, None, unique, unique)
    assert (second.runs, second.start_offset, second.in_flight) == ((), 0, 0)
    assert list(admin.share_state(unique, [(unique, 1)])) == [(unique, 1)]


def test_a_second_delivery_wins_over_the_first(
    admin: Admin, wire: WireClient, member: NewMember, unique: str
) -> None:
    alone = member(new_queue(wire, unique, 4))
    alone.join(unique)
    alone.take(4, 0)
    assert alone.ack((0, 3, RELEASE)) == 0
    alone.take(4)
    assert alone.ack((1, 2, ACCEPT)) == 0
    assert admin.share_state(unique)[unique, 0].runs == (
        StateRun(0, 0, AVAILABLE, 1),
        StateRun(1, 2, ACKNOWLEDGED, 2),
        StateRun(3, 3, AVAILABLE, 1),
    )


def test_the_records_themselves_are_shown(
    admin: Admin, wire: WireClient, member: NewMember, unique: str
) -> None:
    alone = member(new_queue(wire, unique, 4))
    alone.join(unique)
    alone.take(4, 0)
    assert alone.ack((0, 1, ACCEPT)) == 0
    records = admin.share_state_records(unique)
    assert records[0].kind is StateRecordKind.SNAPSHOT
    assert isinstance(records[0].value, Snapshot)
    assert (records[0].value.start_offset, records[0].value.state_epoch) == (0, 1)
    last = records[-1]
    assert last.kind is StateRecordKind.UPDATE
    assert isinstance(last.value, Update)
    assert list(last.value.batches) == [(0, 1, ACKNOWLEDGED, 1)]
    assert (last.group_id, last.topic, last.partition) == (unique, unique, 0)
    assert [record.offset for record in records] == sorted(record.offset for record in records)
    assert len({record.state_partition for record in records}) == 1
    assert all(record.timestamp > 0 for record in records)


def test_more_updates_than_a_snapshot_takes_are_played_back(
    admin: Admin, wire: WireClient, member: NewMember, unique: str
) -> None:
    """After 500 updates the coordinator writes a snapshot (docs/concepts/share-semantics.md)."""
    answered = range(1, 1040, 2)
    alone = member(new_queue(wire, unique, *[260] * 4))
    alone.join(unique)
    alone.take(1040, 0)
    first = admin.share_state(unique)[unique, 0]
    for offset in answered:
        assert alone.ack((offset, offset, ACCEPT)) == 0
    kinds = [record.kind for record in admin.share_state_records(unique)]
    assert kinds.count(StateRecordKind.SNAPSHOT) >= 2
    state = admin.share_state(unique)[unique, 0]
    assert state.runs == tuple(StateRun(offset, offset, ACKNOWLEDGED, 1) for offset in answered)
    assert (state.delivery_complete_count, state.in_flight) == (len(answered), 1040)
    assert state.snapshot_epoch >= 1
    assert (state.snapshot_ms or 0) > (first.snapshot_ms or 0) > 0


@pytest.mark.parametrize("is_deleted", [False, True])
def test_a_group_that_begins_anew_has_another_state(
    admin: Admin, wire: WireClient, member: NewMember, unique: str, is_deleted: bool
) -> None:
    """After a deletion its epoch may be the old one, and the number of its snapshot is."""
    topic_id = new_queue(wire, unique, 10)
    alone = member(topic_id)
    alone.join(unique)
    alone.take(10, 0)
    assert alone.ack((0, 9, ACCEPT)) == 0
    before = admin.share_state(unique)[unique, 0]
    alone.close()
    alone.heartbeat(LEAVE)
    if is_deleted:
        admin.delete_groups([unique])
    else:
        admin.alter_share_group_offsets(unique, to=EARLIEST)
    another = member(topic_id)
    another.join(unique)
    after = admin.share_state(unique)[unique, 0]
    assert (after.snapshot_ms or 0) > (before.snapshot_ms or 0) > 0
    if is_deleted:
        assert after.snapshot_epoch == before.snapshot_epoch == 0
    else:
        assert after.state_epoch > before.state_epoch


def test_what_was_pruned_is_not_missed(unique: str) -> None:
    """Every five minutes records before the oldest needed snapshot are deleted. Only our broker has a clock to turn."""
    settings = {
        "share.coordinator.snapshot.update.records.per.snapshot": 3,
        "headrace.share.state.history.ms": 0,
    }
    with (
        Broker(settings=settings) as broker,
        WireClient(broker.bootstrap_servers) as wire,
        Admin(bootstrap_servers=broker.bootstrap_servers) as admin,
    ):
        alone = ShareMember(wire, unique, new_queue(wire, unique, 10))
        alone.join(unique)
        alone.take(10, 0)
        for offset in (1, 3, 5, 7, 9):
            assert alone.ack((offset, offset, ACCEPT)) == 0
        before = admin.share_state(unique)[unique, 0]
        assert [run.first for run in before.runs] == [1, 3, 5, 7, 9]
        alone.close()
        broker.advance(301)
        records = admin.share_state_records(unique)
        assert records[0].offset > 0
        assert records[0].kind is StateRecordKind.SNAPSHOT
        after = admin.share_state(unique)[unique, 0]
        assert [run.first for run in after.runs if run.state is ACKNOWLEDGED] == [1, 3, 5, 7, 9]


def test_a_group_without_state_has_none_and_one_that_is_not_there_is_refused(
    admin: Admin, wire: WireClient, unique: str
) -> None:
    new_topic(wire, unique)
    with pytest.raises(GroupIdNotFoundError, match=f"{unique} not found"):
        admin.share_state(unique)
    admin.alter_share_group_offsets(unique, to=EARLIEST, topics=[unique])
    admin.delete_share_group_offsets(unique, [unique])
    assert admin.share_state(unique) == {}
    assert admin.share_state_records(unique) == []


def test_the_live_view_adds_what_is_held(headrace: Broker, unique: str) -> None:
    """Only our broker has one; what both know is the same."""
    with (
        WireClient(headrace.bootstrap_servers) as wire,
        Admin(bootstrap_servers=headrace.bootstrap_servers) as admin,
    ):
        alone = ShareMember(wire, unique, new_queue(wire, unique, 6))
        alone.join(unique)
        alone.take(6, 0)
        assert alone.ack((2, 3, ACCEPT)) == 0
        live = headrace.share_state(unique)[unique, 0]
        assert [(run.first, run.last, run.state, run.holder) for run in live.runs] == [
            (0, 1, ACQUIRED, alone.member_id),
            (2, 3, ACKNOWLEDGED, None),
            (4, 5, ACQUIRED, alone.member_id),
        ]
        assert 0 < (live.runs[0].lock_ms_left or 0) <= 30_000
        assert (live.in_flight, live.window_max, live.is_live) == (6, 2000, True)
        written = admin.share_state(unique)[unique, 0]
        assert written.runs == (StateRun(2, 3, ACKNOWLEDGED, 1),)
        for shared in (
            "start_offset",
            "delivery_complete_count",
            "state_epoch",
            "topic_id",
            "log_end_offset",
        ):
            assert getattr(live, shared) == getattr(written, shared), shared
    with pytest.raises(Exception, match="GROUP_ID_NOT_FOUND: Group nobody not found"):
        headrace.share_state("nobody")


def test_the_state_of_an_earlier_time_is_replayed(
    broker: BrokerUnderTest, admin: Admin, wire: WireClient, unique: str, member: NewMember
) -> None:
    alone = member(new_queue(wire, unique, 6))
    alone.join(unique)
    alone.take(6, 0)
    assert alone.ack((1, 1, ACCEPT)) == 0
    first = admin.share_state_records(unique)[-1].timestamp
    wait_for(lambda: broker.now_ms() > first)
    assert alone.ack((3, 3, ACCEPT)) == 0
    now = wait_for(lambda: found if len((found := admin.share_state(unique)[unique, 0]).runs) == 2 else None)
    assert [run.first for run in now.runs] == [1, 3]
    then = admin.share_state(unique, at=datetime.fromtimestamp(first / 1000, UTC))[unique, 0]
    assert [(run.first, run.last) for run in then.runs if run.state is ACKNOWLEDGED] == [(1, 1)]
    assert admin.share_state(unique, at=datetime(2020, 1, 1, tzinfo=UTC)) == {}


def test_who_held_records_at_a_time_is_replayed_where_it_is_written(
    broker: BrokerUnderTest, admin: Admin, wire: WireClient, unique: str, member: NewMember
) -> None:
    """Apache Kafka writes no members. Ours names the holder when the hold ends."""
    alone = member(new_queue(wire, unique, 10))
    alone.join(unique)
    alone.take(10, 0)
    assert alone.ack((0, 4, ACCEPT)) == 0
    held = admin.share_state_records(unique)[-1].timestamp
    wait_for(lambda: broker.now_ms() > held)
    assert alone.ack((5, 6, REJECT), (7, 7, RELEASE)) == 0
    records = wait_for(
        lambda: found if (found := admin.share_state_records(unique))[-1].timestamp > held else None
    )
    end = records[-1].timestamp
    then, later = (
        admin.share_state(unique, at=datetime.fromtimestamp(time / 1000, UTC))[unique, 0]
        for time in (held, end)
    )
    if broker.kind == "apache":
        assert (then.names_holders, then.ended, {run.past for run in later.runs}) == (False, (), {None})
        assert all(not record.holds for record in records)
        return
    who = {(hold.member_id, hold.client_host) for record in records for hold in record.holds}
    assert who == {(alone.member_id, "/127.0.0.1")}
    assert [(run.first, run.last, run.state, run.delivery_count, run.holder) for run in then.runs] == [
        (0, 4, ACKNOWLEDGED, 1, None),
        (5, 6, ACQUIRED, 1, alone.member_id),
        (7, 7, ACQUIRED, 1, alone.member_id),
    ]
    since = then.runs[1].past
    assert since is not None
    assert since.acquired_at <= held < (since.ended_at or 0) == end
    assert then.runs[1].held_ms == held - since.acquired_at
    assert [(hold.first, hold.last, hold.end) for hold in then.ended] == [(0, 4, HoldEnd.ACCEPTED)]
    assert [
        (run.first, run.last, run.state, run.past.end if run.past else None, run.holder) for run in later.runs
    ][-2:] == [(5, 6, ARCHIVED, HoldEnd.REJECTED, None), (7, 7, AVAILABLE, HoldEnd.RELEASED, None)]
    assert (then.names_holders, later.names_holders) == (True, True)
