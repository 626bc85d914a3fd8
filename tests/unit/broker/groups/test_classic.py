"""Goal: classic groups as Kafka's clients know them. Method: members that join, sync, beat and leave by handlers."""

import pytest

from headrace.broker.groups.classic import ClassicGroup
from headrace.broker.groups.classic_rebalance import NEW_MEMBER_JOIN_MS, TRANSITIONS
from headrace.broker.handlers import join_group, leave_group, sync_group
from headrace.wire.enums import GroupState
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from headrace.wire.messages.sync_group_request import SyncGroupRequest
from tests.unit.broker.groups.classic_client import (
    INITIAL_DELAY_MS,
    ClassicClient,
    stable_group,
    subscription,
)
from tests.unit.broker.groups.fake_core import FakeCore

MINUTE_MS = 60_000


def state_of(core: FakeCore, group_id: str = "g") -> GroupState:
    group = core.groups.state.registry.get(group_id)
    assert isinstance(group, ClassicGroup)
    return group.rebalance.state


def test_a_new_member_is_given_an_id_and_told_to_come_back_with_it(core: FakeCore) -> None:
    answer = ClassicClient(core).ask_to_join()
    assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert answer.member_id.startswith("client-")


def test_members_older_than_version_4_are_taken_in_at_once(core: FakeCore) -> None:
    parked = ClassicClient(core, version=3).ask_to_join()
    core.pass_time(INITIAL_DELAY_MS)
    assert parked.value.member_id.startswith("client-")


def test_a_version_0_member_has_its_session_timeout_for_a_rebalance(core: FakeCore) -> None:
    ClassicClient(core, version=0, session_ms=7_000, rebalance_ms=-1).ask_to_join()
    group = core.groups.state.registry.get("g")
    assert isinstance(group, ClassicGroup)
    assert group.rebalance.members.rebalance_ms == 7_000


def test_a_new_group_waits_for_members_before_its_first_generation(core: FakeCore) -> None:
    parked = ClassicClient(core).join()
    core.pass_time(INITIAL_DELAY_MS - 1)
    assert not parked.is_done
    core.pass_time(1)
    assert (parked.value.generation_id, parked.value.protocol_name) == (1, "range")
    assert parked.value.leader == parked.value.member_id


def test_each_newcomer_extends_the_first_wait_up_to_the_rebalance_timeout(core: FakeCore) -> None:
    clients = [ClassicClient(core, rebalance_ms=7_000) for _ in range(4)]
    parked = [clients[0].join()]
    for client in clients[1:]:
        core.pass_time(2_000)
        parked.append(client.join())
    core.pass_time(999)
    assert not any(later.is_done for later in parked)
    core.pass_time(1)
    assert all(later.is_done for later in parked)


def test_the_leader_gets_everybodys_metadata_and_the_others_none(core: FakeCore) -> None:
    first, second = ClassicClient(core), ClassicClient(core)
    joined = [first.join(), second.join()]
    core.pass_time(2 * INITIAL_DELAY_MS)
    leader, follower = joined[0].value, joined[1].value
    assert leader.leader == follower.leader == leader.member_id
    assert [member.member_id for member in leader.members] == [first.member_id, second.member_id]
    assert leader.members[0].metadata == subscription("t")
    assert follower.members == []


def test_a_sync_waits_for_the_leaders(core: FakeCore) -> None:
    leader, follower = ClassicClient(core), ClassicClient(core)
    joined = [leader.join(), follower.join()]
    core.pass_time(2 * INITIAL_DELAY_MS)
    leader.take(joined[0].value), follower.take(joined[1].value)
    waiting = follower.sync()
    assert not waiting.is_done
    answer = leader.sync(**{follower.member_id: b"yours"})
    assert (waiting.value.assignment, waiting.value.protocol_name) == (b"yours", "range")
    assert answer.assignment == b""  # the leader gave itself nothing
    assert state_of(core) is GroupState.STABLE


def test_a_late_sync_finds_its_assignment(core: FakeCore) -> None:
    leader, follower = ClassicClient(core), ClassicClient(core)
    joined = [leader.join(), follower.join()]
    core.pass_time(2 * INITIAL_DELAY_MS)
    leader.take(joined[0].value).sync(**{joined[1].value.member_id: b"yours"})
    assert follower.take(joined[1].value).sync().assignment == b"yours"


