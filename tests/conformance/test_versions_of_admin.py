"""The APIs of administrators, in every version: one request and its whole response."""

from typing import Any

from headrace.wire.errors import ErrorCode
from tests.conformance.conftest import BrokerUnderTest
from tests.conformance.plain import ANY, expect, plain
from tests.conformance.steps import (
    TOPIC,
    batch,
    describe_configs,
    new_topic,
    produced,
    topic_id_of,
    wait_for,
    wait_until_led,
)
from tests.conformance.versions import every_version
from tests.conformance.wire_client import WireClient

LONG, LIST = 5, 7
TOPIC_CONFIG, DEFAULT_CONFIG = 1, 5


@every_version("create_topics")
def test_create_topics(wire: WireClient, unique: str, version: int) -> None:
    topic = {
        "name": unique,
        "num_partitions": 2,
        "replication_factor": 1,
        "configs": [{"name": "retention.ms", "value": "1000"}],
    }
    response = wire.ask("create_topics", version, topics=[topic], timeout_ms=10_000)
    expect(
        response,
        version,
        topics=[
            {
                "name": unique,
                "topic_id": ANY,
                "error_message": None,
                "num_partitions": 2,
                "replication_factor": 1,
                "configs": ANY,
            }
        ],
    )
    wait_until_led(wire, unique, partitions=2)
    if version >= 7:
        assert response.topics[0].topic_id == topic_id_of(wire, unique)
    if version >= 5:
        configs = {config.name: plain(config) for config in response.topics[0].configs}
        assert configs["retention.ms"] == {
            "name": "retention.ms",
            "value": "1000",
            "read_only": False,
            "config_source": TOPIC_CONFIG,
            "is_sensitive": False,
        }
        assert configs["cleanup.policy"]["config_source"] == DEFAULT_CONFIG


@every_version("delete_topics")
def test_delete_topics(wire: WireClient, unique: str, version: int) -> None:
    topic_id = new_topic(wire, unique)
    names: dict[str, Any] = {"topics": [{"name": unique}]} if version >= 6 else {"topic_names": [unique]}
    response = wire.ask("delete_topics", version, timeout_ms=10_000, **names)
    expect(response, version, responses=[{"name": unique, "topic_id": topic_id}])
    wait_for(lambda: topic_id_of(wire, unique) != topic_id)


@every_version("create_partitions")
def test_create_partitions(wire: WireClient, unique: str, version: int) -> None:
    new_topic(wire, unique)
    topic = {"name": unique, "count": 3, "assignments": None}
    response = wire.ask("create_partitions", version, topics=[topic], timeout_ms=10_000)
    expect(response, version, results=[{"name": unique}])
    wait_until_led(wire, unique, partitions=3)


@every_version("describe_configs")
def test_describe_configs(wire: WireClient, unique: str, version: int) -> None:
    new_topic(wire, unique, configs={"retention.ms": "1000"})
    resource = {
        "resource_type": TOPIC,
        "resource_name": unique,
        "configuration_keys": ["retention.ms", "cleanup.policy"],
    }
    documented = {"include_documentation": True} if version >= 3 else {}
    response = wire.ask(
        "describe_configs", version, resources=[resource], include_synonyms=True, **documented
    )
    retention = {
        "name": "retention.ms",
        "value": "1000",
        "config_source": TOPIC_CONFIG,
        "synonyms": [{"name": "retention.ms", "value": "1000", "source": TOPIC_CONFIG}],
        "config_type": LONG,
        "documentation": ANY,
    }
    policy = {
        "name": "cleanup.policy",
        "value": "delete",
        "config_source": DEFAULT_CONFIG,
        "synonyms": [{"name": "log.cleanup.policy", "value": "delete", "source": DEFAULT_CONFIG}],
        "config_type": LIST,
        "documentation": ANY,
    }
    results = response.results
    results[0].configs = sorted(results[0].configs, key=lambda config: config.name)
    expect(
        response,
        version,
        results=[
            {
                "error_message": "",
                "resource_type": TOPIC,
                "resource_name": unique,
                "configs": [policy, retention],
            }
        ],
    )
    assert version < 3 or all(config.documentation for config in results[0].configs)


@every_version("alter_configs")
def test_alter_configs(wire: WireClient, unique: str, version: int) -> None:
    new_topic(wire, unique, configs={"retention.ms": "1000"})
    configs = [{"name": "segment.bytes", "value": "2000000"}]
    resource = {"resource_type": TOPIC, "resource_name": unique, "configs": configs}
    response = wire.ask("alter_configs", version, resources=[resource])
    answer = {"error_message": ANY, "resource_type": TOPIC, "resource_name": unique}
    expect(response, version, responses=[answer])

    def has_new_configs_only() -> bool:
        found = describe_configs(wire, TOPIC, unique, "segment.bytes", "retention.ms")
        return found["segment.bytes"].value == "2000000" and found["retention.ms"].value == "604800000"

    wait_for(has_new_configs_only)


