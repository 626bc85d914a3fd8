"""Every admin API in every version it advertises, over the wire's bytes: what is read back is what was answered."""

import pytest

from headrace.broker.call import Call
from headrace.broker.handlers import handler_of
from headrace.wire.apis import response_class
from headrace.wire.codec import encode, read_message
from headrace.wire.messages import (
    alter_configs_request,
    create_partitions_request,
    create_topics_request,
    delete_records_request,
    delete_topics_request,
    describe_acls_request,
    describe_client_quotas_request,
    describe_cluster_request,
    describe_configs_request,
    describe_log_dirs_request,
    describe_quorum_request,
    describe_topic_partitions_request,
    elect_leaders_request,
    incremental_alter_configs_request,
    list_config_resources_request,
    list_partition_reassignments_request,
)

TOPIC = 2
REQUESTS = [
    create_topics_request.CreateTopicsRequest(
        topics=[
            create_topics_request.CreatableTopic(
                name=name,
                num_partitions=1,
                replication_factor=1,
                configs=[create_topics_request.CreatableTopicConfig(name="retention.ms", value="5")],
            )
            for name in ("new", "b ad")
        ]
    ),
    delete_topics_request.DeleteTopicsRequest(topic_names=["orders", "x"]),
    delete_topics_request.DeleteTopicsRequest(
        topics=[delete_topics_request.DeleteTopicState(name=name) for name in ("orders", "x")]
    ),
    create_partitions_request.CreatePartitionsRequest(
        topics=[
            create_partitions_request.CreatePartitionsTopic(name=name, count=3, assignments=None)
            for name in ("orders", "x")
        ]
    ),
    delete_records_request.DeleteRecordsRequest(
        topics=[
            delete_records_request.DeleteRecordsTopic(
                name="orders", partitions=[delete_records_request.DeleteRecordsPartition(offset=-1)]
            )
        ]
    ),
    describe_configs_request.DescribeConfigsRequest(
        resources=[
            describe_configs_request.DescribeConfigsResource(
                resource_type=kind, resource_name=name, configuration_keys=None
            )
            for kind, name in ((2, "orders"), (2, "x"), (4, "1"), (4, ""), (8, "1"), (32, "g"))
        ],
        include_synonyms=True,
    ),
    alter_configs_request.AlterConfigsRequest(
        resources=[
            alter_configs_request.AlterConfigsResource(
                resource_type=TOPIC,
                resource_name=name,
                configs=[alter_configs_request.AlterableConfig(name="retention.ms", value="5")],
            )
            for name in ("orders", "x")
        ]
    ),
    incremental_alter_configs_request.IncrementalAlterConfigsRequest(
        resources=[
            incremental_alter_configs_request.AlterConfigsResource(
                resource_type=TOPIC,
                resource_name=name,
                configs=[incremental_alter_configs_request.AlterableConfig(name="retention.ms", value="5")],
            )
            for name in ("orders", "x")
        ]
    ),
    list_config_resources_request.ListConfigResourcesRequest(),
    describe_cluster_request.DescribeClusterRequest(),
    describe_topic_partitions_request.DescribeTopicPartitionsRequest(response_partition_limit=1),
    describe_log_dirs_request.DescribeLogDirsRequest(topics=None),
    describe_quorum_request.DescribeQuorumRequest(
        topics=[
            describe_quorum_request.TopicData(
                topic_name="__cluster_metadata", partitions=[describe_quorum_request.PartitionData()]
            )
        ]
    ),
    elect_leaders_request.ElectLeadersRequest(
        topic_partitions=[elect_leaders_request.TopicPartitions(topic="orders", partitions=[0, 9])]
    ),
    list_partition_reassignments_request.ListPartitionReassignmentsRequest(),
    describe_client_quotas_request.DescribeClientQuotasRequest(),
    describe_acls_request.DescribeAclsRequest(),
]


def versions_of(request):
    low, high = handler_of(request.API_KEY).VERSIONS
    if isinstance(request, delete_topics_request.DeleteTopicsRequest):
        # v6 moved the names into structs.
        return range(6, high + 1) if request.topics else range(low, 6)
    return range(low, high + 1)


@pytest.mark.parametrize(
    ("request_", "version"),
    [
        pytest.param(request, version, id=f"{type(request).__name__}-v{version}")
        for request in REQUESTS
        for version in versions_of(request)
    ],
)
def test_an_answer_survives_the_wire(admin, request_, version):
    admin.topics.create("orders", partitions=2, configs={"max.message.bytes": "9"})
    admin.topics.create("other", partitions=2, configs={})
    read, _ = read_message(type(request_), version, encode(request_, version))
    response = handler_of(request_.API_KEY).handle(admin, read, Call(api_version=version))
    data = encode(response, version)
    again, end = read_message(response_class(request_.API_KEY), version, data)
    assert end == len(data)
    assert encode(again, version) == data
