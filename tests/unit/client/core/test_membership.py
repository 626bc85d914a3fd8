"""Heartbeats: joining, staying, being fenced, leaving, and what each error means."""

from typing import Any

import pytest

from headrace.base.backoff import RetryBackoff
from headrace.client.core.membership import FIRST_INTERVAL_MS, Membership, MembershipState
from headrace.client.errors import error_for
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.share_group_heartbeat_request import ShareGroupHeartbeatRequest
from headrace.wire.messages.share_group_heartbeat_response import (
    Assignment,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)
from tests.unit.client.core.test_member import Half

TOPIC_ID = b"t" * 16
E = ErrorCode
NETWORK = error_for(E.NETWORK_EXCEPTION, "gone")


@pytest.fixture
def member() -> Membership:
    backoff = RetryBackoff(100, 1_000, Half().fraction)
    return Membership("g", "m", rack_id=None, poll_interval_ms=10_000, backoff=backoff)


def answer(code: int = 0, *partitions: int, epoch: int = 2, is_told: bool = True) -> Any:
    assignment = Assignment(topic_partitions=[TopicPartitions(topic_id=TOPIC_ID, partitions=partitions)])
    return ShareGroupHeartbeatResponse(
        error_code=code,
        member_epoch=0 if code else epoch,
        heartbeat_interval_ms=5_000,
        assignment=assignment if is_told and partitions else None,
    )


def request(member: Membership, now_ms: int) -> ShareGroupHeartbeatRequest:
    found = member.next_request(now_ms=now_ms)
    assert found is not None
    return found


def joined(member: Membership, *partitions: int) -> None:
    member.subscribe(["t"], now_ms=0)
    request(member, 0)
    member.answered(answer(0, *partitions), now_ms=0)


def test_nothing_is_sent_before_a_subscription(member: Membership) -> None:
    assert member.next_request(now_ms=0) is None
    assert member.deadline_ms() is None


def test_the_first_heartbeat_joins_with_the_topics(member: Membership) -> None:
    member.subscribe(["b", "a"], now_ms=0)
    sent = request(member, 0)
    assert (sent.member_epoch, sent.subscribed_topic_names) == (0, ["a", "b"])
    assert member.next_request(now_ms=0) is None  # one is in flight


def test_a_member_without_partitions_asks_again_soon_then_ever_slower(member: Membership) -> None:
    joined(member)
    waits, now_ms = [], 0
    for _ in range(9):
        due_ms = member.deadline_ms()
        assert due_ms is not None
        waits.append(due_ms - now_ms)
        now_ms = due_ms
        assert request(member, now_ms).subscribed_topic_names is None
        member.answered(answer(), now_ms=now_ms)
    assert waits[:3] == [FIRST_INTERVAL_MS, 2 * FIRST_INTERVAL_MS, 4 * FIRST_INTERVAL_MS]
    assert waits[-1] == 5_000


def test_a_member_with_partitions_keeps_the_groups_interval(member: Membership) -> None:
    joined(member, 0, 1)
    assert member.assignment == {TOPIC_ID: (0, 1)}
    assert member.next_request(now_ms=4_999) is None
    assert request(member, 5_000).member_epoch == 2


def test_a_new_subscription_is_told_at_once(member: Membership) -> None:
    joined(member, 0)
    member.subscribe(["t", "u"], now_ms=10)
    assert request(member, 10).subscribed_topic_names == ["t", "u"]


@pytest.mark.parametrize("code", [E.FENCED_MEMBER_EPOCH, E.UNKNOWN_MEMBER_ID, E.GROUP_ID_NOT_FOUND])
def test_a_fenced_member_joins_again_without_its_partitions(member: Membership, code: ErrorCode) -> None:
    joined(member, 0)
    request(member, 5_000)
    member.answered(answer(code), now_ms=5_000)
    assert member.assignment == {}
    assert request(member, 5_000).member_epoch == 0
    assert member.failure is None


