"""Share sessions: the epochs of ShareFetch and ShareAcknowledge, what a session holds, and what ends with it.

Scenario numbers are those of docs/concepts/share-semantics.md.
"""

import time
from collections.abc import Callable
from uuid import uuid4

import pytest

from headrace.wire.errors import ErrorCode
from tests.conformance.conftest import SESSIONS_MAX, BrokerUnderTest
from tests.conformance.share.share_client import (
    ACCEPT,
    CLOSE,
    LEAVE,
    OPEN,
    RELEASE,
    NewMember,
    either,
    fill,
    new_queue,
    offsets_of,
)
from tests.conformance.wire_client import WireClient

"""Far less than the lock's 30 seconds: what comes so soon did not wait for the lock."""
ALL_FIVE = [(0, 4, ACCEPT)]


@pytest.fixture
def topic_id(wire: WireClient, unique: str) -> bytes:
    """A queue of one partition with five records in one batch."""
    return new_queue(wire, unique, 5)


def test_without_a_session_only_epoch_0_of_a_fetch_is_accepted(member: NewMember, topic_id: bytes) -> None:
    """Scenario 14."""
    alone = member(topic_id)
    assert alone.fetch(0, epoch=5).error == ErrorCode.SHARE_SESSION_NOT_FOUND
    assert alone.fetch(0, epoch=CLOSE).error == ErrorCode.SHARE_SESSION_NOT_FOUND
    assert alone.acknowledge({0: ALL_FIVE}, epoch=0).error == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert alone.acknowledge({0: ALL_FIVE}, epoch=1).error == ErrorCode.SHARE_SESSION_NOT_FOUND
    assert alone.acknowledge({0: ALL_FIVE}, epoch=CLOSE).error == ErrorCode.SHARE_SESSION_NOT_FOUND
    refused = alone.fetch(0, epoch=5).response
    assert (refused.acquisition_lock_timeout_ms, list(refused.responses)) == (0, [])
    assert alone.fetch(0, epoch=OPEN).response.acquisition_lock_timeout_ms == 30_000


def test_a_wrong_epoch_is_refused_and_the_right_one_still_works(member: NewMember, topic_id: bytes) -> None:
    """Scenario 15. Both APIs count in one row."""
    alone = member(topic_id)
    assert alone.fetch(0).offsets() == [0, 1, 2, 3, 4]
    assert alone.fetch(epoch=7).error == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert alone.acknowledge({0: ALL_FIVE}, epoch=2).error == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert alone.acknowledge({0: ALL_FIVE}, epoch=0).error == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert alone.ack((0, 4, ACCEPT), epoch=1) == 0
    assert alone.fetch(epoch=1).error == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert alone.quiet(epoch=2).error == 0


def test_the_first_fetch_of_a_session_may_not_acknowledge(member: NewMember, topic_id: bytes) -> None:
    """Scenario 16."""
    alone = member(topic_id)
    assert alone.fetch(acks={0: ALL_FIVE}).error == ErrorCode.INVALID_REQUEST
    assert alone.fetch(epoch=1).error == ErrorCode.SHARE_SESSION_NOT_FOUND


def test_a_session_belongs_to_the_connection_that_opened_it_last(
    connect: Callable[[], WireClient], member: NewMember, topic_id: bytes
) -> None:
    """Scenario 17. The first session's records stay locked by the member, who may answer for them in the second."""
    alone = member(topic_id)
    assert alone.fetch(0).offsets() == [0, 1, 2, 3, 4]
    first = alone.connection
    alone.connection = connect()
    assert alone.quiet(0, epoch=OPEN).offsets() == []
    alone.session_epoch = 1
    first.close()
    time.sleep(0.2)  # nothing may happen when the broker notices: give it time to notice
    assert alone.ack((0, 4, ACCEPT)) == 0


def test_requests_of_a_session_may_come_over_any_connection(
    connect: Callable[[], WireClient], member: NewMember, topic_id: bytes
) -> None:
    """Scenario 17, the other way round: only the connection that opened the session can end it."""
    alone = member(topic_id)
    assert alone.fetch(0).offsets() == [0, 1, 2, 3, 4]
    first, second = alone.connection, connect()
    alone.connection = second
    assert alone.ack((0, 2, ACCEPT)) == 0
    second.close()
    time.sleep(0.2)  # nothing may happen when the broker notices: give it time to notice
    alone.connection = first
    assert alone.ack((3, 4, ACCEPT)) == 0


def test_a_lost_connection_releases_the_sessions_records(
    wire: WireClient, member: NewMember, topic_id: bytes, unique: str
) -> None:
    """Scenario 18. The delivery counts: nobody knows how far the member came."""
    fill(wire, unique, 5)
    lost, other = member(topic_id), member(topic_id)
    lost.take(10, 0)
    assert other.quiet(0).acquired() == []
    lost.disconnect()
    assert other.take(10, max_wait_ms=50) == [(0, 0, 9, 2)]


