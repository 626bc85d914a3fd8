"""Share sessions: epochs, order, and what must be listed (docs/concepts/share-semantics.md, scenarios 14 to 23)."""

import pytest

from headrace.share.errors import InvalidRequest, InvalidSessionEpoch, SessionLimitReached, SessionNotFound
from headrace.share.session import CLOSE_EPOCH, EPOCH_MAX, ShareSession, ShareSessions

T = b"t" * 16
A, B, C, D = ((T, index) for index in range(4))


def opened(
    *partitions: tuple[bytes, int], sessions: ShareSessions | None = None
) -> tuple[ShareSessions, ShareSession]:
    sessions = sessions if sessions is not None else ShareSessions(10)
    return sessions, sessions.fetch("g", "m1", 0, connection_id="c1", added=partitions)


class TestEpochs:
    def test_without_a_session_only_epoch_0_is_good_and_only_for_fetching(self) -> None:  # scenario 14
        sessions = ShareSessions(10)
        for epoch in (5, CLOSE_EPOCH):
            with pytest.raises(SessionNotFound):
                sessions.fetch("g", "m1", epoch, connection_id="c1")
        with pytest.raises(InvalidSessionEpoch):
            sessions.acknowledge("g", "m1", 0)
        with pytest.raises(SessionNotFound):
            sessions.acknowledge("g", "m1", 1)

    def test_a_wrong_epoch_does_not_move_the_right_one(self) -> None:  # scenario 15
        sessions, session = opened(A)
        with pytest.raises(InvalidSessionEpoch, match="expects epoch 1, not 7"):
            sessions.fetch("g", "m1", 7, connection_id="c1", added=[B])
        assert B not in session
        assert sessions.fetch("g", "m1", 1, connection_id="c1") is session
        assert session.epoch == 2

    def test_both_apis_share_the_counter(self) -> None:
        sessions, session = opened(A)
        assert sessions.acknowledge("g", "m1", 1) is session
        assert sessions.fetch("g", "m1", 2, connection_id="c1") is session
        with pytest.raises(InvalidSessionEpoch):
            sessions.acknowledge("g", "m1", 2)

    def test_a_new_session_cannot_acknowledge(self) -> None:  # scenario 16
        sessions = ShareSessions(10)
        with pytest.raises(InvalidRequest):
            sessions.fetch("g", "m1", 0, connection_id="c1", added=[A], has_acknowledgements=True)
        assert sessions.get("g", "m1") is None

    def test_epoch_0_drops_the_old_session(self) -> None:
        sessions, old = opened(A)
        new = sessions.fetch("g", "m1", 0, connection_id="c2", added=[B])
        assert new is not old
        assert (new.partitions, new.epoch, len(sessions)) == ([B], 1, 1)

    def test_epochs_wrap_to_1(self) -> None:
        sessions, session = opened(A)
        session.epoch = EPOCH_MAX
        sessions.fetch("g", "m1", EPOCH_MAX, connection_id="c1")
        assert session.epoch == 1

    def test_closing_takes_the_session_after_its_answer(self) -> None:  # scenario 21
        sessions, session = opened(A)
        assert sessions.fetch("g", "m1", CLOSE_EPOCH, connection_id="c1", added=[B], forgotten=[A]) is session
        assert session.partitions == [A]
        sessions.remove(session)
        sessions.remove(session)
        with pytest.raises(SessionNotFound):
            sessions.acknowledge("g", "m1", 1)
        assert not sessions.has_group("g")


class TestConnectionsAndLimits:
    def test_the_closing_of_the_opening_connection_ends_the_session(self) -> None:  # scenario 18
        sessions, session = opened(A)
        sessions.fetch("g", "m1", 1, connection_id="c9")
        assert sessions.disconnected("c9") == []
        assert sessions.disconnected("c1") == [session]
        assert sessions.disconnected("c1") == []
        assert len(sessions) == 0

    def test_a_session_reopened_elsewhere_outlives_its_old_connection(self) -> None:  # scenario 17
        sessions, _ = opened(A)
        new = sessions.fetch("g", "m1", 0, connection_id="c2", added=[A])
        assert sessions.disconnected("c1") == []
        assert sessions.get("g", "m1") is new

    def test_a_full_broker_refuses_new_sessions_and_evicts_none(self) -> None:  # scenario 20
        sessions, session = opened(A, sessions=ShareSessions(1))
        with pytest.raises(SessionLimitReached):
            sessions.fetch("g", "m2", 0, connection_id="c2")
        assert sessions.get("g", "m1") is session
        sessions.fetch("g", "m1", 0, connection_id="c2")  # its own place it may take again
        assert len(sessions) == 1

    def test_groups_are_known_by_their_sessions(self) -> None:
        sessions, first = opened(A, B)
        second = sessions.fetch("g", "m2", 0, connection_id="c1", added=[A])
        assert sessions.partition_count == 3
        sessions.remove(first)
        assert sessions.has_group("g")
        assert sessions.disconnected("c1") == [second]
        assert not sessions.has_group("g")


class TestPartitions:
    def test_a_session_takes_no_more_partitions_than_it_may_have(self) -> None:
        sessions, session = opened(A, sessions=ShareSessions(10, partitions_max=2))
        sessions.fetch("g", "m1", 1, connection_id="c1", added=[B])
        sessions.fetch("g", "m1", 2, connection_id="c1", added=[C], forgotten=[A])
        with pytest.raises(InvalidRequest, match="A share session of 3 partitions, where 2 are allowed"):
            sessions.fetch("g", "m1", 3, connection_id="c1", added=[D])
        assert session.partitions == [B, C]
        assert sessions.fetch("g", "m1", 4, connection_id="c1") is session

    def test_naming_a_partition_twice_does_no_harm(self) -> None:  # scenario 23: librdkafka repeats topics
        _, session = opened(A, B, A)
        session.update([B, C], [])
        assert session.partitions == [A, B, C]

    def test_forgetting_comes_after_adding(self) -> None:
        _, session = opened(A, B)
        session.update([C], [C, A, D])
        assert session.partitions == [B]
        assert not session.must_list(A)

    def test_requests_take_turns_at_who_comes_first(self) -> None:
        _, session = opened(A, B, C)
        assert session.rotated(0) == [A, B, C]
        assert session.rotated(1) == [B, C, A]
        assert session.rotated(5) == [C, A, B]
        assert opened()[1].rotated(7) == []

    def test_a_partition_that_gave_records_goes_to_the_end(self) -> None:
        _, session = opened(A, B, C)
        session.served(A)
        session.served(D)
        assert session.partitions == [B, C, A]
        assert len(session) == 3

    def test_new_partitions_and_former_errors_are_listed_without_news(self) -> None:  # "ShareFetch"
        _, session = opened(A, B)
        assert session.must_list(A)
        session.listed(A, has_error=False)
        session.listed(B, has_error=True)
        assert (session.must_list(A), session.must_list(B)) == (False, True)
        session.listed(B, has_error=False)
        session.update([A, C])
        assert [session.must_list(partition) for partition in (A, B, C)] == [False, False, True]

    def test_an_error_of_a_partition_outside_the_session_is_not_remembered(self) -> None:
        _, session = opened(A)
        session.listed(D, has_error=True)
        assert not session.must_list(D)
