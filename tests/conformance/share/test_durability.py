"""What outlives a leader: what was answered with "done" and nothing more, and who may still write it down.

Scenario numbers are those of docs/concepts/share-semantics.md.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from headrace.testing import ApacheKafka
from headrace.wire.errors import ErrorCode
from tests.compat.conftest import start_server
from tests.conformance.conftest import SHARE_SETTINGS, BrokerUnderTest
from tests.conformance.share.share_client import (
    ACCEPT,
    LEAVE,
    OPEN,
    REJECT,
    RELEASE,
    NewMember,
    ShareMember,
    alter_offsets,
    either,
    new_queue,
    offsets_of,
    start_and_lag,
    start_at,
    wait_until_share_coordinators_are_ready,
)
from tests.conformance.share.share_state import (
    ACKNOWLEDGED,
    ARCHIVED,
    AVAILABLE,
    read_state,
    state_request,
    states,
    write_state,
    written_log,
    written_state,
)
from tests.conformance.steps import wait_until_coordinators_are_ready, wait_until_led
from tests.conformance.wire_client import WireClient

UPDATES_PER_SNAPSHOT = 500
ANSWERED, UNANSWERED = "answered", "unanswered"


def answer_some(alone: ShareMember) -> None:
    """Of 0-9: accepts 0-5 and 7, releases 6, rejects 8, says nothing of 9."""
    assert alone.ack((0, 5, ACCEPT)) == 0
    assert alone.ack((6, 8, RELEASE, ACCEPT, REJECT)) == 0


def test_a_queue_that_was_unloaded_comes_back_as_it_was(
    wire: WireClient, member: NewMember, unique: str
) -> None:
    """Scenario 53: with its last session a queue leaves the leader's memory."""
    topic_id = new_queue(wire, unique, 10)
    gone = member(topic_id)
    gone.take(10, 0)
    answer_some(gone)
    gone.ack((9, 9, ACCEPT))
    gone.disconnect()
    assert member(topic_id).take(1, 0) == [(0, 6, 6, 2)]


@dataclass(frozen=True, slots=True)
class AfterACrash:
    bootstrap_servers: str
    topics: dict[str, bytes]


