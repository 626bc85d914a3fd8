"""Fetch sessions (KIP-227): epochs, the set of partitions, the bound of the table."""

import pytest

from headrace.broker.fetch_sessions import EPOCH_MAX, FetchSessions, WantedPartition
from headrace.wire.errors import ErrorCode, KafkaError


def wanted(index: int, offset: int = 0) -> WantedPartition:
    return WantedPartition("t", bytes(16), index, fetch_offset=offset, max_bytes=100, leader_epoch=-1)


def refused(sessions: FetchSessions, session_id: int, epoch: int, uses_topic_ids: bool = False) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        sessions.advance(session_id, epoch, uses_topic_ids=uses_topic_ids, now_ms=0)
    return caught.value.code


def test_each_request_of_a_session_moves_its_epoch_by_one() -> None:
    sessions = FetchSessions(10)
    session = sessions.open(uses_topic_ids=False, now_ms=0)
    assert session is not None
    sessions.advance(session.id, 1, uses_topic_ids=False, now_ms=0)
    assert refused(sessions, session.id, 1) is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    sessions.advance(session.id, 2, uses_topic_ids=False, now_ms=0)


def test_the_epoch_wraps_to_one() -> None:
    sessions = FetchSessions(10)
    session = sessions.open(uses_topic_ids=False, now_ms=0)
    assert session is not None
    session.epoch = EPOCH_MAX
    assert sessions.advance(session.id, EPOCH_MAX, uses_topic_ids=False, now_ms=0).epoch == 1


def test_unknown_sessions_and_a_change_to_topic_ids_are_refused() -> None:
    sessions = FetchSessions(10)
    session = sessions.open(uses_topic_ids=False, now_ms=0)
    assert session is not None
    assert refused(sessions, session.id, 1, uses_topic_ids=True) is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    sessions.close(session.id)
    assert refused(sessions, session.id, 1) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_partitions_are_added_changed_and_forgotten() -> None:
    sessions = FetchSessions(10)
    session = sessions.open(uses_topic_ids=False, now_ms=0)
    assert session is not None
    session.update([wanted(0), wanted(1)], [])
    session.update([wanted(0, offset=5)], [wanted(1).key])
    assert [(p.index, p.fetch_offset) for p in session.partitions.values()] == [(0, 5)]


def test_a_full_table_gives_way_only_to_an_idle_session() -> None:
    sessions = FetchSessions(1)
    first = sessions.open(uses_topic_ids=False, now_ms=0)
    assert first is not None
    assert sessions.open(uses_topic_ids=False, now_ms=119_999) is None
    assert sessions.open(uses_topic_ids=False, now_ms=120_000) is not None
    assert refused(sessions, first.id, 1) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert len(sessions) == 1


def test_a_session_that_names_too_many_partitions_ends() -> None:
    """Every fetch of it is about all of them, and they take memory."""
    sessions = FetchSessions(10, partitions_max=3)
    session = sessions.open(uses_topic_ids=False, now_ms=0)
    assert session is not None
    sessions.update(session, [wanted(0), wanted(1), wanted(2)])
    sessions.update(session, [wanted(3), wanted(2)], [wanted(0).key])
    with pytest.raises(KafkaError, match="A fetch session of 4 partitions, where 3 are allowed") as caught:
        sessions.update(session, [wanted(4)])
    assert caught.value.code is ErrorCode.INVALID_REQUEST
    assert refused(sessions, session.id, 1) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
