"""Static members (KIP-345): a member with an instance id comes back as itself, without a rebalance."""

from collections.abc import Callable
from typing import Any

import pytest

from headrace.wire.errors import ErrorCode
from tests.conformance.steps import (
    METADATA,
    commit,
    describe_group,
    heartbeat,
    join,
    join_request,
    leave,
    new_topic,
    sync,
    wait_for,
)
from tests.conformance.wire_client import WireClient

FENCED = ErrorCode.FENCED_INSTANCE_ID


def stable_static(wire: WireClient, group: str, **fields: Any) -> str:
    """A group with one static member that has its assignment; returns the member's id."""
    joined = join(wire, group, instance="one", **fields)
    assert (joined.error_code, joined.generation_id) == (0, 1)
    synced = sync(wire, group, joined.member_id, 1, {joined.member_id: b"all"}, group_instance_id="one")
    assert synced.assignment == b"all"
    return str(joined.member_id)


def test_a_static_member_needs_no_id_first(wire: WireClient, unique: str) -> None:
    joined = join(wire, unique, instance="one")
    assert joined.error_code == 0
    assert joined.member_id.startswith("one-")
    assert [member.group_instance_id for member in joined.members] == ["one"]


def test_it_comes_back_without_a_rebalance(wire: WireClient, unique: str) -> None:
    old = stable_static(wire, unique)
    again = join(wire, unique, instance="one")
    assert (again.error_code, again.generation_id) == (0, 1)
    assert again.member_id != old
    # KIP-814: it leads still, and knows that nobody waits for an assignment.
    assert (again.leader, again.skip_assignment) == (again.member_id, True)
    assert sync(wire, unique, again.member_id, 1, group_instance_id="one").assignment == b"all"
    assert describe_group(wire, unique).group_state == "Stable"


def test_before_version_9_it_comes_back_as_a_follower_of_itself(wire: WireClient, unique: str) -> None:
    old = stable_static(wire, unique)
    again = join(wire, unique, instance="one", version=8)
    assert (again.leader, again.members, again.skip_assignment) == (old, [], False)
    assert again.member_id != old


def test_its_former_self_is_fenced(wire: WireClient, unique: str) -> None:
    new_topic(wire, unique)
    old = stable_static(wire, unique)
    join(wire, unique, instance="one")
    assert heartbeat(wire, unique, old, 1, group_instance_id="one") == FENCED
    assert sync(wire, unique, old, 1, group_instance_id="one").error_code == FENCED
    assert join(wire, unique, old, instance="one").error_code == FENCED
    assert leave(wire, unique, old, group_instance_id="one").members[0].error_code == FENCED
    fields = {"generation_id_or_member_epoch": 1, "member_id": old, "group_instance_id": "one"}
    assert commit(wire, unique, unique, 1, **fields) == FENCED


def test_without_its_instance_id_the_former_self_is_unknown(wire: WireClient, unique: str) -> None:
    old = stable_static(wire, unique)
    join(wire, unique, instance="one")
    assert heartbeat(wire, unique, old, 1) == ErrorCode.UNKNOWN_MEMBER_ID


def test_an_instance_nobody_has_is_unknown(wire: WireClient, unique: str) -> None:
    member_id = stable_static(wire, unique)
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    assert heartbeat(wire, unique, member_id, 1, group_instance_id="two") == unknown
    assert join(wire, unique, member_id, instance="two").error_code == unknown


def test_a_former_self_that_still_waits_is_fenced(
    wire: WireClient, connect: Callable[[], WireClient], unique: str
) -> None:
    former, later, other = wire, connect(), connect()
    member_id = stable_static(former, unique)
    newcomer = join(other, unique).member_id
    # A leader that joins again begins a rebalance, and waits in it for the newcomer.
    former.post_ask("join_group", 9, **join_request(unique, member_id, instance="one"))
    wait_for(lambda: describe_group(other, unique).group_state == "PreparingRebalance")
    later.post_ask("join_group", 9, **join_request(unique, instance="one"))
    fenced = former.receive()
    assert (fenced.error_code, fenced.member_id) == (FENCED, member_id)
    joined = join(other, unique, newcomer)
    assert (joined.error_code, joined.generation_id) == (0, 2)
    assert later.receive().generation_id == 2


def test_other_wishes_make_a_rebalance(wire: WireClient, unique: str) -> None:
    stable_static(wire, unique, protocols={"range": METADATA, "sticky": b"s"})
    again = join(wire, unique, instance="one", protocols={"sticky": b"s"})
    assert (again.error_code, again.generation_id, again.protocol_name) == (0, 2, "sticky")


@pytest.mark.parametrize("member_id", ["", "own"], ids=["by instance", "by both ids"])
def test_it_leaves_by_its_instance_id(wire: WireClient, unique: str, member_id: str) -> None:
    own = stable_static(wire, unique)
    response = leave(wire, unique, own if member_id else "", group_instance_id="one")
    (member,) = response.members
    assert (member.error_code, member.group_instance_id) == (0, "one")
    assert describe_group(wire, unique).group_state == "Empty"


def test_leaving_by_an_unknown_instance_is_refused(wire: WireClient, unique: str) -> None:
    stable_static(wire, unique)
    (member,) = leave(wire, unique, "", group_instance_id="two").members
    assert member.error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_it_is_described_with_its_instance_id(wire: WireClient, unique: str) -> None:
    stable_static(wire, unique)
    assert [member.group_instance_id for member in describe_group(wire, unique).members] == ["one"]


def test_it_is_out_when_its_session_ends(wire: WireClient, unique: str) -> None:
    stable_static(wire, unique, session_ms=300)
    wait_for(lambda: describe_group(wire, unique).group_state == "Empty")
    assert join(wire, unique, instance="one").generation_id == 3
