"""Classic groups: members join, one of them assigns, all go on together until something changes."""

from collections.abc import Callable
from typing import Any

import pytest

from headrace.wire.errors import ErrorCode
from tests.conformance.conftest import BrokerUnderTest
from tests.conformance.plain import plain
from tests.conformance.steps import (
    METADATA,
    describe_group,
    heartbeat,
    join,
    join_named,
    join_request,
    leave,
    stable_group,
    sync,
    wait_for,
)
from tests.conformance.wire_client import WireClient

Connect = Callable[[], WireClient]
SHORT_MS = 400


def refused(code: ErrorCode, **fields: Any) -> dict[str, Any]:
    """A JoinGroup response that carries an error and nothing else."""
    return {
        "throttle_time_ms": 0,
        "error_code": code,
        "generation_id": -1,
        "protocol_type": None,
        "protocol_name": None,
        "leader": "",
        "skip_assignment": False,
        "member_id": "",
        "members": [],
        **fields,
    }


class Pair:
    """Two members of one group, each on a connection of its own; the first leads."""

    def __init__(self, first: WireClient, second: WireClient, group: str, **fields: Any) -> None:
        self.group = group
        self.first, self.second = first, second
        self.first_id = stable_group(first, group, **fields).member_id
        self.second_id = join(second, group, **fields).member_id
        second.post_ask("join_group", 9, **join_request(group, self.second_id, **fields))
        wait_for(lambda: heartbeat(first, group, self.first_id, 1) == ErrorCode.REBALANCE_IN_PROGRESS)
        self.leaders = join(first, group, self.first_id, **fields)
        self.followers = second.receive()

    def sync(self, generation: int = 2) -> tuple[bytes, bytes]:
        """Both fetch their assignments; the follower asks first and waits."""
        self.second.post_ask(
            "sync_group",
            5,
            group_id=self.group,
            generation_id=generation,
            member_id=self.second_id,
            protocol_type="consumer",
            protocol_name="range",
        )
        given = {self.first_id: b"one", self.second_id: b"two"}
        leaders = sync(self.first, self.group, self.first_id, generation, given)
        followers = self.second.receive()
        assert (leaders.error_code, followers.error_code) == (0, 0)
        return leaders.assignment, followers.assignment


@pytest.fixture
def pair(wire: WireClient, connect: Connect, unique: str) -> Pair:
    return Pair(wire, connect(), unique)


def test_a_member_alone_joins_syncs_beats_and_leaves(wire: WireClient, unique: str) -> None:
    joined = join_named(wire, unique)
    assert (joined.leader, joined.generation_id) == (joined.member_id, 1)
    assert describe_group(wire, unique).group_state == "CompletingRebalance"
    assert sync(wire, unique, joined.member_id, 1, {joined.member_id: b"all"}).assignment == b"all"
    assert describe_group(wire, unique).group_state == "Stable"
    assert heartbeat(wire, unique, joined.member_id, 1) == 0
    left = leave(wire, unique, joined.member_id)
    assert (left.error_code, left.members[0].error_code) == (0, 0)
    assert describe_group(wire, unique).group_state == "Empty"
    assert heartbeat(wire, unique, joined.member_id, 1) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_second_member_makes_a_new_generation(pair: Pair) -> None:
    assert pair.leaders.generation_id == pair.followers.generation_id == 2
    assert pair.leaders.leader == pair.followers.leader == pair.first_id
    assert {member.member_id for member in pair.leaders.members} == {pair.first_id, pair.second_id}
    assert {member.metadata for member in pair.leaders.members} == {METADATA}
    assert pair.followers.members == []


def test_the_leaders_assignment_reaches_those_who_wait_for_it(pair: Pair) -> None:
    assert pair.sync() == (b"one", b"two")
    assert heartbeat(pair.first, pair.group, pair.first_id, 2) == 0
    assert heartbeat(pair.second, pair.group, pair.second_id, 2) == 0


def test_an_assignment_may_be_fetched_again(pair: Pair) -> None:
    pair.sync()
    assert sync(pair.second, pair.group, pair.second_id, 2).assignment == b"two"


def test_a_member_that_is_given_nothing_has_nothing(pair: Pair) -> None:
    assert sync(pair.first, pair.group, pair.first_id, 2, {pair.first_id: b"all"}).assignment == b"all"
    assert sync(pair.second, pair.group, pair.second_id, 2).assignment == b""


