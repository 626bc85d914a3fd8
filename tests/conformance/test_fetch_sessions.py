"""Fetch sessions (KIP-227): after the first request only what has changed is said, in both directions."""

from typing import Any

import pytest

from headrace.wire.errors import ErrorCode
from tests.conformance.steps import batch, new_topic, produced, values
from tests.conformance.wire_client import WireClient

NEW, NONE = 0, -1
"""Session epochs: open a session, and do without (or close)."""


class Session:
    """A reader of two partitions of one topic, by the topic's id."""

    def __init__(self, wire: WireClient, topic_id: bytes) -> None:
        self.wire = wire
        self.topic_id = topic_id
        self.id = 0

    def fetch(self, epoch: int, *wanted: tuple[int, int], forget: tuple[int, ...] = (), **fields: Any) -> Any:
        partitions = [
            {"partition": index, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
            for index, offset in wanted
        ]
        response = self.wire.ask(
            "fetch",
            fields.pop("version", 13),
            max_wait_ms=fields.pop("max_wait_ms", 0),
            min_bytes=1,
            session_id=fields.pop("session_id", self.id),
            session_epoch=epoch,
            topics=[{"topic_id": self.topic_id, "partitions": partitions}] if wanted else [],
            forgotten_topics_data=[{"topic_id": self.topic_id, "partitions": forget}] if forget else [],
            **fields,
        )
        if epoch == NEW:
            self.id = response.session_id
        return response


def told(response: Any) -> dict[int, list[bytes | None]]:
    """The records by partition, for each partition that the response speaks of."""
    assert response.error_code == 0, response
    return {
        partition.partition_index: values(partition.records)
        for topic in response.responses
        for partition in topic.partitions
    }


@pytest.fixture
def session(wire: WireClient, unique: str) -> Session:
    return Session(wire, new_topic(wire, unique, partitions=3))


def test_a_session_is_given_when_it_is_asked_for(session: Session) -> None:
    assert told(session.fetch(NEW, (0, 0), (1, 0))) == {0: [], 1: []}
    assert session.id != 0


def test_without_asking_there_is_none(session: Session) -> None:
    response = session.fetch(NONE, (0, 0))
    assert (told(response), response.session_id) == ({0: []}, 0)


def test_partitions_without_news_are_left_out(session: Session, unique: str) -> None:
    session.fetch(NEW, (0, 0), (1, 0))
    assert told(session.fetch(1)) == {}
    produced(session.wire, unique, batch("news"), partition=1)
    assert told(session.fetch(2)) == {1: [b"news"]}
    # The reader has not said yet that it is further: the record comes again until it does.
    assert told(session.fetch(3)) == {1: [b"news"]}
    assert told(session.fetch(4, (1, 1))) == {}


def test_partitions_are_added(session: Session, unique: str) -> None:
    session.fetch(NEW, (0, 0))
    assert told(session.fetch(1, (1, 0))) == {1: []}
    produced(session.wire, unique, batch("news"), partition=1)
    assert told(session.fetch(2)) == {1: [b"news"]}


def test_partitions_are_forgotten(session: Session, unique: str) -> None:
    session.fetch(NEW, (0, 0), (1, 0))
    assert told(session.fetch(1, forget=(1,))) == {}
    for partition in (0, 1):
        produced(session.wire, unique, batch("news"), partition=partition)
    assert told(session.fetch(2)) == {0: [b"news"]}


def test_a_session_waits_for_all_its_partitions(
    session: Session, wire: WireClient, connect: Any, unique: str
) -> None:
    session.fetch(NEW, (0, 0), (1, 0), (2, 0))
    session.wire.post_ask(
        "fetch", 13, max_wait_ms=15_000, min_bytes=1, session_id=session.id, session_epoch=1
    )
    produced(connect(), unique, batch("news"), partition=2)
    assert told(wire.receive()) == {2: [b"news"]}


def test_an_error_is_news_each_time(session: Session) -> None:
    session.fetch(NEW, (0, 0))
    for epoch in (1, 2):
        response = session.fetch(epoch, *([(7, 0)] if epoch == 1 else []))
        (partition,) = response.responses[0].partitions
        assert partition.partition_index == 7
        assert partition.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("epoch", [2, 5])
def test_an_epoch_out_of_order_is_refused(session: Session, epoch: int) -> None:
    session.fetch(NEW, (0, 0))
    response = session.fetch(epoch)
    assert response.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert (response.session_id, response.responses) == (0, [])
    # The session is as it was.
    assert told(session.fetch(1)) == {}


def test_an_epoch_is_used_once(session: Session) -> None:
    session.fetch(NEW, (0, 0))
    session.fetch(1)
    assert session.fetch(1).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH


def test_an_unknown_session_is_refused(session: Session) -> None:
    response = session.fetch(1, session_id=123_456_789)
    assert response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert (response.session_id, response.responses) == (0, [])


def test_a_closed_session_is_unknown(session: Session) -> None:
    session.fetch(NEW, (0, 0))
    response = session.fetch(NONE)
    assert (response.error_code, response.session_id) == (0, 0)
    assert session.fetch(1).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_session_may_be_opened_again_in_its_place(session: Session, unique: str) -> None:
    session.fetch(NEW, (0, 0))
    old = session.id
    session.fetch(NEW, (1, 0))
    produced(session.wire, unique, batch("news"), partition=0)
    assert told(session.fetch(1)) == {}
    assert session.id != old
    assert session.fetch(1, session_id=old).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_session_outlives_its_connection(session: Session, connect: Any, unique: str) -> None:
    session.fetch(NEW, (0, 0))
    session.wire = connect()
    assert told(session.fetch(1)) == {}


def test_a_session_by_names_is_not_one_by_ids(session: Session, unique: str) -> None:
    topic = {"topic": unique, "partitions": [{"partition": 0, "partition_max_bytes": 1 << 20}]}
    opened = session.wire.ask("fetch", 12, session_epoch=NEW, topics=[topic])
    assert opened.session_id != 0
    response = session.fetch(1, session_id=opened.session_id)
    assert response.error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


def test_a_session_may_begin_with_nothing(session: Session) -> None:
    assert told(session.fetch(NEW)) == {}
    assert told(session.fetch(1, (0, 0))) == {0: []}


def test_versions_without_sessions_have_none(session: Session, unique: str) -> None:
    topic = {"topic": unique, "partitions": [{"partition": 0, "partition_max_bytes": 1 << 20}]}
    assert session.wire.ask("fetch", 6, topics=[topic]).session_id == 0
