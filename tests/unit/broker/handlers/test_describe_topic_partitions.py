"""DescribeTopicPartitions: pages of partitions."""

import pytest

from headrace.wire.errors import ErrorCode
from headrace.wire.messages.describe_topic_partitions_request import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from headrace.wire.messages.describe_topic_partitions_response import DescribeTopicPartitionsResponse


@pytest.fixture(autouse=True)
def _topics(admin):
    admin.topics.create("a", partitions=2, configs={})
    admin.topics.create("b", partitions=3, configs={})


def ask(admin, *names, limit=2000, cursor=None):
    request = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name=name) for name in names],
        response_partition_limit=limit,
        cursor=Cursor(topic_name=cursor[0], partition_index=cursor[1]) if cursor else None,
    )
    return admin.ask(request, DescribeTopicPartitionsResponse)


def page(response):
    found = [(topic.name, [part.partition_index for part in topic.partitions]) for topic in response.topics]
    cursor = response.next_cursor
    return found, None if cursor is None else (cursor.topic_name, cursor.partition_index)


def test_all_topics_are_described_when_none_is_named(admin):
    assert page(ask(admin)) == ([("a", [0, 1]), ("b", [0, 1, 2])], None)


def test_a_partition_is_led_by_this_node_alone(admin):
    (topic,) = ask(admin, "a").topics
    assert topic.topic_id == admin.topics.get("a").id
    assert topic.topic_authorized_operations == 3576
    partition = topic.partitions[0]
    assert (partition.leader_id, partition.leader_epoch) == (1, 0)
    assert (partition.replica_nodes, partition.isr_nodes, partition.offline_replicas) == ([1], [1], ())
    assert (partition.eligible_leader_replicas, partition.last_known_elr) == ([], [])


def test_pages_follow_one_another(admin):
    assert page(ask(admin, limit=1)) == ([("a", [0])], ("a", 1))
    assert page(ask(admin, limit=1, cursor=("a", 1))) == ([("a", [1])], ("b", 0))
    assert page(ask(admin, limit=2, cursor=("b", 0))) == ([("b", [0, 1])], ("b", 2))
    assert page(ask(admin, limit=2, cursor=("b", 2))) == ([("b", [2])], None)


def test_a_page_may_end_inside_the_next_topic(admin):
    assert page(ask(admin, limit=3)) == ([("a", [0, 1]), ("b", [0])], ("b", 1))


def test_the_brokers_limit_holds_when_the_request_asks_for_more(admin):
    admin.restart(max_request_partition_size_limit=2)
    assert page(ask(admin)) == ([("a", [0, 1])], ("b", 0))


def test_a_limit_of_nothing_is_a_limit_of_one(admin):
    assert page(ask(admin, limit=0)) == ([("a", [0])], ("a", 1))


def test_unknown_and_illegal_names_are_told_apart(admin):
    response = ask(admin, "a", "nope", "b ad", "__consumer_offsets")
    assert [(topic.name, topic.error_code, topic.is_internal) for topic in response.topics] == [
        ("__consumer_offsets", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, True),
        ("a", 0, False),
        ("b ad", ErrorCode.INVALID_TOPIC_EXCEPTION, False),
        ("nope", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, False),
    ]


def test_a_cursor_on_a_topic_that_is_gone_goes_on_with_the_next(admin):
    assert page(ask(admin, cursor=("aa", 5))) == ([("b", [0, 1, 2])], None)


def test_a_cursor_that_makes_no_sense_is_refused(admin):
    assert {topic.error_code for topic in ask(admin, "b", cursor=("a", 0)).topics} == {
        ErrorCode.INVALID_REQUEST
    }
    assert {topic.error_code for topic in ask(admin, "a", cursor=("a", -1)).topics} == {
        ErrorCode.INVALID_REQUEST
    }