def test_those_who_stay_are_told_when_one_leaves(pair: Pair) -> None:
    pair.sync()
    leave(pair.second, pair.group, pair.second_id)
    assert heartbeat(pair.first, pair.group, pair.first_id, 2) == ErrorCode.REBALANCE_IN_PROGRESS
    assert describe_group(pair.first, pair.group).group_state == "PreparingRebalance"
    again = join(pair.first, pair.group, pair.first_id)
    assert (again.generation_id, len(again.members)) == (3, 1)


def test_a_leader_that_leaves_is_followed_by_another(pair: Pair) -> None:
    pair.sync()
    leave(pair.first, pair.group, pair.first_id)
    again = join(pair.second, pair.group, pair.second_id)
    assert (again.leader, again.generation_id) == (pair.second_id, 3)
    assert [member.member_id for member in again.members] == [pair.second_id]


def test_a_sync_is_told_that_a_new_rebalance_has_begun(pair: Pair, connect: Connect) -> None:
    pair.second.post_ask("sync_group", 4, group_id=pair.group, generation_id=2, member_id=pair.second_id)
    leave(pair.first, pair.group, pair.first_id)
    assert pair.second.receive().error_code == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_beat_between_join_and_sync_is_welcome(pair: Pair) -> None:
    assert heartbeat(pair.second, pair.group, pair.second_id, 2) == 0


def test_a_follower_that_joins_again_unchanged_disturbs_nobody(pair: Pair) -> None:
    pair.sync()
    again = join(pair.second, pair.group, pair.second_id)
    assert (again.error_code, again.generation_id, again.leader) == (0, 2, pair.first_id)
    assert heartbeat(pair.first, pair.group, pair.first_id, 2) == 0


def test_a_follower_that_joins_again_with_another_wish_makes_a_rebalance(pair: Pair) -> None:
    pair.sync()
    wish = join_request(pair.group, pair.second_id, protocols={"range": METADATA + b"\x00"})
    pair.second.post_ask("join_group", 9, **wish)
    wait_for(lambda: heartbeat(pair.first, pair.group, pair.first_id, 2) == ErrorCode.REBALANCE_IN_PROGRESS)
    assert join(pair.first, pair.group, pair.first_id).generation_id == 3
    assert pair.second.receive().generation_id == 3


def test_a_leader_that_joins_again_makes_a_rebalance(wire: WireClient, unique: str) -> None:
    member_id = stable_group(wire, unique).member_id
    assert join(wire, unique, member_id).generation_id == 2


def test_the_protocol_is_one_that_all_know_and_most_prefer(
    wire: WireClient, connect: Connect, unique: str
) -> None:
    first, second = wire, connect()
    first_id = join_named(first, unique, protocols={"sticky": b"s", "range": METADATA}).member_id
    sync(first, unique, first_id, 1, {first_id: b"all"}, protocol_name="sticky")
    offer = {"range": METADATA, "odd": b"o"}
    second_id = join(second, unique, protocols=offer).member_id
    second.post_ask("join_group", 9, **join_request(unique, second_id, protocols=offer))
    wait_for(lambda: heartbeat(first, unique, first_id, 1) == ErrorCode.REBALANCE_IN_PROGRESS)
    joined = join(first, unique, first_id, protocols={"sticky": b"s", "range": METADATA})
    assert (joined.protocol_name, second.receive().protocol_name) == ("range", "range")


@pytest.mark.parametrize(
    "fields",
    [
        {"protocols": {"sticky": METADATA}},
        {"protocol_type": "connect"},
        {"protocols": {}},
        {"protocol_type": ""},
    ],
    ids=["no protocol in common", "another type", "no protocols", "no type"],
)
def test_a_member_that_does_not_fit_in_is_refused(
    wire: WireClient, connect: Connect, unique: str, fields: dict[str, Any]
) -> None:
    stable_group(wire, unique)
    response = join(connect(), unique, **fields)
    assert plain(response) == refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)


@pytest.mark.parametrize(
    "fields", [{"protocols": {}}, {"protocol_type": ""}], ids=["no protocols", "no type"]
)
def test_a_group_cannot_begin_without_a_protocol(
    wire: WireClient, unique: str, fields: dict[str, Any]
) -> None:
    assert plain(join(wire, unique, **fields)) == refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)


@pytest.mark.parametrize("session_ms", [99, 1_800_001, 0, -1])
def test_a_session_out_of_bounds_is_refused(wire: WireClient, unique: str, session_ms: int) -> None:
    response = join(wire, unique, session_ms=session_ms)
    assert plain(response) == refused(ErrorCode.INVALID_SESSION_TIMEOUT)


