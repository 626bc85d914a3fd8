"""The APIs and versions that our broker advertises: each is exercised by a test in a `test_versions_of_*.py`."""

from collections.abc import Callable
from typing import Any

import pytest

ADVERTISED: dict[str, tuple[int, int]] = {
    "produce": (3, 13),
    "fetch": (4, 18),
    "list_offsets": (1, 11),
    "metadata": (0, 13),
    "offset_commit": (2, 10),
    "offset_fetch": (1, 10),
    "find_coordinator": (0, 6),
    "join_group": (0, 9),
    "heartbeat": (0, 4),
    "leave_group": (0, 5),
    "sync_group": (0, 5),
    "describe_groups": (0, 6),
    "list_groups": (0, 5),
    "api_versions": (0, 4),
    "create_topics": (2, 7),
    "delete_topics": (1, 6),
    "delete_records": (0, 2),
    "init_producer_id": (0, 5),
    "offset_for_leader_epoch": (2, 4),
    "add_partitions_to_txn": (0, 5),
    "add_offsets_to_txn": (0, 4),
    "end_txn": (0, 5),
    "write_txn_markers": (1, 2),
    "txn_offset_commit": (0, 5),
    "describe_acls": (1, 3),
    "create_acls": (1, 3),
    "delete_acls": (1, 3),
    "sasl_handshake": (0, 1),
    "sasl_authenticate": (0, 2),
    "describe_user_scram_credentials": (0, 0),
    "alter_user_scram_credentials": (0, 0),
    "describe_configs": (1, 4),
    "alter_configs": (0, 2),
    "describe_log_dirs": (1, 5),
    "create_partitions": (0, 3),
    "delete_groups": (0, 2),
    "elect_leaders": (0, 2),
    "incremental_alter_configs": (0, 1),
    "list_partition_reassignments": (0, 0),
    "offset_delete": (0, 0),
    "describe_client_quotas": (0, 1),
    "describe_quorum": (0, 2),
    "update_features": (0, 2),
    "describe_cluster": (0, 2),
    "describe_producers": (0, 0),
    "describe_transactions": (0, 0),
    "list_transactions": (0, 2),
    "consumer_group_heartbeat": (0, 1),
    "consumer_group_describe": (0, 1),
    "list_config_resources": (0, 1),
    "describe_topic_partitions": (0, 0),
}
"""Produce is listed from version 0 on, as Kafka lists it (KAFKA-18659), and served from 3."""
SINCE_4_4 = {"api_versions": (0, 5), "delete_groups": (0, 3), "txn_offset_commit": (0, 6)}
"""What our broker advertises beyond Kafka 4.3: see `unit/broker/groups/test_kafka_4_4.py`."""


def every_version(api: str) -> Callable[[Any], Any]:
    """Runs the test once for each advertised version of the API."""
    low, high = ADVERTISED[api]

    def decorate(test: Any) -> Any:
        test.exercises = api
        return pytest.mark.parametrize("version", range(low, high + 1))(test)

    return decorate