def test_a_forgotten_partition_is_no_longer_fetched_from(
    wire: WireClient, member: NewMember, unique: str
) -> None:
    """Scenario 19: what the member acquired there before is still its own, and may still be acknowledged."""
    alone = member(new_queue(wire, unique, 5, partitions=2))
    alone.take(10, 0, 1)
    assert alone.quiet(forget=[1]).error == 0
    fill(wire, unique, 1, partition=1)
    assert alone.quiet().count == 0
    assert alone.ack((0, 4, ACCEPT), partition=1) == 0


def test_closing_a_session_and_a_partition_that_was_forgotten_before(
    broker: BrokerUnderTest, wire: WireClient, member: NewMember, unique: str
) -> None:
    """Scenario 19."""
    topic_id = new_queue(wire, unique, 5, partitions=2)
    closing, other = member(topic_id), member(topic_id)
    closing.take(10, 0, 1)
    closing.quiet(forget=[1])
    closing.close()
    assert other.take(5, 0) == [(0, 0, 4, 2)]
    expected = either(
        broker,
        apache=[],
        headrace=[(0, 4, 2)],
        because="whoever closes its session can answer for nothing any more, so all it holds is released",
    )
    assert other.quiet(1).acquired(1) == expected


def test_a_broker_full_of_sessions_opens_no_more(
    wire: WireClient, member: NewMember, topic_id: bytes, unique: str
) -> None:
    """Scenario 20: the answer comes after the time the fetch would have waited, so that clients do not storm."""
    opened = many_sessions(wire, unique, topic_id, OPEN)
    try:
        assert set(opened) == {0, ErrorCode.SHARE_SESSION_LIMIT_REACHED} or set(opened) == {0}
        assert opened.count(0) > SESSIONS_MAX - 10, "few sessions of others can be left"
        late = member(topic_id)
        started = time.monotonic()
        assert late.fetch(0, max_wait_ms=300).error == ErrorCode.SHARE_SESSION_LIMIT_REACHED
        assert time.monotonic() - started > 0.25
    finally:
        # Apache Kafka ends but one session with a connection, whatever the number that was opened over it.
        many_sessions(wire, unique, topic_id, CLOSE)
    assert late.fetch(0).offsets() == [0, 1, 2, 3, 4]


def many_sessions(wire: WireClient, group: str, topic_id: bytes, epoch: int) -> list[int]:
    """Opens or closes as many sessions as a broker may have; the error codes."""
    partitions = [{"partition_index": 0}] if epoch == OPEN else []
    for number in range(SESSIONS_MAX):
        wire.post_ask(
            "share_fetch",
            2,
            group_id=group,
            member_id=f"member-{number}",
            share_session_epoch=epoch,
            max_wait_ms=0,
            topics=[{"topic_id": topic_id, "partitions": partitions}],
        )
    return [wire.receive().error_code for _ in range(SESSIONS_MAX)]


def test_closing_a_session_acknowledges_first_and_releases_the_rest(
    member: NewMember, topic_id: bytes
) -> None:
    """Scenario 21, by ShareAcknowledge as clients close."""
    closing, other = member(topic_id), member(topic_id)
    assert closing.fetch(0).offsets() == [0, 1, 2, 3, 4]
    answer = closing.acknowledge({0: [(0, 2, ACCEPT)]}, epoch=CLOSE)
    assert (answer.error, answer.codes) == (0, {0: 0})
    assert closing.fetch(epoch=2).error == ErrorCode.SHARE_SESSION_NOT_FOUND
    assert other.take(2, 0) == [(0, 3, 4, 2)]


def test_a_fetch_that_closes_the_session_fetches_nothing(member: NewMember, topic_id: bytes) -> None:
    """Scenario 21, by ShareFetch."""
    closing, other = member(topic_id), member(topic_id)
    assert closing.fetch(0).offsets() == [0, 1, 2, 3, 4]
    answer = closing.fetch(acks={0: [(0, 1, ACCEPT), (2, 2, RELEASE)]}, epoch=CLOSE)
    assert (answer.error, answer.acquired(), answer.partitions[0].acknowledge_error_code) == (0, [], 0)
    assert closing.acknowledge({}, epoch=2).error == ErrorCode.SHARE_SESSION_NOT_FOUND
    assert offsets_of(other.take(3, 0)) == [2, 3, 4]