@every_version("incremental_alter_configs")
def test_incremental_alter_configs(wire: WireClient, unique: str, version: int) -> None:
    new_topic(wire, unique, configs={"retention.ms": "1000"})
    configs = [{"name": "segment.bytes", "config_operation": 0, "value": "2000000"}]
    resource = {"resource_type": TOPIC, "resource_name": unique, "configs": configs}
    response = wire.ask("incremental_alter_configs", version, resources=[resource])
    answer = {"error_message": ANY, "resource_type": TOPIC, "resource_name": unique}
    expect(response, version, responses=[answer])

    def has_both() -> bool:
        found = describe_configs(wire, TOPIC, unique, "segment.bytes", "retention.ms")
        return found["segment.bytes"].value == "2000000" and found["retention.ms"].value == "1000"

    wait_for(has_both)


@every_version("list_config_resources")
def test_list_config_resources(broker: BrokerUnderTest, wire: WireClient, unique: str, version: int) -> None:
    # v0 was ListClientMetricsResources and lists those alone; we have none, and a fresh Kafka has none.
    new_topic(wire, unique)
    kinds = {"resource_types": [TOPIC]} if version >= 1 else {}
    response = wire.ask("list_config_resources", version, **kinds)
    expect(response, version, config_resources=ANY)
    names = [resource.resource_name for resource in response.config_resources]
    assert (unique in names) is (version >= 1)
    assert version >= 1 or not names


@every_version("describe_cluster")
def test_describe_cluster(broker: BrokerUnderTest, wire: WireClient, version: int) -> None:
    response = wire.ask("describe_cluster", version)
    node = {"broker_id": broker.node_id, "host": broker.host, "port": broker.port, "rack": None}
    expect(response, version, endpoint_type=1, cluster_id=ANY, controller_id=broker.node_id, brokers=[node])
    assert len(response.cluster_id) == 22


@every_version("describe_topic_partitions")
def test_describe_topic_partitions(wire: WireClient, unique: str, version: int) -> None:
    topic_id = new_topic(wire, unique, partitions=2)
    response = wire.ask("describe_topic_partitions", version, topics=[{"name": unique}])
    partition = {
        "leader_id": 1,
        "leader_epoch": 0,
        "replica_nodes": [1],
        "isr_nodes": [1],
        "eligible_leader_replicas": [],
        "last_known_elr": [],
    }
    # Kafka fills in the allowed operations unasked: this API has no field to ask for them.
    all_operations = sum(1 << operation for operation in (3, 4, 5, 6, 7, 8, 10, 11))
    expect(
        response,
        version,
        topics=[
            {
                "name": unique,
                "topic_id": topic_id,
                "partitions": [{"partition_index": index, **partition} for index in range(2)],
                "topic_authorized_operations": all_operations,
            }
        ],
    )


@every_version("describe_log_dirs")
def test_describe_log_dirs(wire: WireClient, unique: str, version: int) -> None:
    new_topic(wire, unique)
    records = batch("value")
    produced(wire, unique, records)
    response = wire.ask("describe_log_dirs", version, topics=[{"topic": unique, "partitions": [0]}])
    partition = {"partition_index": 0, "partition_size": len(records), "offset_lag": 0}
    expect(
        response,
        version,
        results=[
            {
                "log_dir": ANY,
                "topics": [{"name": unique, "partitions": [partition]}],
                "total_bytes": ANY,
                "usable_bytes": ANY,
            }
        ],
    )
    (directory,) = response.results
    assert directory.log_dir
    assert version < 4 or 0 < directory.usable_bytes < directory.total_bytes


@every_version("describe_acls")
def test_describe_acls(wire: WireClient, version: int) -> None:
    response = wire.ask(
        "describe_acls",
        version,
        resource_type_filter=1,
        resource_name_filter=None,
        pattern_type_filter=1,
        principal_filter=None,
        host_filter=None,
        operation=1,
        permission_type=1,
    )
    expect(
        response,
        version,
        error_code=ErrorCode.SECURITY_DISABLED,
        error_message="No Authorizer is configured on the broker",
    )


@every_version("describe_client_quotas")
def test_describe_client_quotas(wire: WireClient, version: int) -> None:
    component = {"entity_type": "client-id", "match_type": 2, "match": None}
    response = wire.ask("describe_client_quotas", version, components=[component], strict=False)
    expect(response, version, error_message="", entries=[])


