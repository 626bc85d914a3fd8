"""Goal: where a share group stands is shown and moved alike on both brokers, and never while it has members."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from headrace.client.admin import EARLIEST, LATEST, Admin, OffsetSpec
from headrace.client.admin.results import OffsetChange, ShareGroupOffset
from headrace.client.errors import (
    GroupIdNotFoundError,
    NonEmptyGroupError,
    OffsetOutOfRangeError,
    UnknownTopicOrPartitionError,
)
from tests.conformance.share.share_client import ACCEPT, LEAVE, ShareMember, fill, new_queue
from tests.conformance.steps import batch, commit, new_topic, produced, wait_for
from tests.conformance.wire_client import WireClient

NewMember = Callable[[bytes], ShareMember]


def starts(admin: Admin, group: str) -> dict[tuple[str, int], int | None]:
    return {place: offset.start_offset for place, offset in admin.share_group_offsets(group).items()}


def test_start_end_and_lag_are_shown(admin: Admin, wire: WireClient, member: NewMember, unique: str) -> None:
    alone = member(new_queue(wire, unique, 10, partitions=2))
    alone.join(unique)
    alone.take(20, 0, 1)
    assert alone.ack((0, 3, ACCEPT), (6, 6, ACCEPT)) == 0
    assert admin.share_group_offsets(unique) == {
        (unique, 0): ShareGroupOffset(
            topic=unique, partition=0, start_offset=0, end_offset=10, lag=5, leader_epoch=0
        ),
        (unique, 1): ShareGroupOffset(
            topic=unique, partition=1, start_offset=0, end_offset=10, lag=10, leader_epoch=0
        ),
    }
    (only,) = admin.share_group_offsets(unique, [(unique, 1)]).values()
    assert (only.partition, only.lag) == (1, 10)


def test_what_is_not_known_yet_is_none(
    admin: Admin, wire: WireClient, member: NewMember, unique: str
) -> None:
    topic_id = new_topic(wire, unique)
    alone = member(topic_id)
    alone.join(unique)
    assert admin.share_group_offsets(unique, [unique])[unique, 0] == ShareGroupOffset(
        topic=unique, partition=0, start_offset=None, end_offset=0, lag=None, leader_epoch=None
    )


def test_offsets_of_what_is_not_there_are_refused(admin: Admin, wire: WireClient, unique: str) -> None:
    new_queue(wire, unique)
    with pytest.raises(GroupIdNotFoundError, match=f"{unique}-not-there not found"):
        admin.share_group_offsets(f"{unique}-not-there")
    with pytest.raises(UnknownTopicOrPartitionError, match=f"topic '{unique}-not-there'"):
        admin.share_group_offsets(unique, [f"{unique}-not-there"])
    with pytest.raises(UnknownTopicOrPartitionError, match="no partition 3; the topic has 0 to 0"):
        admin.share_group_offsets(unique, [(unique, 3)])


def test_a_group_is_moved_to_the_ends_of_its_logs(admin: Admin, wire: WireClient, unique: str) -> None:
    new_queue(wire, unique, 5, partitions=2)
    produced(wire, unique, batch(*"xyz"), partition=1)
    planned = admin.alter_share_group_offsets(unique, to=LATEST, dry_run=True)
    assert planned == {
        (unique, 0): OffsetChange(unique, 0, 0, 5),
        (unique, 1): OffsetChange(unique, 1, 0, 8),
    }
    assert starts(admin, unique) == {(unique, 0): 0, (unique, 1): 0}, "a dry run changes nothing"
    assert admin.alter_share_group_offsets(unique, to=LATEST) == planned
    assert starts(admin, unique) == {(unique, 0): 5, (unique, 1): 8}
    admin.alter_share_group_offsets(unique, to=EARLIEST, topics=[(unique, 1)])
    assert starts(admin, unique) == {(unique, 0): 5, (unique, 1): 0}


def test_a_group_is_moved_to_a_time(admin: Admin, wire: WireClient, unique: str) -> None:
    new_queue(wire, unique, partitions=2)
    for timestamp in (1_000_000, 2_000_000, 3_000_000):
        produced(wire, unique, batch("a", timestamp=timestamp))
    produced(wire, unique, batch("early", timestamp=1_000_000), partition=1)
    moved = admin.alter_share_group_offsets(unique, to=datetime.fromtimestamp(1500, UTC))
    assert {place: change.after for place, change in moved.items()} == {(unique, 0): 1, (unique, 1): 1}
    assert starts(admin, unique) == {(unique, 0): 1, (unique, 1): 1}, "the end, where nothing is that young"
    with pytest.raises(ValueError, match="has no time zone"):
        admin.alter_share_group_offsets(unique, to=datetime(2026, 1, 1))


@pytest.mark.parametrize("to", ["latest", 5, OffsetSpec.MAX_TIMESTAMP, None])
def test_what_is_no_place_to_move_to_is_refused(admin: Admin, wire: WireClient, unique: str, to: Any) -> None:
    new_queue(wire, unique, 5)
    with pytest.raises(ValueError, match=r"the target must be OffsetSpec\.EARLIEST or LATEST"):
        admin.alter_share_group_offsets(unique, to=to)
    assert starts(admin, unique) == {(unique, 0): 0}


def test_a_group_is_moved_to_offsets_given_one_by_one(admin: Admin, wire: WireClient, unique: str) -> None:
    new_queue(wire, unique, 5, partitions=2)
    admin.alter_share_group_offsets(unique, to={(unique, 1): 3})
    assert starts(admin, unique) == {(unique, 0): 0, (unique, 1): 3}
    for offset in (-1, 6):
        with pytest.raises(
            OffsetOutOfRangeError, match=f"offset {offset} is not in the log, which has 0 to 5"
        ):
            admin.alter_share_group_offsets(unique, to={(unique, 1): offset})
    with pytest.raises(ValueError, match="leave out `topics`"):
        admin.alter_share_group_offsets(unique, to={(unique, 1): 3}, topics=[unique])
    assert starts(admin, unique) == {(unique, 0): 0, (unique, 1): 3}


def test_a_group_that_is_not_there_is_made(admin: Admin, wire: WireClient, unique: str) -> None:
    new_topic(wire, unique)
    fill(wire, unique, 4)
    with pytest.raises(GroupIdNotFoundError, match="no topics of its own; name them"):
        admin.alter_share_group_offsets(unique, to=EARLIEST)
    assert admin.alter_share_group_offsets(unique, to=LATEST, topics=unique, dry_run=True) == {
        (unique, 0): OffsetChange(unique, 0, None, 4)
    }
    with pytest.raises(GroupIdNotFoundError):
        admin.find_group(unique)
    admin.alter_share_group_offsets(unique, to=LATEST, topics=[unique])
    assert starts(admin, unique) == {(unique, 0): 4}
    with pytest.raises(UnknownTopicOrPartitionError):
        admin.alter_share_group_offsets(unique, to=LATEST, topics=[f"{unique}-not-there"])


@pytest.mark.parametrize("dry_run", [True, False], ids=["planned", "done"])
def test_a_group_with_members_is_not_moved_and_they_are_named(
    admin: Admin, wire: WireClient, member: NewMember, unique: str, dry_run: bool
) -> None:
    alone = member(new_queue(wire, unique))
    alone.join(unique)
    with pytest.raises(
        NonEmptyGroupError, match=r"it has members: .*127\.0\.0\.1.*Stop the group's members first"
    ):
        admin.alter_share_group_offsets(unique, to=EARLIEST, dry_run=dry_run)
    with pytest.raises(NonEmptyGroupError):
        admin.delete_share_group_offsets(unique, [unique])
    with pytest.raises(NonEmptyGroupError):
        admin.delete_groups([unique])
    alone.heartbeat(LEAVE)
    assert admin.alter_share_group_offsets(unique, to=EARLIEST, dry_run=dry_run)


def test_a_group_of_another_type_is_not_moved(admin: Admin, wire: WireClient, unique: str) -> None:
    new_topic(wire, unique)
    wait_for(lambda: commit(wire, unique, unique, 0) == 0)
    with pytest.raises(GroupIdNotFoundError, match="it is a classic group, not a share group"):
        admin.alter_share_group_offsets(unique, to=EARLIEST, topics=[unique])
    with pytest.raises(GroupIdNotFoundError):
        admin.share_group_offsets(unique)
    with pytest.raises(GroupIdNotFoundError):
        admin.delete_share_group_offsets(unique, [unique])


def test_a_group_forgets_a_topic(admin: Admin, wire: WireClient, unique: str) -> None:
    new_queue(wire, unique, 3)
    other = f"{unique}-other"
    new_topic(wire, other)
    admin.alter_share_group_offsets(unique, to=EARLIEST, topics=[other])
    admin.delete_share_group_offsets(unique, [unique])
    assert starts(admin, unique) == {(other, 0): 0}
    with pytest.raises(UnknownTopicOrPartitionError, match="There is no offset information to delete"):
        admin.delete_share_group_offsets(unique, [unique])
    with pytest.raises(GroupIdNotFoundError):
        admin.delete_share_group_offsets(f"{unique}-not-there", [unique])