def test_a_member_that_left_its_group_may_go_on_fetching(
    wire: WireClient, member: NewMember, unique: str
) -> None:
    """Scenario 22: whoever leads a partition does not ask who is a member."""
    topic_id = new_queue(wire, unique, 5)
    leaving = member(topic_id)
    leaving.join(unique)
    assert leaving.fetch(0).offsets() == [0, 1, 2, 3, 4]
    assert leaving.heartbeat(LEAVE).error_code == 0
    assert leaving.ack((0, 4, ACCEPT)) == 0
    fill(wire, unique, 1)
    assert leaving.fetch().offsets() == [5]


def test_a_topic_may_be_named_twice_in_one_fetch(wire: WireClient, member: NewMember, unique: str) -> None:
    """Scenario 23: librdkafka does not sort its list of partitions by topic."""
    topic_id = new_queue(wire, unique, 2, partitions=2)
    alone = member(topic_id)
    twice = [{"topic_id": topic_id, "partitions": [{"partition_index": index}]} for index in (0, 1)]
    first = alone.fetch(topics=twice, version=1)
    assert first.error == 0
    if first.count < 4:
        alone.take(4 - first.count, version=1)
    fill(wire, unique, 1, partition=0)
    fill(wire, unique, 1, partition=1)
    assert sorted(alone.take(2, version=1)) == [(0, 2, 2, 1), (1, 2, 2, 1)]


def test_a_topic_id_that_nobody_knows(
    broker: BrokerUnderTest, wire: WireClient, member: NewMember, topic_id: bytes, unique: str
) -> None:
    """It concerns one topic, so Headrace serves the others."""
    alone = member(topic_id)
    topics = [{"topic_id": one, "partitions": [{"partition_index": 0}]} for one in (uuid4().bytes, topic_id)]
    answer = alone.fetch(topics=topics)
    codes = [(topic.partitions[0].error_code) for topic in answer.response.responses]
    why = "a topic that was deleted must not stop the work on all others"
    assert (answer.error, codes) == either(
        broker,
        apache=(ErrorCode.UNKNOWN_SERVER_ERROR, []),
        headrace=(0, [ErrorCode.UNKNOWN_TOPIC_ID, 0]),
        because=why,
    )


def test_a_topic_that_is_deleted_under_a_waiting_fetch(
    broker: BrokerUnderTest, wire: WireClient, member: NewMember, unique: str
) -> None:
    """It concerns one topic: the session goes on with the others."""
    gone, kept = f"{unique}-gone", f"{unique}-kept"
    ids = [new_queue(wire, name, group=unique) for name in (gone, kept)]
    alone = member(ids[1])
    alone.quiet(topics=[{"topic_id": one, "partitions": [{"partition_index": 0}]} for one in ids])
    alone.post_fetch()
    (deleted,) = wire.ask("delete_topics", 6, topics=[{"name": gone}], timeout_ms=5_000).responses
    assert deleted.error_code == 0
    answer = alone.fetched()
    codes = {topic.topic_id: topic.partitions[0].error_code for topic in answer.response.responses}
    assert (answer.error, codes) == either(
        broker,
        apache=(0, {}),
        headrace=(0, {ids[0]: ErrorCode.UNKNOWN_TOPIC_ID}),
        because="Kafka 4.4 answers with an error of the partition (KAFKA-20533)",
    )


def test_a_partition_that_does_not_exist_is_an_error_of_its_own(member: NewMember, topic_id: bytes) -> None:
    """It fails by itself."""
    alone = member(topic_id)
    answer = alone.fetch(0, 9)
    assert (answer.error, answer.partitions[9].error_code) == (0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert 0 not in answer.partitions or answer.partitions[0].error_code == 0


@pytest.mark.parametrize("api", ["share_fetch", "share_acknowledge"])
def test_requests_without_a_group_or_a_member_are_refused(wire: WireClient, unique: str, api: str) -> None:
    """Both are needed to find a session."""
    for group, member_id in [(None, "member"), (unique, None), (unique, "")]:
        answer = wire.ask(api, 2, group_id=group, member_id=member_id)
        assert answer.error_code == ErrorCode.INVALID_REQUEST


def test_the_empty_string_is_no_group(broker: BrokerUnderTest, wire: WireClient, topic_id: bytes) -> None:
    """Kafka reports a server error; Headrace reports an invalid request."""
    topics = [{"topic_id": topic_id, "partitions": [{"partition_index": 0}]}]
    answer = wire.ask(
        "share_fetch",
        2,
        group_id="",
        member_id="nobody",
        max_wait_ms=500,
        max_records=1,
        max_bytes=1,
        topics=topics,
    )
    wire.ask("share_fetch", 2, group_id="", member_id="nobody", share_session_epoch=CLOSE)
    code = answer.error_code or answer.responses[0].partitions[0].error_code
    assert code in either(
        broker,
        apache={ErrorCode.UNKNOWN_SERVER_ERROR},
        headrace={ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_GROUP_ID},
        because="it is the request that is wrong, not the server",
    )
