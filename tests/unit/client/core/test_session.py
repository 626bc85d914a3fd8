"""One broker's session: epochs, what a request names, and the one request in flight."""

from collections.abc import Sequence

import pytest

from headrace.base.backoff import RetryBackoff
from headrace.client.core.acknowledgements import Ack
from headrace.client.core.ranges import RangeState
from headrace.client.core.session import EPOCH_MAX, BrokerSession, FetchLimits
from headrace.wire.messages.share_acknowledge_request import ShareAcknowledgeRequest
from headrace.wire.messages.share_fetch_request import ShareFetchRequest
from tests.unit.client.core.test_member import Half
from tests.unit.client.core.test_ranges import acquired

T, U = (b"t" * 16, 0), (b"u" * 16, 1)
ACCEPT, RENEW = RangeState.ACCEPT, RangeState.RENEW
LIMITS = FetchLimits(10, 10, 1, 1_000, 500, 0)


@pytest.fixture
def session() -> BrokerSession:
    return BrokerSession(1, "g", "m", RetryBackoff(100, 1_000, Half().fraction))


def named(request: ShareFetchRequest | ShareAcknowledgeRequest) -> list[tuple[bytes, list[int]]]:
    return [(one.topic_id, [part.partition_index for part in one.partitions]) for one in request.topics]


def fetched(session: BrokerSession, *keys: tuple[bytes, int], acks: Sequence[Ack] = ()) -> ShareFetchRequest:
    request = session.fetch(keys, LIMITS, acks, now_ms=0).request
    assert isinstance(request, ShareFetchRequest)
    session.accepted(now_ms=0)
    return request


def test_a_session_is_opened_with_all_partitions_and_then_told_of_changes_only(
    session: BrokerSession,
) -> None:
    first = fetched(session, T, U)
    assert (first.share_session_epoch, named(first)) == (0, [(T[0], [0]), (U[0], [1])])
    second = fetched(session, T, U)
    assert (second.share_session_epoch, named(second), list(second.forgotten_topics_data)) == (1, [], [])
    third = fetched(session, U)
    assert [(one.topic_id, list(one.partitions)) for one in third.forgotten_topics_data] == [(T[0], [0])]


def test_epochs_start_again_at_one(session: BrokerSession) -> None:
    fetched(session, T)
    session._epoch = EPOCH_MAX
    assert fetched(session, T).share_session_epoch == EPOCH_MAX
    assert session.epoch == 1


def test_a_partition_named_for_its_acknowledgement_alone_is_forgotten_in_the_same_request(
    session: BrokerSession,
) -> None:
    fetched(session, U)
    request = fetched(session, U, acks=[Ack(acquired(), 10, 19, ACCEPT, 0)])
    assert named(request) == [(T[0], [0])]
    assert [one.topic_id for one in request.forgotten_topics_data] == [T[0]]


def test_renewals_say_so(session: BrokerSession) -> None:
    fetched(session, T)
    request = session.acknowledge([Ack(acquired(), 10, 19, RENEW, 0)], now_ms=0).request
    assert isinstance(request, ShareAcknowledgeRequest)
    assert request.is_renew_ack


def test_two_requests_at_a_time_are_a_fault_of_ours(session: BrokerSession) -> None:
    session.fetch([T], LIMITS, (), now_ms=0)
    with pytest.raises(AssertionError, match="two requests"):
        session.fetch([T], LIMITS, (), now_ms=0)
