"""Assignments are written as Apache's tools write them."""

from headrace.cli.group_describe import assignment_text, unknown_text
from headrace.client.admin.results import ShareGroupOffset
from headrace.client.delivery import TopicPartition


def test_partitions_stand_behind_their_topic() -> None:
    places = [TopicPartition("emails", 0), TopicPartition("orders", 0), TopicPartition("orders", 1)]
    assert assignment_text(places) == "emails:0;orders:0,1"


def test_nobody_s_assignment_is_a_dash() -> None:
    assert assignment_text([]) == "-"


def test_dashes_are_explained_where_nothing_is_settled_yet() -> None:
    def offset(partition: int, start: int | None) -> ShareGroupOffset:
        return ShareGroupOffset(
            topic="orders",
            partition=partition,
            start_offset=start,
            end_offset=10,
            lag=None,
            leader_epoch=0,
        )

    assert "members hold records and have settled none" in unknown_text(
        "g", [offset(0, None), offset(1, None)]
    )
    assert unknown_text("g", [offset(0, None), offset(1, 0)]) == ""