@every_version("describe_quorum")
def test_describe_quorum(broker: BrokerUnderTest, wire: WireClient, version: int) -> None:
    asked = {"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}
    response = wire.ask("describe_quorum", version, topics=[asked])
    voter = {
        "replica_id": broker.node_id,
        "replica_directory_id": ANY,
        "log_end_offset": ANY,
        "last_fetch_timestamp": ANY,
        "last_caught_up_timestamp": ANY,
    }
    partition = {
        "partition_index": 0,
        "error_message": ANY,
        "leader_id": broker.node_id,
        "leader_epoch": ANY,
        "high_watermark": ANY,
        "current_voters": [voter],
    }
    expect(
        response,
        version,
        error_message=ANY,
        topics=[{"topic_name": "__cluster_metadata", "partitions": [partition]}],
        nodes=[{"node_id": broker.node_id, "listeners": ANY}],
    )


@every_version("elect_leaders")
def test_elect_leaders(wire: WireClient, unique: str, version: int) -> None:
    new_topic(wire, unique)
    topic = {"topic": unique, "partitions": [0]}
    response = wire.ask("elect_leaders", version, topic_partitions=[topic], timeout_ms=5000)
    result = {
        "partition_id": 0,
        "error_code": ErrorCode.ELECTION_NOT_NEEDED,
        "error_message": ANY,
    }
    expect(response, version, replica_election_results=[{"topic": unique, "partition_result": [result]}])


@every_version("list_partition_reassignments")
def test_list_partition_reassignments(wire: WireClient, version: int) -> None:
    response = wire.ask("list_partition_reassignments", version, topics=None, timeout_ms=5000)
    expect(response, version, error_message=None, topics=[])


@every_version("update_features")
def test_update_features(wire: WireClient, version: int) -> None:
    """To the level that the feature has: on both brokers share groups stay on for the other tests."""
    update = {"feature": "group.version", "max_version_level": 1}
    response = wire.ask("update_features", version, feature_updates=[update])
    result = {"feature": "group.version", "error_message": ANY}
    expect(response, version, error_message=ANY, results=[result])


@every_version("update_features")
def test_update_features_refuses_a_level_that_nobody_has(wire: WireClient, version: int) -> None:
    update = {"feature": "group.version", "max_version_level": 99}
    response = wire.ask("update_features", version, feature_updates=[update])
    codes = [response.error_code, *(result.error_code for result in response.results)]
    assert ErrorCode.INVALID_UPDATE_VERSION in codes


def _is_security_disabled(result: Any) -> bool:
    return bool(result.error_code == ErrorCode.SECURITY_DISABLED)


@every_version("create_acls")
def test_create_acls(wire: WireClient, unique: str, version: int) -> None:
    creation = {
        "resource_type": 2,
        "resource_name": unique,
        "resource_pattern_type": 3,
        "principal": "User:alice",
        "host": "*",
        "operation": 3,
        "permission_type": 3,
    }
    response = wire.ask("create_acls", version, creations=[creation])
    assert all(map(_is_security_disabled, response.results))
    assert len(response.results) == 1


@every_version("delete_acls")
def test_delete_acls(wire: WireClient, version: int) -> None:
    one = {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1, "permission_type": 1}
    nobody = {"resource_name_filter": None, "principal_filter": None, "host_filter": None}
    response = wire.ask("delete_acls", version, filters=[{**one, **nobody}])
    assert all(map(_is_security_disabled, response.filter_results))
    assert len(response.filter_results) == 1


@every_version("sasl_handshake")
def test_a_login_where_none_is_expected_is_refused(wire: WireClient, version: int) -> None:
    response = wire.ask("sasl_handshake", version, mechanism="PLAIN")
    assert response.error_code == ErrorCode.ILLEGAL_SASL_STATE


@every_version("sasl_authenticate")
def test_credentials_where_none_are_expected_are_refused(wire: WireClient, version: int) -> None:
    response = wire.ask("sasl_authenticate", version, auth_bytes=b"\x00alice\x00secret")
    assert response.error_code == ErrorCode.ILLEGAL_SASL_STATE


@every_version("describe_user_scram_credentials")
def test_describe_user_scram_credentials(wire: WireClient, unique: str, version: int) -> None:
    response = wire.ask("describe_user_scram_credentials", version, users=[{"name": unique}])
    (result,) = response.results
    assert (response.error_code, result.user, result.error_code) == (0, unique, ErrorCode.RESOURCE_NOT_FOUND)


@every_version("alter_user_scram_credentials")
def test_alter_user_scram_credentials(wire: WireClient, unique: str, version: int) -> None:
    deletion = {"name": unique, "mechanism": 1}
    (result,) = wire.ask("alter_user_scram_credentials", version, deletions=[deletion]).results
    assert (result.user, result.error_code) == (unique, ErrorCode.RESOURCE_NOT_FOUND)
