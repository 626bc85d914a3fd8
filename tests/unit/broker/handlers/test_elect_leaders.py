"""ElectLeaders: nothing to elect."""

import pytest

from headrace.wire.errors import ErrorCode
from headrace.wire.messages.elect_leaders_request import ElectLeadersRequest, TopicPartitions
from headrace.wire.messages.elect_leaders_response import ElectLeadersResponse


@pytest.fixture(autouse=True)
def _orders(admin):
    admin.topics.create("orders", partitions=1, configs={})


def elect(admin, partitions, kind=0):
    return admin.ask(
        ElectLeadersRequest(election_type=kind, topic_partitions=partitions), ElectLeadersResponse
    )


def test_no_election_is_needed_for_a_partition_that_has_its_leader(admin):
    asked = [TopicPartitions(topic="orders", partitions=[0, 5]), TopicPartitions(topic="x", partitions=[0])]
    for kind in (0, 1):
        response = elect(admin, asked, kind)
        found = [
            (result.topic, each.partition_id, each.error_code, each.error_message)
            for result in response.replica_election_results
            for each in result.partition_result
        ]
        assert found == [
            ("orders", 0, ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition."),
            ("orders", 5, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "No such partition as orders-5"),
            ("x", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "No such topic as x"),
        ]


def test_all_partitions_at_once_have_no_election_either(admin):
    response = elect(admin, None)
    assert response.error_code == 0
    assert [(each.topic, each.partition_result) for each in response.replica_election_results] == [
        ("orders", ())
    ]


def test_an_unknown_kind_of_election_is_refused(admin):
    assert elect(admin, None, kind=9).error_code == ErrorCode.INVALID_REQUEST