@pytest.mark.parametrize(
    "code",
    [
        E.GROUP_AUTHORIZATION_FAILED,
        E.INVALID_REQUEST,
        E.GROUP_MAX_SIZE_REACHED,
        E.GROUP_ID_NOT_FOUND,
        E.UNSUPPORTED_VERSION,
    ],
)
def test_what_cannot_be_cured_by_waiting_ends_the_membership(member: Membership, code: ErrorCode) -> None:
    member.subscribe(["t"], now_ms=0)
    request(member, 0)
    member.answered(answer(code), now_ms=0)
    assert member.state is MembershipState.FAILED
    assert member.failure is not None
    assert member.failure.code is code
    assert member.next_request(now_ms=60_000) is None


def test_a_forbidden_topic_is_told_and_heartbeats_go_on(member: Membership) -> None:
    joined(member, 0)
    request(member, 5_000)
    member.answered(answer(E.TOPIC_AUTHORIZATION_FAILED), now_ms=5_000)
    assert member.take_refusal() is not None
    assert request(member, 5_100).member_epoch == 2


@pytest.mark.parametrize(
    ("code", "is_lost"),
    [(E.NOT_COORDINATOR, True), (E.COORDINATOR_NOT_AVAILABLE, True), (E.COORDINATOR_LOAD_IN_PROGRESS, False)],
)
def test_coordinator_trouble_is_waited_out_with_the_same_epoch(
    member: Membership, code: ErrorCode, is_lost: bool
) -> None:
    joined(member, 0)
    request(member, 5_000)
    member.answered(answer(code), now_ms=5_000)
    assert member.take_coordinator_is_lost() is is_lost
    assert member.next_request(now_ms=5_099) is None
    assert request(member, 5_100).member_epoch == 2
    assert member.assignment == {TOPIC_ID: (0,)}


def test_a_lost_heartbeat_is_tried_again_elsewhere(member: Membership) -> None:
    joined(member, 0)
    request(member, 5_000)
    member.failed(NETWORK, now_ms=5_000)
    assert member.take_coordinator_is_lost()
    assert request(member, 5_100).member_epoch == 2


def test_leaving_is_one_heartbeat_whatever_its_answer(member: Membership) -> None:
    joined(member, 0)
    member.subscribe([], now_ms=100)
    assert member.assignment == {}
    assert request(member, 100).member_epoch == -1
    member.answered(answer(E.UNKNOWN_MEMBER_ID), now_ms=100)
    assert member.is_out


def test_a_member_that_leaves_while_it_joins_leaves_afterward(member: Membership) -> None:
    member.subscribe(["t"], now_ms=0)
    request(member, 0)
    member.subscribe([], now_ms=1)
    member.answered(answer(0, 0), now_ms=2)
    assert member.assignment == {}
    assert request(member, 2).member_epoch == -1


def test_a_silent_application_leaves_and_joins_again_with_its_next_poll(member: Membership) -> None:
    member.polled(now_ms=0)
    joined(member, 0)
    assert not member.tick(now_ms=9_999)
    assert member.tick(now_ms=10_000)
    assert request(member, 10_000).member_epoch == -1
    member.answered(answer(), now_ms=10_000)
    assert member.next_request(now_ms=20_000) is None
    member.polled(now_ms=20_000)
    assert request(member, 20_000).member_epoch == 0


def test_subscribing_again_while_leaving_joins_again(member: Membership) -> None:
    joined(member, 0)
    member.subscribe([], now_ms=100)
    request(member, 100)
    member.subscribe(["u"], now_ms=101)
    member.failed(NETWORK, now_ms=102)
    assert request(member, 102).subscribed_topic_names == ["u"]


def test_a_denied_group_is_joined_again_after_the_application_was_told(member: Membership) -> None:
    joined(member, 0)
    request(member, 5_000)
    member.answered(answer(E.GROUP_AUTHORIZATION_FAILED), now_ms=5_000)
    assert member.failure is not None
    assert member.next_request(now_ms=9_000) is None
    member.failure_was_told(now_ms=9_000)
    assert member.failure is None
    assert member.next_request(now_ms=9_099) is None
    assert request(member, 9_100).member_epoch == 0
    member.answered(answer(0, 0), now_ms=9_100)
    assert member.state is MembershipState.MEMBER


def test_what_cannot_be_cured_is_said_each_time(member: Membership) -> None:
    joined(member, 0)
    request(member, 5_000)
    member.answered(answer(E.INVALID_REQUEST), now_ms=5_000)
    member.failure_was_told(now_ms=5_000)
    assert member.failure is not None