@pytest.fixture(scope="module", params=["headrace", pytest.param("apache", marks=pytest.mark.needs_kafka)])
def after_a_crash(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[AfterACrash]:
    """A broker that was killed (-9) with two queues in flight, and started again."""
    folder = tmp_path_factory.mktemp("crash")
    crash = _apache_crash if request.param == "apache" else _headrace_crash
    yield from crash(folder)


def _apache_crash(folder: Path) -> Iterator[AfterACrash]:
    cluster = ApacheKafka(settings=SHARE_SETTINGS, folder=folder)
    try:
        cluster.start()
        with _in_flight(cluster.bootstrap_servers) as topics:
            cluster.kill()
        cluster.start()
        _wait_until_ready(cluster.bootstrap_servers, topics)
        yield AfterACrash(cluster.bootstrap_servers, topics)
    finally:
        cluster.kill()


def _headrace_crash(folder: Path) -> Iterator[AfterACrash]:
    settings = {name: str(value) for name, value in SHARE_SETTINGS.items()}
    first = start_server(folder, settings)
    try:
        with _in_flight(first.bootstrap_servers) as topics:
            first.process.kill()
    finally:
        first.process.kill()
    (folder / "headrace.log").unlink()
    second = start_server(folder, settings)
    try:
        _wait_until_ready(second.bootstrap_servers, topics)
        yield AfterACrash(second.bootstrap_servers, topics)
    finally:
        second.process.kill()


@contextmanager
def _in_flight(bootstrap_servers: str) -> Iterator[dict[str, bytes]]:
    """Ten records each in two queues: some answered for in one of them, all of them acquired in both.

    The members stay connected: a broker that sees them go would release what they hold before it is killed.
    """
    with WireClient(bootstrap_servers) as wire:
        wait_until_coordinators_are_ready(wire)
        wait_until_share_coordinators_are_ready(wire)
        topics = {name: new_queue(wire, name, 10) for name in (ANSWERED, UNANSWERED)}
        members = {name: ShareMember(wire, name, topic_id) for name, topic_id in topics.items()}
        for one in members.values():
            one.take(10, 0)
        answer_some(members[ANSWERED])
        yield topics


def _wait_until_ready(bootstrap_servers: str, topics: dict[str, bytes]) -> None:
    with WireClient(bootstrap_servers) as wire:
        wait_until_coordinators_are_ready(wire)
        wait_until_share_coordinators_are_ready(wire)
        for name in topics:
            wait_until_led(wire, name)


def test_answers_outlive_a_crash(after_a_crash: AfterACrash) -> None:
    """Scenario 53: what was released comes again with its count, what was done does not come at all."""
    with WireClient(after_a_crash.bootstrap_servers) as wire:
        alone = ShareMember(wire, ANSWERED, after_a_crash.topics[ANSWERED])
        assert sorted(alone.take(2, 0)) == [(0, 6, 6, 2), (0, 9, 9, 1)]
        assert alone.quiet().acquired() == []


def test_a_first_delivery_does_not_outlive_a_crash(after_a_crash: AfterACrash) -> None:
    """Scenario 54: acquiring writes nothing, so the count starts again."""
    with WireClient(after_a_crash.bootstrap_servers) as wire:
        alone = ShareMember(wire, UNANSWERED, after_a_crash.topics[UNANSWERED])
        assert alone.take(10, 0) == [(0, 0, 9, 1)]


def test_after_many_updates_a_snapshot_is_written(wire: WireClient, member: NewMember, unique: str) -> None:
    """Scenario 55. Record 0 stays in flight, so that all that is done behind it has to be kept."""
    topic_id = new_queue(wire, unique, 600)
    alone = member(topic_id)
    alone.take(600, 0)
    for offset in range(1, UPDATES_PER_SNAPSHOT + 11):
        assert alone.ack((offset, offset, ACCEPT)) == 0
    log = written_log(wire, unique, topic_id)
    assert log[0].is_snapshot
    assert (log[0].value.snapshot_epoch, list(log[0].value.state_batches)) == (0, [])
    at = next(number for number, one in enumerate(log) if number and one.is_snapshot)
    assert at - 1 == UPDATES_PER_SNAPSHOT, "so many updates came before it"
    assert log[at].value.snapshot_epoch == 1
    assert states(log[at].value.state_batches) == [(1, at, ACKNOWLEDGED, 1)]
    assert log[at].value.delivery_complete_count == at
    assert {one.value.snapshot_epoch for one in log[1:at]} == {0}
    assert {one.value.snapshot_epoch for one in log[at + 1 :]} == {1}
    assert written_state(wire, unique, topic_id) == [(1, UPDATES_PER_SNAPSHOT + 10, ACKNOWLEDGED, 1)]


def test_a_leader_of_an_older_epoch_can_write_no_more(
    wire: WireClient, member: NewMember, unique: str
) -> None:
    """Scenario 56: a newer leader has read the state, and whoever asks the old one is sent away."""
    topic_id = new_queue(wire, unique, 5)
    alone = member(topic_id)
    alone.take(5, 0)
    assert read_state(wire, unique, topic_id, leader_epoch=5).error_code == 0
    assert read_state(wire, unique, topic_id, leader_epoch=4).error_code == ErrorCode.FENCED_LEADER_EPOCH
    fenced = write_state(wire, unique, topic_id, state_epoch=-1, leader_epoch=4, start_offset=0)
    assert fenced == ErrorCode.FENCED_LEADER_EPOCH
    assert alone.ack((0, 4, ACCEPT)) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert written_state(wire, unique, topic_id) == []


def test_a_reset_takes_the_queue_from_sessions_that_are_still_open(
    wire: WireClient, member: NewMember, unique: str
) -> None:
    """Scenario 57: the member has left, so the group is empty and may be reset, but its session goes on."""
    topic_id = new_queue(wire, unique, 5, 5)
    stale = member(topic_id)
    stale.join(unique)
    stale.take(10, 0)
    assert stale.heartbeat(LEAVE).error_code == 0
    assert alter_offsets(wire, unique, unique, {0: 3}) == {0: 0}
    assert stale.ack((0, 9, ACCEPT)) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    taken = stale.take(7)
    assert offsets_of(taken) == list(range(3, 10))
    assert {count for *_, count in taken} == {1}


def test_a_group_that_was_deleted_while_a_session_is_open(
    broker: BrokerUnderTest, wire: WireClient, member: NewMember, unique: str
) -> None:
    """Scenario 58."""
    topic_id = new_queue(wire, unique, 5)
    stale = member(topic_id)
    stale.take(5, 0)
    (deleted,) = wire.ask("delete_groups", 2, groups_names=[unique]).results
    assert deleted.error_code == 0
    code = stale.ack((0, 4, ACCEPT))
    unloaded = {
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    why = "what the group held is unloaded with it, so that a group of the same name starts afresh"
    assert code in either(broker, apache={ErrorCode.UNKNOWN_SERVER_ERROR}, headrace=unloaded, because=why)
    start_at(wire, unique, unique, {0: 0})
    found = member(topic_id).quiet(0).acquired()
    assert found == either(broker, apache=[], headrace=[(0, 4, 1)], because=why)


def test_an_acknowledgement_whose_answer_was_lost_is_not_undone(
    wire: WireClient, member: NewMember, unique: str
) -> None:
    """Scenario 59: the client cannot repeat it, but need not."""
    alone = member(new_queue(wire, unique, 5))
    alone.take(5, 0)
    assert alone.ack((0, 4, ACCEPT), epoch=1) == 0
    again = alone.acknowledge({0: [(0, 4, ACCEPT)]}, epoch=1)
    assert again.error == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    reopened = alone.quiet(0, epoch=OPEN)
    assert (reopened.error, reopened.acquired()) == (0, [])
    assert start_and_lag(wire, unique, unique) == (0, 0)


def test_the_share_coordinator_keeps_what_leaders_write(wire: WireClient, unique: str) -> None:
    """Initialize, write, read, summarize, delete; state that is not initialized is refused."""
    topic_id = new_queue(wire, unique)
    epoch = read_state(wire, unique, topic_id, leader_epoch=-1).state_epoch
    batch = {"first_offset": 0, "last_offset": 4, "delivery_state": ACKNOWLEDGED, "delivery_count": 1}
    other = {"first_offset": 3, "last_offset": 9, "delivery_state": AVAILABLE, "delivery_count": 2}
    last = {"first_offset": 10, "last_offset": 10, "delivery_state": ARCHIVED, "delivery_count": 2}
    ours = {"state_epoch": epoch, "leader_epoch": 0, "start_offset": 0}
    assert write_state(wire, unique, topic_id, **ours, state_batches=[batch]) == 0
    done = {"delivery_complete_count": 4, "state_batches": [other, last]}
    assert write_state(wire, unique, topic_id, **ours, **done) == 0
    assert written_state(wire, unique, topic_id) == [(0, 2, 2, 1), (3, 9, 0, 2), (10, 10, 4, 2)]
    moved = {**ours, "start_offset": 5}
    assert write_state(wire, unique, topic_id, **moved) == 0
    assert written_state(wire, unique, topic_id) == [(5, 9, 0, 2), (10, 10, 4, 2)]
    summary = state_request(wire, "read_share_group_state_summary", 1, unique, topic_id, leader_epoch=-1)
    assert (summary.error_code, summary.state_epoch, summary.start_offset) == (0, epoch, 5)
    earlier = {**ours, "state_epoch": epoch - 1}
    assert write_state(wire, unique, topic_id, **earlier) == ErrorCode.FENCED_STATE_EPOCH
    fresh = {"state_epoch": epoch - 1, "start_offset": 0}
    refused = state_request(wire, "initialize_share_group_state", 0, unique, topic_id, **fresh)
    assert refused.error_code == ErrorCode.FENCED_STATE_EPOCH
    for _ in range(2):
        deleted = state_request(wire, "delete_share_group_state", 0, unique, topic_id)
        assert deleted.error_code == 0
    assert read_state(wire, unique, topic_id, leader_epoch=-1).error_code == ErrorCode.INVALID_REQUEST
    assert write_state(wire, unique, topic_id, **ours) == ErrorCode.INVALID_REQUEST
    gone = state_request(wire, "read_share_group_state_summary", 1, unique, topic_id, leader_epoch=-1)
    assert (gone.error_code, gone.state_epoch, gone.leader_epoch, gone.start_offset) == (0, 0, 0, -1)
    assert written_log(wire, unique, topic_id)[-1].value is None