def test_the_protocol_with_the_most_votes_among_those_all_support_wins(core: FakeCore) -> None:
    both = (("range", b"r"), ("sticky", b"s"))
    clients = [
        ClassicClient(core, protocols=(*both, ("own", b"o"))),
        ClassicClient(core, protocols=both[::-1]),
        ClassicClient(core, protocols=both[::-1]),
    ]
    parked = [client.join() for client in clients]
    core.pass_time(3 * INITIAL_DELAY_MS)
    assert {later.value.protocol_name for later in parked} == {"sticky"}


def test_a_member_without_a_common_protocol_is_refused(core: FakeCore) -> None:
    stable_group(core)
    stranger = ClassicClient(core, protocols=(("other", b""),))
    assert stranger.ask_to_join().error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_a_member_of_another_type_of_client_is_refused(core: FakeCore) -> None:
    stable_group(core)
    assert (
        ClassicClient(core, protocol_type="connect").ask_to_join().error_code
        == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    )


@pytest.mark.parametrize("protocol_type", ["", "consumer"])
def test_a_first_member_without_type_or_protocols_is_refused_and_leaves_no_group(
    core: FakeCore, protocol_type: str
) -> None:
    client = ClassicClient(core, protocol_type=protocol_type, protocols=())
    assert client.ask_to_join().error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert core.groups.state.registry.get("g") is None


def test_an_empty_group_id_is_refused(core: FakeCore) -> None:
    client = ClassicClient(core, group_id="")
    assert client.ask_to_join().error_code == ErrorCode.INVALID_GROUP_ID
    assert client.sync().error_code == ErrorCode.INVALID_GROUP_ID
    assert client.heartbeat() == ErrorCode.INVALID_GROUP_ID


@pytest.mark.parametrize("session_ms", [5_999, 1_800_001])
def test_a_session_outside_the_settings_is_refused(core: FakeCore, session_ms: int) -> None:
    assert (
        ClassicClient(core, session_ms=session_ms).ask_to_join().error_code
        == ErrorCode.INVALID_SESSION_TIMEOUT
    )


def test_unknown_groups_and_members_are_told_so(core: FakeCore) -> None:
    stranger = ClassicClient(core, member_id="who", generation=1)
    assert stranger.ask_to_join().error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert stranger.heartbeat() == stranger.leave() == ErrorCode.UNKNOWN_MEMBER_ID
    assert stranger.sync().error_code == ErrorCode.UNKNOWN_MEMBER_ID
    stable_group(core)
    assert stranger.ask_to_join().error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert stranger.heartbeat() == stranger.leave() == ErrorCode.UNKNOWN_MEMBER_ID


def test_an_old_generation_is_refused(core: FakeCore) -> None:
    member, _ = stable_group(core)
    member.generation -= 1
    assert member.heartbeat() == ErrorCode.ILLEGAL_GENERATION
    assert member.sync().error_code == ErrorCode.ILLEGAL_GENERATION


def test_a_sync_with_another_protocol_is_refused(core: FakeCore) -> None:
    member, _ = stable_group(core)
    member.protocols = (("sticky", b""),)
    assert member.sync().error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_a_version_5_sync_must_name_its_protocol(core: FakeCore) -> None:
    request = SyncGroupRequest(group_id="g", member_id="m")
    assert core.handle(sync_group, request, version=5).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert core.handle(sync_group, request, version=4).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_newcomer_calls_everybody_to_a_rebalance(core: FakeCore) -> None:
    first, second = stable_group(core)
    third = ClassicClient(core)
    waiting = third.join()
    assert first.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    rejoined = [first.join(), second.join()]
    # All are there: no need to wait any longer.
    assert [waiting.value.generation_id, rejoined[0].value.generation_id] == [2, 2]


def test_members_that_do_not_come_back_in_time_are_dropped(core: FakeCore) -> None:
    slow, prompt = stable_group(core)
    waiting, rejoined = ClassicClient(core).join(), prompt.join()
    for _ in range(11):
        core.pass_time(5_000)
        slow.heartbeat()
    assert not rejoined.is_done
    core.pass_time(5_000)
    assert waiting.value.generation_id == rejoined.value.generation_id == 2
    assert rejoined.value.leader == prompt.member_id  # the lead went to one who came
    assert slow.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_leader_that_joins_again_starts_a_rebalance(core: FakeCore) -> None:
    leader, follower = stable_group(core)
    assert not leader.join().is_done
    assert follower.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_follower_that_joins_again_unchanged_is_told_where_the_group_stands(core: FakeCore) -> None:
    leader, follower = stable_group(core)
    answer = follower.join()
    assert (answer.generation_id, answer.leader, answer.members) == (1, leader.member_id, [])
    assert state_of(core) is GroupState.STABLE


