"""Assigned partitions by leader, and when new metadata is wanted."""

import pytest

from headrace.client.core.placement import Placement, TopicView
from headrace.client.settings import ShareSettings
from tests.unit.client.core.test_member import Half

T, U = b"t" * 16, b"u" * 16


@pytest.fixture
def placement() -> Placement:
    settings = ShareSettings.parse(bootstrap_servers="x:1", group_id="g")
    return Placement(settings, Half())


def test_partitions_are_wanted_from_their_leaders(placement: Placement) -> None:
    placement.learn({T: TopicView("t", {0: 1, 1: 2}), U: TopicView("u", {0: 2})}, now_ms=0)
    placement.assign({T: (0, 1), U: (0,)}, now_ms=0)
    assert placement.wanted == {1: {(T, 0): None}, 2: {(T, 1): None, (U, 0): None}}
    assert not placement.wants_metadata(now_ms=0)


def test_an_unknown_topic_or_leader_wants_metadata_at_once_then_ever_more_slowly(
    placement: Placement,
) -> None:
    placement.assign({T: (0,)}, now_ms=0)
    waits, now_ms = [], 0
    for _ in range(3):
        due_ms = placement.metadata_due_ms
        assert due_ms is not None
        waits.append(due_ms - now_ms)
        now_ms = due_ms
        placement.metadata_asked()
        assert not placement.wants_metadata(now_ms=now_ms)
        placement.learn({T: TopicView("t", {0: -1})}, now_ms=now_ms)
    assert waits == [0, 200, 400]
    placement.learn({T: TopicView("t", {0: 1})}, now_ms=now_ms)
    assert placement.metadata_due_ms is None


def test_errors_name_a_partition_by_its_topic_or_at_least_its_id(placement: Placement) -> None:
    placement.learn({T: TopicView("orders", {0: 1})}, now_ms=0)
    assert placement.about((T, 3)) == "partition orders-3"
    assert placement.about((U, 3)) == f"partition {U.hex()}-3"
