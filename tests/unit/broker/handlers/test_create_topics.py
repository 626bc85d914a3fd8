"""CreateTopics, case by case as Kafka 4.3.1 answers it."""

import pytest

from headrace.wire.errors import ErrorCode
from headrace.wire.messages.create_topics_request import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from headrace.wire.messages.create_topics_response import CreateTopicsResponse


def topic(name="orders", partitions=1, replicas=1, configs=None, assignments=()):
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replicas,
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()],
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=brokers)
            for index, brokers in assignments
        ],
    )


def create(admin, *topics, validate_only=False):
    request = CreateTopicsRequest(topics=topics, validate_only=validate_only)
    return admin.ask(request, CreateTopicsResponse).topics


def refusal(admin, *topics):
    (result,) = create(admin, *topics)
    return result.error_code, result.error_message


def test_a_topic_is_created_and_described_in_the_answer(admin):
    (result,) = create(admin, topic(partitions=3, configs={"retention.ms": "5"}))
    created = admin.topics.get("orders")
    assert (result.error_code, result.error_message) == (0, None)
    assert (result.name, result.topic_id) == ("orders", created.id)
    assert (result.num_partitions, result.replication_factor) == (3, 1)
    assert created.configs == {"retention.ms": "5"}


def test_the_answer_lists_all_settings_in_order_with_their_sources(admin):
    (result,) = create(admin, topic(configs={"retention.ms": "5"}))
    names = [config.name for config in result.configs]
    assert names == sorted(names)
    assert len(names) == 34
    by_name = {config.name: (config.value, config.config_source) for config in result.configs}
    assert by_name["retention.ms"] == ("5", 1)
    assert by_name["min.insync.replicas"] == ("1", 3)
    assert by_name["segment.ms"] == ("604800000", 5)


def test_a_default_that_the_broker_was_given_has_a_static_source(admin):
    admin.restart(log_retention_hours=24)
    (result,) = create(admin, topic())
    retention = next(config for config in result.configs if config.name == "retention.ms")
    assert (retention.value, retention.config_source) == ("86400000", 4)


def test_minus_one_takes_the_brokers_defaults(admin):
    admin.restart(num_partitions=7)
    (result,) = create(admin, topic(partitions=-1, replicas=-1))
    assert (result.num_partitions, result.replication_factor) == (7, 1)


def test_validate_only_creates_nothing(admin):
    (result,) = create(admin, topic(partitions=3), validate_only=True)
    assert (result.error_code, result.num_partitions) == (0, 3)
    assert admin.topics.get("orders") is None


def test_topics_stand_or_fall_one_by_one(admin):
    good, bad = create(admin, topic("good"), topic("b ad"))
    assert (good.error_code, bad.error_code) == (0, ErrorCode.INVALID_TOPIC_EXCEPTION)
    assert admin.topics.get("good") is not None


def test_a_name_that_is_there_twice_is_refused_once(admin):
    single, double = create(admin, topic("twice"), topic("single"), topic("twice"))
    assert (single.name, single.error_code) == ("single", 0)
    assert (double.name, double.error_code, double.error_message) == (
        "twice",
        ErrorCode.INVALID_REQUEST,
        "Duplicate topic name.",
    )
    assert admin.topics.get("twice") is None


@pytest.mark.parametrize(
    ("asked", "code", "message"),
    [
        (
            topic(replicas=3),
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Unable to replicate the partition 3 time(s): The target replication factor of 3 cannot be reached "
            "because only 1 broker(s) are registered.",
        ),
        (
            topic(replicas=0, partitions=0),
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        ),
        (
            topic(partitions=0),
            ErrorCode.INVALID_PARTITIONS,
            "Number of partitions was set to an invalid non-positive value.",
        ),
        (
            topic(configs={"retention.ms": None, "segment.ms": None}),
            ErrorCode.INVALID_CONFIG,
            "Null value not supported for topic configs: retention.ms,segment.ms",
        ),
        (topic(configs={"x": "1"}, replicas=9), ErrorCode.INVALID_CONFIG, "Unknown topic config name: x"),
        (
            topic("__cluster_metadata"),
            ErrorCode.INVALID_REQUEST,
            "Creation of internal topic __cluster_metadata is prohibited.",
        ),
        (
            topic(partitions=-1, replicas=1, assignments=[(0, [1])]),
            ErrorCode.INVALID_REQUEST,
            "A manual partition assignment was specified, but replication factor was not set to -1.",
        ),
        (
            topic(partitions=1, replicas=-1, assignments=[(0, [1])]),
            ErrorCode.INVALID_REQUEST,
            "A manual partition assignment was specified, but numPartitions was not set to -1.",
        ),
        (
            topic(partitions=-1, replicas=-1, assignments=[(0, [1]), (0, [1])]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "Found multiple manual partition assignments for partition 0",
        ),
        (
            topic(partitions=-1, replicas=-1, assignments=[(0, [1]), (2, [1])]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "partitions should be a consecutive 0-based integer sequence",
        ),
        (
            topic(partitions=-1, replicas=-1, assignments=[(0, [])]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes an empty replica list.",
        ),
        (
            topic(partitions=-1, replicas=-1, assignments=[(0, [1, 2])]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes broker 2, but no such broker is registered.",
        ),
        (
            topic(partitions=-1, replicas=-1, assignments=[(0, [1, 1])]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes the broker 1 more than once.",
        ),
    ],
)
def test_what_cannot_be_is_refused_with_kafkas_text(admin, asked, code, message):
    assert refusal(admin, asked) == (code, message)
    assert len(admin.topics) == 0


def test_an_assignment_to_this_node_is_taken(admin):
    (result,) = create(admin, topic(partitions=-1, replicas=-1, assignments=[(1, [1]), (0, [1])]))
    assert (result.error_code, result.num_partitions) == (0, 2)


def test_a_request_for_more_than_ten_thousand_partitions_is_refused_as_a_whole(admin):
    results = create(admin, topic("a", partitions=10_000), topic("b", partitions=1))
    assert {(result.error_code, result.error_message) for result in results} == {
        (ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request.")
    }
    assert len(admin.topics) == 0