def test_a_group_must_have_a_name(wire: WireClient) -> None:
    assert plain(join(wire, "")) == refused(ErrorCode.INVALID_GROUP_ID)
    assert heartbeat(wire, "", "member", 1) == ErrorCode.INVALID_GROUP_ID
    assert sync(wire, "", "member", 1).error_code == ErrorCode.INVALID_GROUP_ID


@pytest.mark.parametrize("is_there", [True, False], ids=["a group", "no group"])
def test_a_member_id_that_was_not_given_out_is_refused(wire: WireClient, unique: str, is_there: bool) -> None:
    if is_there:
        stable_group(wire, unique)
    response = join(wire, unique, "nobody")
    assert plain(response) == refused(ErrorCode.UNKNOWN_MEMBER_ID, member_id="nobody")
    assert heartbeat(wire, unique, "nobody", 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert sync(wire, unique, "nobody", 1).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    left = leave(wire, unique, "nobody")
    assert (left.error_code, left.members[0].error_code) == (0, ErrorCode.UNKNOWN_MEMBER_ID)
    left_by_old_client = wire.ask("leave_group", 2, group_id=unique, member_id="nobody")
    assert left_by_old_client.error_code == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("generation", [0, 2, -1])
def test_another_generation_is_refused(wire: WireClient, unique: str, generation: int) -> None:
    member_id = stable_group(wire, unique).member_id
    assert heartbeat(wire, unique, member_id, generation) == ErrorCode.ILLEGAL_GENERATION
    assert sync(wire, unique, member_id, generation).error_code == ErrorCode.ILLEGAL_GENERATION


@pytest.mark.parametrize(
    "fields", [{"protocol_type": "connect"}, {"protocol_name": "sticky"}], ids=["type", "name"]
)
def test_a_sync_for_another_protocol_is_refused(
    wire: WireClient, unique: str, fields: dict[str, Any]
) -> None:
    joined = join_named(wire, unique)
    response = sync(wire, unique, joined.member_id, 1, **fields)
    assert response.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_a_silent_member_is_out(wire: WireClient, unique: str) -> None:
    member_id = stable_group(wire, unique, session_ms=SHORT_MS).member_id
    wait_for(lambda: describe_group(wire, unique).group_state == "Empty")
    assert heartbeat(wire, unique, member_id, 1) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_beating_member_stays(broker: BrokerUnderTest, wire: WireClient, unique: str) -> None:
    member_id = stable_group(wire, unique, session_ms=2_000).member_id
    for _ in range(5):
        broker.pass_time(0.5)
        assert heartbeat(wire, unique, member_id, 1) == 0


def test_a_member_that_does_not_come_back_for_a_rebalance_is_out(
    wire: WireClient, connect: Connect, unique: str
) -> None:
    stable_group(wire, unique, rebalance_ms=SHORT_MS)
    joined = join_named(connect(), unique, rebalance_ms=SHORT_MS)
    assert (joined.generation_id, joined.leader) == (2, joined.member_id)
    assert [member.member_id for member in joined.members] == [joined.member_id]


def test_a_leader_that_does_not_assign_is_out(wire: WireClient, connect: Connect, unique: str) -> None:
    joined = join_named(wire, unique, rebalance_ms=SHORT_MS)
    wait_for(lambda: describe_group(wire, unique).group_state == "Empty")
    assert heartbeat(wire, unique, joined.member_id, 1) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_id_that_is_not_used_expires(broker: BrokerUnderTest, wire: WireClient, unique: str) -> None:
    given = join(wire, unique, session_ms=100).member_id
    broker.pass_time(0.6)  # longer than the shortest session; asking would keep the id alive
    assert join(wire, unique, given, session_ms=100).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_several_members_leave_at_once(pair: Pair) -> None:
    pair.sync()
    members = [{"member_id": pair.first_id}, {"member_id": "nobody"}, {"member_id": pair.second_id}]
    response = pair.first.ask("leave_group", 5, group_id=pair.group, members=members)
    assert [member.error_code for member in response.members] == [0, ErrorCode.UNKNOWN_MEMBER_ID, 0]
    assert describe_group(pair.first, pair.group).group_state == "Empty"


def test_a_member_that_hangs_up_stays_until_its_session_ends(
    wire: WireClient, connect: Connect, unique: str
) -> None:
    member = connect()
    stable_group(member, unique, session_ms=1000)
    member.close()
    assert describe_group(wire, unique).group_state == "Stable"
    wait_for(lambda: describe_group(wire, unique).group_state == "Empty")
