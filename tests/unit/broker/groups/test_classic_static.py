"""Goal: static members (KIP-345): they come back without a rebalance, and nobody else gets their place."""

import pytest

from headrace.broker.handlers import leave_group
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from tests.unit.broker.groups.classic_client import (
    INITIAL_DELAY_MS,
    ClassicClient,
    stable_group,
    subscription,
)
from tests.unit.broker.groups.fake_core import FakeCore


@pytest.fixture
def members(core: FakeCore) -> list[ClassicClient]:
    return stable_group(core, ClassicClient(core, instance_id="one"), ClassicClient(core, instance_id="two"))


def test_a_static_member_needs_no_second_join_for_its_id(core: FakeCore) -> None:
    parked = ClassicClient(core, instance_id="one").ask_to_join()
    core.pass_time(INITIAL_DELAY_MS)
    assert parked.value.member_id.startswith("one-")


def test_a_returning_member_takes_its_place_and_assignment_without_a_rebalance(
    core: FakeCore, members: list[ClassicClient]
) -> None:
    leader, follower = members
    back = ClassicClient(core, instance_id="two")
    answer = back.join()
    assert (answer.generation_id, answer.leader, answer.skip_assignment) == (1, leader.member_id, False)
    assert answer.member_id != follower.member_id
    assert back.take(answer).sync().assignment == b"part of 1"
    assert leader.heartbeat() == ErrorCode.NONE


def test_a_returning_member_that_reads_another_topic_makes_the_group_read_it(core: FakeCore) -> None:
    """There is no new generation to tell: else its offsets would expire while it reads that topic."""
    (member,) = stable_group(core, ClassicClient(core, instance_id="one"))
    protocols = (("range", subscription("u")),)
    ClassicClient(core, instance_id="one", protocols=protocols).join()
    group = core.groups.registry.require(member.group_id)
    assert (group.is_subscribed_to("t"), group.is_subscribed_to("u")) == (False, True)


def test_a_returning_leader_is_told_to_skip_the_assignment(
    core: FakeCore, members: list[ClassicClient]
) -> None:
    answer = ClassicClient(core, instance_id="one").join()
    assert answer.skip_assignment
    assert answer.leader == answer.member_id
    assert len(answer.members) == 2


def test_a_returning_leader_too_old_for_that_is_named_the_former_leader(
    core: FakeCore, members: list[ClassicClient]
) -> None:
    answer = ClassicClient(core, instance_id="one", version=8).join()
    assert not answer.skip_assignment
    assert (answer.leader, answer.members) == (members[0].member_id, [])


def test_whoever_uses_the_former_id_is_fenced(core: FakeCore, members: list[ClassicClient]) -> None:
    ClassicClient(core, instance_id="two").join()
    former = members[1]
    assert former.heartbeat() == ErrorCode.FENCED_INSTANCE_ID
    assert former.leave() == ErrorCode.FENCED_INSTANCE_ID
    assert former.sync().error_code == ErrorCode.FENCED_INSTANCE_ID
    assert former.join().error_code == ErrorCode.FENCED_INSTANCE_ID


def test_a_parked_join_of_the_former_member_is_answered(core: FakeCore, members: list[ClassicClient]) -> None:
    former = members[0]
    parked = former.join()
    back = ClassicClient(core, instance_id="one").join()
    assert parked.value.error_code == ErrorCode.FENCED_INSTANCE_ID
    members[1].join()
    assert back.value.generation_id == 2


def test_a_parked_sync_of_the_former_member_is_answered(core: FakeCore) -> None:
    leader, follower = ClassicClient(core), ClassicClient(core, instance_id="two")
    joined = [leader.join(), follower.join()]
    core.pass_time(2 * INITIAL_DELAY_MS)
    parked = follower.take(joined[1].value).sync()
    ClassicClient(core, instance_id="two").join()
    assert parked.value.error_code in (ErrorCode.FENCED_INSTANCE_ID, ErrorCode.REBALANCE_IN_PROGRESS)
    assert leader.take(joined[0].value).heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_change_of_protocol_on_return_starts_a_rebalance(core: FakeCore) -> None:
    both = (("range", subscription("t")), ("sticky", subscription("t")))
    first, _ = stable_group(
        core,
        ClassicClient(core, instance_id="one", protocols=both),
        ClassicClient(core, instance_id="two", protocols=both),
    )
    back = ClassicClient(core, instance_id="two", protocols=both[1:]).join()
    assert first.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    assert first.join().protocol_name == back.value.protocol_name == "sticky"


def test_a_return_that_the_journal_refuses_changes_nothing(
    core: FakeCore, members: list[ClassicClient]
) -> None:
    core.refusal = ErrorCode.KAFKA_STORAGE_ERROR
    assert ClassicClient(core, instance_id="two").join().error_code == ErrorCode.NOT_COORDINATOR
    core.refusal = None
    assert members[1].heartbeat() == ErrorCode.NONE


def test_static_members_that_are_late_stay_in_the_group(core: FakeCore, members: list[ClassicClient]) -> None:
    leader, late = members
    parked = leader.join()
    for _ in range(12):
        late.heartbeat()
        core.pass_time(5_000)
    assert parked.value.generation_id == 2
    assert [member.member_id for member in parked.value.members] == [leader.member_id, late.member_id]


def test_a_rebalance_to_which_no_static_member_comes_waits_on(
    core: FakeCore, members: list[ClassicClient]
) -> None:
    newcomer = ClassicClient(core)
    newcomer.join()
    newcomer.leave()
    for _ in range(30):
        for member in members:
            assert member.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
        core.pass_time(5_000)
    parked = [member.join() for member in members]
    assert parked[0].value.generation_id == 2


def test_an_administrator_removes_a_static_member_by_instance_alone(
    core: FakeCore, members: list[ClassicClient]
) -> None:
    request = LeaveGroupRequest(
        group_id="g",
        members=[
            MemberIdentity(group_instance_id="two"),
            MemberIdentity(group_instance_id="three"),
            MemberIdentity(),
        ],
    )
    codes = [member.error_code for member in core.handle(leave_group, request).members]
    assert codes == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.UNKNOWN_MEMBER_ID]
    assert members[1].heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
    assert members[0].heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_static_members_session_ends_like_any_other(core: FakeCore, members: list[ClassicClient]) -> None:
    core.pass_time(10_000)
    assert members[0].heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("rebalance_ms", [0, -1, -(2**31)])
def test_a_group_whose_static_members_have_no_time_for_a_rebalance_does_not_spin(
    core: FakeCore, rebalance_ms: int
) -> None:
    """Without its dynamic member the group waits for the static one, who does not come."""
    static = ClassicClient(core, instance_id="one", rebalance_ms=rebalance_ms, session_ms=10_000)
    dynamic = ClassicClient(core, rebalance_ms=60_000, session_ms=6_000)
    stable_group(core, static, dynamic)
    core.pass_time(5_999)
    assert static.heartbeat() == ErrorCode.NONE
    steps = 0
    until_ms = core.clock.now_ms + 5_000
    while (deadline_ms := core.timers.deadline_ms()) is not None and deadline_ms <= until_ms:
        core.clock.now_ms = max(core.clock.now_ms, deadline_ms)
        core.timers.run_due(core.clock.now_ms)
        steps += 1
        while core.slices.is_pending and steps < 100:
            core.slices.step()
            steps += 1
    assert static.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    assert steps < 100
