"""CreatePartitions, case by case as Kafka 4.3.1 answers it."""

import pytest

from headrace.wire.errors import ErrorCode
from headrace.wire.messages.create_partitions_request import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from headrace.wire.messages.create_partitions_response import CreatePartitionsResponse


@pytest.fixture(autouse=True)
def orders(admin):
    return admin.topics.create("orders", partitions=2, configs={})


def grow(admin, *topics, validate_only=False):
    request = CreatePartitionsRequest(topics=topics, validate_only=validate_only)
    return [
        (result.name, result.error_code, result.error_message)
        for result in admin.ask(request, CreatePartitionsResponse).results
    ]


def to(count, name="orders", assignments=None):
    listed = (
        None if assignments is None else [CreatePartitionsAssignment(broker_ids=ids) for ids in assignments]
    )
    return CreatePartitionsTopic(name=name, count=count, assignments=listed)


def test_a_topic_grows(admin, orders):
    assert grow(admin, to(5)) == [("orders", 0, None)]
    assert len(orders.partitions) == 5


def test_validate_only_changes_nothing(admin, orders):
    assert grow(admin, to(5), validate_only=True) == [("orders", 0, None)]
    assert len(orders.partitions) == 2


def test_new_partitions_may_be_assigned_to_this_node(admin, orders):
    assert grow(admin, to(4, assignments=[[1], [1]])) == [("orders", 0, None)]
    assert len(orders.partitions) == 4


@pytest.mark.parametrize(
    ("asked", "code", "message"),
    [
        (to(2), ErrorCode.INVALID_PARTITIONS, "Topic already has 2 partition(s)."),
        (
            to(-1),
            ErrorCode.INVALID_PARTITIONS,
            "The topic orders currently has 2 partition(s); -1 would not be an increase.",
        ),
        (
            to(4, assignments=[[1]]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "Attempted to add 2 additional partition(s), but only 1 assignment(s) were specified.",
        ),
        (
            to(3, assignments=[[2]]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes broker 2, but no such broker is registered.",
        ),
        (to(3, name="x"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None),
    ],
)
def test_what_cannot_be_is_refused_with_kafkas_text(admin, orders, asked, code, message):
    assert grow(admin, asked) == [(asked.name, code, message)]
    assert len(orders.partitions) == 2


def test_a_name_that_is_there_twice_is_refused_once(admin, orders):
    assert grow(admin, to(3), to(4)) == [("orders", ErrorCode.INVALID_REQUEST, "Duplicate topic name.")]
    assert len(orders.partitions) == 2


def test_a_request_for_very_many_partitions_is_refused_as_a_whole(admin, orders):
    more = admin.topics.create("more", partitions=1, configs={})
    assert {code for _, code, _ in grow(admin, to(2 + 6_000), to(1 + 4_001, "more"))} == {
        ErrorCode.POLICY_VIOLATION
    }
    assert (len(orders.partitions), len(more.partitions)) == (2, 1)
    assert grow(admin, to(2 + 10_000), to(1, "nowhere"))[0] == ("orders", 0, None)
