"""DeleteTopics, case by case as Kafka 4.3.1 answers it."""

import pytest

from headrace.wire.errors import ErrorCode
from headrace.wire.message import ZERO_UUID
from headrace.wire.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from headrace.wire.messages.delete_topics_response import DeleteTopicsResponse


@pytest.fixture
def orders(admin):
    return admin.topics.create("orders", partitions=1, configs={})


def delete(admin, *topics, names=(), version=6):
    request = DeleteTopicsRequest(topics=topics, topic_names=names)
    return [
        (result.name, result.topic_id, result.error_code, result.error_message)
        for result in admin.ask(request, DeleteTopicsResponse, version).responses
    ]


def test_a_topic_is_deleted_by_its_name(admin, orders):
    assert delete(admin, DeleteTopicState(name="orders")) == [("orders", orders.id, 0, None)]
    assert admin.topics.get("orders") is None


def test_old_versions_name_topics_in_a_plain_list(admin, orders):
    assert delete(admin, names=["orders"], version=1) == [("orders", orders.id, 0, None)]


def test_a_topic_is_deleted_by_its_id(admin, orders):
    assert delete(admin, DeleteTopicState(topic_id=orders.id)) == [("orders", orders.id, 0, None)]


def test_what_is_unknown_is_refused_and_the_others_are_deleted(admin, orders):
    unknown = bytes(range(16))
    assert delete(
        admin, DeleteTopicState(name="x"), DeleteTopicState(topic_id=unknown), DeleteTopicState(name="orders")
    ) == [
        (
            "x",
            ZERO_UUID,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            "This server does not host this topic-partition.",
        ),
        (None, unknown, ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID."),
        ("orders", orders.id, 0, None),
    ]


def test_requests_that_contradict_themselves_are_refused(admin, orders):
    assert delete(admin, DeleteTopicState()) == [
        (None, ZERO_UUID, ErrorCode.INVALID_REQUEST, "Neither topic name nor id were specified.")
    ]
    assert delete(admin, DeleteTopicState(name="orders", topic_id=orders.id)) == [
        ("orders", orders.id, ErrorCode.INVALID_REQUEST, "You may not specify both topic name and topic id.")
    ]
    assert delete(admin, names=["orders", "orders"]) == [
        ("orders", ZERO_UUID, ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
    ]
    assert delete(admin, DeleteTopicState(topic_id=orders.id), DeleteTopicState(topic_id=orders.id)) == [
        (None, orders.id, ErrorCode.INVALID_REQUEST, "Duplicate topic id.")
    ]
    assert admin.topics.get("orders") is orders


def test_a_name_and_an_id_of_the_same_topic_do_not_go_together(admin, orders):
    results = delete(admin, DeleteTopicState(name="orders"), DeleteTopicState(topic_id=orders.id))
    assert results[0][2:] == (
        ErrorCode.INVALID_REQUEST,
        "The provided topic name maps to an ID that was already supplied.",
    )


def test_internal_topics_cannot_be_deleted(admin):
    admin.topics.internal("__consumer_offsets")
    assert delete(admin, names=["__consumer_offsets"])[0][2] == ErrorCode.INVALID_REQUEST
    assert admin.topics.get("__consumer_offsets") is not None


def test_deletion_can_be_disabled(admin):
    admin.restart(delete_topic_enable=False)
    admin.topics.create("orders", partitions=1, configs={})
    assert delete(admin, DeleteTopicState(name="orders"))[0][2] == ErrorCode.TOPIC_DELETION_DISABLED
    assert delete(admin, names=["orders"], version=2)[0][2] == ErrorCode.INVALID_REQUEST
    assert admin.topics.get("orders") is not None
