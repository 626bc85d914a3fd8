"""DescribeQuorum: one voter, which leads and never lags."""

from headrace.wire.errors import ErrorCode
from headrace.wire.messages.describe_quorum_request import DescribeQuorumRequest, PartitionData, TopicData
from headrace.wire.messages.describe_quorum_response import DescribeQuorumResponse


def partition_of(admin, topic, index):
    request = DescribeQuorumRequest(
        topics=[TopicData(topic_name=topic, partitions=[PartitionData(partition_index=index)])]
    )
    response = admin.ask(request, DescribeQuorumResponse)
    return response, response.topics[0].partitions[0]


def test_this_node_is_the_only_voter_and_leads(admin):
    response, partition = partition_of(admin, "__cluster_metadata", 0)
    assert (response.error_code, partition.error_code, partition.leader_id) == (0, 0, 1)
    (voter,) = partition.current_voters
    assert (voter.replica_id, voter.log_end_offset) == (1, partition.high_watermark)
    assert not partition.observers
    (node,) = response.nodes
    assert [(listener.host, listener.port) for listener in node.listeners] == [("localhost", 9092)]


def test_the_high_watermark_counts_changes_of_metadata(admin):
    before = partition_of(admin, "__cluster_metadata", 0)[1].high_watermark
    admin.topics.create("orders", partitions=1, configs={})
    assert partition_of(admin, "__cluster_metadata", 0)[1].high_watermark == before + 1


def test_other_topics_have_no_quorum(admin):
    for topic, index in (("__cluster_metadata", 1), ("orders", 0)):
        assert partition_of(admin, topic, index)[1].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