def test_a_follower_with_new_metadata_starts_a_rebalance(core: FakeCore) -> None:
    leader, follower = stable_group(core)
    follower.protocols = (("range", subscription("t", "u")),)
    follower.join()
    assert leader.join().members[1].metadata == subscription("t", "u")


def test_a_member_that_lost_its_join_response_gets_it_again_before_the_sync(core: FakeCore) -> None:
    leader, follower = ClassicClient(core), ClassicClient(core)
    parked = [leader.join(), follower.join()]
    core.pass_time(2 * INITIAL_DELAY_MS)
    again = leader.join()
    assert again.generation_id == parked[0].value.generation_id
    assert len(again.members) == 2
    assert follower.join().members == []


def test_changed_metadata_during_the_sync_starts_over_and_tells_those_who_wait(core: FakeCore) -> None:
    leader, follower = ClassicClient(core), ClassicClient(core)
    parked = [leader.join(), follower.join()]
    core.pass_time(2 * INITIAL_DELAY_MS)
    waiting = follower.take(parked[1].value).sync()
    leader.take(parked[0].value).protocols = (("range", subscription("other")),)
    leader.join()
    assert waiting.value.error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert follower.sync().error_code == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_silent_members_session_ends_and_the_others_rebalance(core: FakeCore) -> None:
    silent, alive = stable_group(core)
    core.pass_time(9_000)
    alive.heartbeat()
    core.pass_time(1_000)
    assert silent.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
    assert alive.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS


def test_heartbeats_keep_a_session_alive_as_long_as_they_come(core: FakeCore) -> None:
    first, second = stable_group(core)
    for _ in range(20):
        core.pass_time(9_999)
        assert first.heartbeat() == second.heartbeat() == ErrorCode.NONE


def test_a_member_with_a_parked_join_does_not_need_heartbeats(core: FakeCore) -> None:
    leader, follower = stable_group(core)
    parked = leader.join()
    core.pass_time(9_999)
    follower.heartbeat()
    core.pass_time(9_999)
    follower.heartbeat()
    assert not parked.is_done
    follower.join()
    assert parked.value.generation_id == 2


