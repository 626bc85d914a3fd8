"""Assignments are written as Apache's tools write them."""

from headrace.cli.group_describe import assignment_text
from headrace.client.delivery import TopicPartition


def test_partitions_stand_behind_their_topic() -> None:
    places = [TopicPartition("emails", 0), TopicPartition("orders", 0), TopicPartition("orders", 1)]
    assert assignment_text(places) == "emails:0;orders:0,1"


def test_nobody_s_assignment_is_a_dash() -> None:
    assert assignment_text([]) == "-"