def test_a_new_members_parked_join_ends_after_five_minutes(core: FakeCore) -> None:
    clients = stable_group(core, *(ClassicClient(core, rebalance_ms=10 * MINUTE_MS) for _ in range(2)))
    parked = ClassicClient(core).join()
    for _ in range(NEW_MEMBER_JOIN_MS // 5_000):
        for client in clients:
            client.heartbeat()
        core.pass_time(5_000)
    assert parked.value.error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_was_given_an_id_and_never_came_does_not_hold_up_the_others(core: FakeCore) -> None:
    first, second = stable_group(core)
    ClassicClient(core).ask_to_join()
    parked = [first.join(), second.join()]
    assert not parked[0].is_done
    core.pass_time(10_000)
    assert parked[0].value.generation_id == 2


def test_members_that_join_but_never_sync_are_dropped_after_the_rebalance_timeout(core: FakeCore) -> None:
    leader, follower = ClassicClient(core), ClassicClient(core)
    parked = [leader.join(), follower.join()]
    core.pass_time(2 * INITIAL_DELAY_MS)
    leader.take(parked[0].value).sync()
    follower.take(parked[1].value)
    for _ in range(12):
        leader.heartbeat()
        follower.heartbeat()
        core.pass_time(5_000)
    assert follower.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
    assert leader.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS


def test_the_last_member_that_leaves_leaves_an_empty_group(core: FakeCore) -> None:
    clients = stable_group(core)
    assert [client.leave() for client in clients] == [ErrorCode.NONE, ErrorCode.NONE]
    assert state_of(core) is GroupState.EMPTY


def test_a_leaving_leader_hands_on_the_lead(core: FakeCore) -> None:
    leader, follower = stable_group(core)
    leader.leave()
    assert follower.join().leader == follower.member_id


def test_a_member_that_leaves_with_its_join_parked_is_answered(core: FakeCore) -> None:
    leader, _ = stable_group(core)
    parked = leader.join()
    leader.leave()
    assert parked.value.error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_was_only_given_an_id_may_leave(core: FakeCore) -> None:
    client = ClassicClient(core)
    client.member_id = client.ask_to_join().member_id
    assert client.leave() == ErrorCode.NONE
    assert client.ask_to_join().error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_full_group_turns_newcomers_away_but_not_its_members(core: FakeCore) -> None:
    core = FakeCore(**{"group.max.size": 2})
    leader, follower = stable_group(core)
    newcomer = ClassicClient(core).ask_to_join()
    assert (newcomer.error_code, newcomer.member_id) == (ErrorCode.GROUP_MAX_SIZE_REACHED, "")
    parked = [leader.join(), follower.join()]
    assert parked[0].value.generation_id == 2


def test_a_refused_first_entry_in_the_journal_leaves_no_group(core: FakeCore) -> None:
    core.refusal = ErrorCode.KAFKA_STORAGE_ERROR
    assert ClassicClient(core).ask_to_join().error_code == ErrorCode.NOT_COORDINATOR
    assert core.groups.state.registry.get("g") is None
    core.refusal = None


def test_an_assignment_that_the_journal_refuses_is_told_to_all_and_starts_over(core: FakeCore) -> None:
    leader, follower = ClassicClient(core), ClassicClient(core)
    parked = [leader.join(), follower.join()]
    core.pass_time(2 * INITIAL_DELAY_MS)
    waiting = follower.take(parked[1].value).sync()
    core.refusal = ErrorCode.MESSAGE_TOO_LARGE
    answer = leader.take(parked[0].value).sync(**{leader.member_id: b"huge"})
    assert answer.error_code == waiting.value.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert state_of(core) is GroupState.PREPARING_REBALANCE
    core.refusal = None


def test_an_expiry_that_the_journal_refuses_does_not_spin(core: FakeCore) -> None:
    clients = stable_group(core)
    core.refusal = ErrorCode.KAFKA_STORAGE_ERROR
    core.pass_time(MINUTE_MS)
    core.refusal = None
    assert clients[0].heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
    core.groups.state.registry.remove("g")  # its journal has the members still: the replay would differ
    for partition in core.topics.internal("__consumer_offsets").partitions:
        partition.log.data.clear()


def test_after_a_restart_members_go_on_where_they_were(core: FakeCore) -> None:
    leader, follower = stable_group(core)
    core.groups.state.registry.remove("g")
    core.groups.load()
    assert leader.heartbeat() == follower.heartbeat() == ErrorCode.NONE
    assert leader.sync().assignment == b"part of 0"
    core.pass_time(10_000)
    assert leader.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID


def test_after_a_restart_with_a_smaller_limit_a_large_group_rebalances(core: FakeCore) -> None:
    leader, follower = stable_group(core)
    core.groups.state.registry.remove("g")
    core.groups.state.classic_limits = type(core.groups.state.classic_limits)(size_max=1)
    core.groups.load()
    assert leader.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    assert not leader.join().is_done
    assert follower.join().error_code == ErrorCode.GROUP_MAX_SIZE_REACHED


@pytest.mark.parametrize(("version", "name"), [(6, ""), (7, None)])
def test_an_error_has_no_protocol_name_in_the_words_of_its_version(
    core: FakeCore, version: int, name: str | None
) -> None:
    parked = ClassicClient(core, instance_id="i", version=version).join()
    ClassicClient(core, instance_id="i", version=version).join()
    assert (parked.value.error_code, parked.value.protocol_name) == (ErrorCode.FENCED_INSTANCE_ID, name)
    stranger = ClassicClient(core, member_id="who", version=version).ask_to_join()
    assert (stranger.error_code, stranger.protocol_name) == (ErrorCode.UNKNOWN_MEMBER_ID, name)


def test_version_2_of_leave_group_answers_for_its_one_member(core: FakeCore) -> None:
    member, _ = stable_group(core)
    request = LeaveGroupRequest(group_id="g", member_id=member.member_id)
    assert core.handle(leave_group, request, version=2).error_code == ErrorCode.NONE
    assert core.handle(leave_group, request, version=2).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_every_way_in_leads_out_again() -> None:
    assert (
        {state for state, _ in TRANSITIONS}
        == {state for _, state in TRANSITIONS}
        == {
            GroupState.EMPTY,
            GroupState.PREPARING_REBALANCE,
            GroupState.COMPLETING_REBALANCE,
            GroupState.STABLE,
        }
    )
    assert join_group.VERSIONS == (0, 9)


def test_several_may_leave_at_once_each_with_its_own_answer(core: FakeCore) -> None:
    first, second = stable_group(core)
    leaving = [
        MemberIdentity(member_id=first.member_id),
        MemberIdentity(member_id="who"),
        MemberIdentity(member_id=second.member_id),
    ]
    response = core.handle(leave_group, LeaveGroupRequest(group_id="g", members=leaving))
    assert [member.error_code for member in response.members] == [0, ErrorCode.UNKNOWN_MEMBER_ID, 0]
    assert state_of(core) is GroupState.EMPTY
