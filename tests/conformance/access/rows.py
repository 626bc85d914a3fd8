"""Every API that is served, a request for it, and the permissions that the request needs.

The request also names things that the client has no permission for: a topic, group or transactional id that exists
(`hidden`) and one that does not (`missing`): the answers must not tell them apart. Texts in braces stand for the names
of one case; see `fill`.
"""

from dataclasses import dataclass
from typing import Any

from headrace.wire.apis import NAMES

KEYS = {name: key for key, name in NAMES.items()}
TOPIC, HIDDEN, MISSING = "{topic}", "{hidden}", "{missing}"
GROUP, HIDDEN_GROUP, MISSING_GROUP = "{group}", "{hidden_group}", "{missing_group}"
TRANSACTION, HIDDEN_TRANSACTION = "{transaction}", "{hidden_transaction}"
ID, HIDDEN_ID = "{topic_id}", "{hidden_id}"
NAMED = (TOPIC, HIDDEN, MISSING)
STATE_TOPICS = [{"topic_id": ID, "partitions": [{"partition": 0}]}]


@dataclass(frozen=True)
class Row:
    api: str
    version: int
    fields: dict[str, Any]
    needs: tuple[str, ...] = ()
    label: str = ""
    is_loose: bool = False
    """What is allowed may be answered in another way, or at another time: only refusals are compared."""

    @property
    def name(self) -> str:
        return f"{self.api} v{self.version}" + (f" {self.label}" if self.label else "")

    def cases(self) -> list["Case"]:
        """With all permissions, with none, and with all but each."""
        sets = {"all": self.needs, "none": ()}
        for missing in self.needs if len(self.needs) > 1 else ():
            sets[f"no {missing}"] = tuple(need for need in self.needs if need != missing)
        return [Case(self, what, granted) for what, granted in sets.items() if self.needs or what == "none"]


@dataclass(frozen=True)
class Case:
    row: Row
    what: str
    granted: tuple[str, ...]

    @property
    def name(self) -> str:
        return f"{self.row.name}, {self.what}"


def topics(field: str, **rest: Any) -> list[dict[str, Any]]:
    return [{field: name, **rest} for name in NAMED]


def produce(
    batch: str = "{batch}", transaction: str | None = None, acks: int = -1, **named: Any
) -> dict[str, Any]:
    data = [{**named, "partition_data": [{"index": 0, "records": batch}]}] if named else None
    return {
        "transactional_id": transaction,
        "acks": acks,
        "timeout_ms": 5_000,
        "topic_data": data
        or [{"name": name, "partition_data": [{"index": 0, "records": batch}]} for name in NAMED],
    }


def fetch(*wanted: dict[str, Any], **rest: Any) -> dict[str, Any]:
    partitions = [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1_000}]
    return {
        "max_bytes": 10_000,
        "topics": [{**topic, "partitions": partitions} for topic in wanted],
        **rest,
    }


def configs(*types: int) -> list[dict[str, Any]]:
    names = {2: TOPIC, 4: "1", 8: "1", 16: "metrics", 32: GROUP}
    hidden = {2: HIDDEN, 32: HIDDEN_GROUP}
    return [
        {"resource_type": kind, "resource_name": name, "configs": []}
        for kind in types
        for name in filter(None, (names[kind], hidden.get(kind)))
    ]


OFFSETS = [{"partition_index": 0, "committed_offset": 0, "committed_metadata": ""}]
FILTER = {
    "resource_type_filter": 1,
    "resource_name_filter": "nothing",
    "pattern_type_filter": 1,
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}
SHARE_SESSION = {"member_id": "m", "share_session_epoch": 0, "max_bytes": 1_000, "max_records": 10}

ROWS = (
    Row("produce", 12, produce(), ("WRITE topic",)),
    Row("produce", 13, produce(topic_id=ID), ("WRITE topic",), "by id"),
    Row(
        "produce",
        11,
        produce("{transactional_batch}", TRANSACTION),
        ("WRITE topic", "WRITE transactional_id"),
        "transactional",
    ),
    Row("fetch", 12, fetch(*({"topic": name} for name in NAMED)), ("READ topic",)),
    Row("fetch", 17, fetch({"topic_id": ID}, {"topic_id": HIDDEN_ID}), ("READ topic",), "by id"),
    Row("fetch", 12, fetch({"topic": TOPIC}, replica_id=1), ("READ topic",), "as a replica without"),
    Row(
        "list_offsets",
        9,
        {"topics": topics("name", partitions=[{"partition_index": 0, "timestamp": -1}])},
        ("DESCRIBE topic",),
    ),
    Row("metadata", 0, {"topics": []}, ("DESCRIBE topic",), "all"),
    Row(
        "metadata",
        10,
        {
            "topics": topics("name"),
            "allow_auto_topic_creation": False,
            "include_topic_authorized_operations": True,
            "include_cluster_authorized_operations": True,
        },
        ("DESCRIBE topic", "DESCRIBE cluster"),
    ),
    Row("metadata", 12, {"topics": None, "include_topic_authorized_operations": True}, ("READ topic",), "all"),
    Row("metadata", 12, {"topics": [{"name": HIDDEN}]}, (), "hidden"),
    Row(
        "metadata",
        12,
        {"topics": [{"topic_id": ID, "name": None}, {"topic_id": HIDDEN_ID, "name": None}]},
        ("DESCRIBE topic",),
        "by id",
    ),
    Row(
        "metadata",
        9,
        {"topics": [{"name": "{new}"}], "allow_auto_topic_creation": True},
        ("DESCRIBE new", "CREATE cluster"),
        "auto-creation by the cluster",
        is_loose=True,
    ),
    Row(
        "metadata",
        9,
        {"topics": [{"name": "{new}"}], "allow_auto_topic_creation": True},
        ("DESCRIBE new", "CREATE new"),
        "auto-creation by the topic",
        is_loose=True,
    ),
    Row(
        "offset_commit",
        9,
        {"group_id": GROUP, "topics": topics("name", partitions=OFFSETS)},
        ("READ group", "READ topic"),
    ),
    Row(
        "offset_commit",
        10,
        {
            "group_id": GROUP,
            "topics": [{"topic_id": ID, "partitions": OFFSETS}, {"topic_id": HIDDEN_ID, "partitions": OFFSETS}],
        },
        ("READ group", "READ topic"),
        "by id",
    ),
    Row(
        "offset_fetch",
        1,
        {"group_id": GROUP, "topics": topics("name", partition_indexes=[0])},
        ("DESCRIBE group", "DESCRIBE topic"),
    ),
    Row("offset_fetch", 5, {"group_id": GROUP, "topics": None}, ("READ group", "READ topic"), "all"),
    Row(
        "offset_fetch",
        9,
        {
            "groups": [
                {"group_id": name, "topics": topics("name", partition_indexes=[0])}
                for name in (GROUP, HIDDEN_GROUP)
            ]
        },
        ("DESCRIBE group", "DESCRIBE topic"),
    ),
    Row(
        "offset_fetch",
        9,
        {"groups": [{"group_id": GROUP, "topics": None}]},
        ("DESCRIBE group", "DESCRIBE topic"),
        "all",
    ),
    Row(
        "offset_fetch",
        10,
        {
            "groups": [
                {
                    "group_id": GROUP,
                    "topics": [
                        {"topic_id": ID, "partition_indexes": [0]},
                        {"topic_id": HIDDEN_ID, "partition_indexes": [0]},
                    ],
                }
            ]
        },
        ("DESCRIBE group", "DESCRIBE topic"),
        "by id",
    ),
    Row("find_coordinator", 3, {"key": GROUP, "key_type": 0}, ("DESCRIBE group",)),
    Row("find_coordinator", 6, {"coordinator_keys": [GROUP, HIDDEN_GROUP], "key_type": 0}, ("READ group",)),
    Row(
        "find_coordinator",
        6,
        {"coordinator_keys": [TRANSACTION, HIDDEN_TRANSACTION], "key_type": 1},
        ("DESCRIBE transactional_id",),
        "transaction",
    ),
    Row(
        "find_coordinator",
        6,
        {"coordinator_keys": ["{group}:{topic_id_text}:0"], "key_type": 2},
        ("CLUSTER_ACTION cluster",),
        "share",
    ),
    Row(
        "join_group",
        9,
        {
            "group_id": GROUP,
            "member_id": "nobody",
            "session_timeout_ms": 10_000,
            "rebalance_timeout_ms": 1_000,
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b""}],
        },
        ("READ group",),
    ),
    Row("heartbeat", 4, {"group_id": GROUP, "generation_id": 1, "member_id": "nobody"}, ("READ group",)),
    Row("leave_group", 5, {"group_id": GROUP, "members": [{"member_id": "nobody"}]}, ("READ group",)),
    Row(
        "sync_group",
        5,
        {
            "group_id": GROUP,
            "generation_id": 1,
            "member_id": "nobody",
            "protocol_type": "consumer",
            "protocol_name": "range",
        },
        ("READ group",),
    ),
    Row(
        "describe_groups",
        5,
        {"groups": [GROUP, HIDDEN_GROUP, MISSING_GROUP], "include_authorized_operations": True},
        ("DESCRIBE group",),
    ),
    Row("list_groups", 4, {}, ("DESCRIBE group",)),
    Row("api_versions", 3, {"client_software_name": "x", "client_software_version": "1"}, is_loose=True),
    Row(
        "create_topics",
        7,
        {"topics": [{"name": name, "num_partitions": 1, "replication_factor": 1} for name in ("{new}", HIDDEN)]},
        ("CREATE new", "DESCRIBE_CONFIGS new"),
    ),
    Row(
        "create_topics",
        7,
        {"topics": [{"name": "{new}", "num_partitions": 1, "replication_factor": 1}]},
        ("CREATE cluster",),
        "by the cluster",
    ),
    Row("delete_topics", 5, {"topic_names": [TOPIC, HIDDEN, MISSING], "timeout_ms": 5_000}, ("DELETE topic",)),
    Row(
        "delete_topics",
        5,
        {"topic_names": [TOPIC, HIDDEN, MISSING], "timeout_ms": 5_000},
        ("DESCRIBE topic", "DESCRIBE missing"),
        "who may describe",
    ),
    Row(
        "delete_topics",
        6,
        {
            "topics": [{"topic_id": ID, "name": None}, {"topic_id": HIDDEN_ID, "name": None}],
            "timeout_ms": 5_000,
        },
        ("DELETE topic",),
        "by id",
    ),
    Row(
        "delete_topics",
        6,
        {"topics": [{"topic_id": ID, "name": None}], "timeout_ms": 5_000},
        ("DESCRIBE topic",),
        "by id, who may describe",
    ),
    Row(
        "delete_records",
        2,
        {"topics": topics("name", partitions=[{"partition_index": 0, "offset": 0}]), "timeout_ms": 5_000},
        ("DELETE topic",),
    ),
    Row("init_producer_id", 4, {"transactional_id": None, "transaction_timeout_ms": 1}, ("WRITE topic",)),
    Row(
        "init_producer_id",
        4,
        {"transactional_id": None, "transaction_timeout_ms": 1},
        ("IDEMPOTENT_WRITE cluster",),
        "by the cluster",
    ),
    Row(
        "init_producer_id",
        4,
        {"transactional_id": TRANSACTION, "transaction_timeout_ms": 10_000},
        ("WRITE transactional_id",),
        "transactional",
    ),
    Row(
        "offset_for_leader_epoch",
        4,
        {"topics": topics("topic", partitions=[{"partition": 0, "leader_epoch": 0}])},
        ("DESCRIBE topic",),
    ),
    Row(
        "offset_for_leader_epoch",
        4,
        {"topics": [{"topic": HIDDEN, "partitions": [{"partition": 0, "leader_epoch": 0}]}]},
        ("CLUSTER_ACTION cluster",),
        "as a broker",
    ),
    Row(
        "add_partitions_to_txn",
        3,
        {
            "v3_and_below_transactional_id": TRANSACTION,
            "v3_and_below_producer_id": 10**9,
            "v3_and_below_producer_epoch": 0,
            "v3_and_below_topics": [{"name": name, "partitions": [0]} for name in NAMED],
        },
        ("WRITE transactional_id", "WRITE topic"),
    ),
    Row(
        "add_partitions_to_txn",
        4,
        {
            "transactions": [
                {
                    "transactional_id": TRANSACTION,
                    "producer_id": 10**9,
                    "producer_epoch": 0,
                    "verify_only": True,
                    "topics": [{"name": TOPIC, "partitions": [0]}],
                }
            ]
        },
        ("CLUSTER_ACTION cluster",),
    ),
    Row(
        "add_offsets_to_txn",
        4,
        {"transactional_id": TRANSACTION, "producer_id": 10**9, "producer_epoch": 0, "group_id": GROUP},
        ("WRITE transactional_id", "READ group"),
    ),
    Row(
        "end_txn",
        4,
        {"transactional_id": TRANSACTION, "producer_id": 10**9, "producer_epoch": 0, "committed": True},
        ("WRITE transactional_id",),
    ),
    Row(
        "write_txn_markers",
        1,
        {
            "markers": [
                {
                    "producer_id": 10**9,
                    "producer_epoch": 0,
                    "transaction_result": True,
                    "topics": [{"name": MISSING, "partition_indexes": [0]}],
                    "coordinator_epoch": 0,
                }
            ]
        },
        ("CLUSTER_ACTION cluster",),
    ),
    Row("write_txn_markers", 1, {"markers": []}, ("ALTER cluster",), "as an administrator"),
    Row(
        "txn_offset_commit",
        3,
        {
            "transactional_id": TRANSACTION,
            "group_id": GROUP,
            "producer_id": 10**9,
            "producer_epoch": 0,
            "topics": topics("name", partitions=OFFSETS),
        },
        ("WRITE transactional_id", "READ group", "READ topic"),
    ),
    Row("describe_acls", 3, FILTER, ("DESCRIBE cluster",)),
    Row(
        "create_acls",
        3,
        {
            "creations": [
                {
                    "resource_type": 2,
                    "resource_name": "{new}",
                    "resource_pattern_type": 3,
                    "principal": "User:nobody",
                    "host": "*",
                    "operation": 3,
                    "permission_type": 3,
                }
            ]
        },
        ("ALTER cluster",),
    ),
    Row("delete_acls", 3, {"filters": [FILTER]}, ("ALTER cluster",)),
    Row(
        "describe_configs",
        4,
        {
            "resources": [
                {"resource_type": one["resource_type"], "resource_name": one["resource_name"]}
                | {"configuration_keys": []}
                for one in configs(2, 4, 8, 32)
            ]
        },
        ("DESCRIBE_CONFIGS topic", "DESCRIBE_CONFIGS cluster", "DESCRIBE_CONFIGS group"),
    ),
    Row(
        "alter_configs",
        2,
        {"resources": configs(2), "validate_only": True},
        ("ALTER_CONFIGS topic",),
    ),
    Row(
        "incremental_alter_configs",
        1,
        {"resources": configs(2, 4, 32), "validate_only": True},
        ("ALTER_CONFIGS topic", "ALTER_CONFIGS cluster", "ALTER_CONFIGS group"),
    ),
    Row("describe_log_dirs", 1, {"topics": []}, ("DESCRIBE cluster",)),
    Row("describe_log_dirs", 4, {"topics": []}, ("DESCRIBE cluster",)),
    Row(
        "create_partitions",
        3,
        {"topics": topics("name", count=2), "timeout_ms": 5_000, "validate_only": True},
        ("ALTER topic",),
    ),
    Row("delete_groups", 2, {"groups_names": [GROUP, HIDDEN_GROUP, MISSING_GROUP]}, ("DELETE group",)),
    Row(
        "elect_leaders",
        2,
        {"topic_partitions": [{"topic": TOPIC, "partitions": [0]}], "timeout_ms": 5_000},
        ("ALTER cluster",),
    ),
    Row("list_partition_reassignments", 0, {"topics": []}, ("DESCRIBE cluster",)),
    Row(
        "offset_delete",
        0,
        {"group_id": GROUP, "topics": topics("name", partitions=[{"partition_index": 0}])},
        ("DELETE group", "READ topic"),
    ),
    Row(
        "describe_client_quotas",
        1,
        {"components": [{"entity_type": "user", "match_type": 2, "match": None}]},
        ("DESCRIBE_CONFIGS cluster",),
    ),
    Row("describe_user_scram_credentials", 0, {"users": [{"name": "nobody"}]}, ("DESCRIBE cluster",)),
    Row(
        "alter_user_scram_credentials",
        0,
        {"deletions": [{"name": "nobody", "mechanism": 1}]},
        ("ALTER cluster",),
    ),
    Row(
        "describe_quorum",
        1,
        {"topics": [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]},
        ("DESCRIBE cluster",),
    ),
    Row("update_features", 1, {"timeout_ms": 5_000, "validate_only": True}, ("ALTER cluster",)),
    Row(
        "describe_cluster",
        1,
        {"include_cluster_authorized_operations": True},
        ("DESCRIBE cluster", "ALTER_CONFIGS cluster"),
    ),
    Row("describe_producers", 0, {"topics": topics("name", partition_indexes=[0])}, ("READ topic",)),
    Row(
        "describe_transactions",
        0,
        {"transactional_ids": [TRANSACTION, HIDDEN_TRANSACTION]},
        ("DESCRIBE transactional_id",),
    ),
    Row("list_transactions", 1, {}, ("DESCRIBE transactional_id",)),
    Row(
        "consumer_group_heartbeat",
        1,
        {
            "group_id": "{new}",
            "member_id": "AAAAAAAAAAAAAAAAAAAAAA",
            "member_epoch": 0,
            "rebalance_timeout_ms": 1_000,
            "subscribed_topic_names": [TOPIC],
            "topic_partitions": [],
        },
        ("READ new_group", "DESCRIBE topic"),
    ),
    Row(
        "consumer_group_describe",
        1,
        {"group_ids": ["{consumer_group}", HIDDEN_GROUP], "include_authorized_operations": True},
        ("READ consumer_group", "DESCRIBE topic"),
    ),
    Row("list_config_resources", 1, {"resource_types": [4]}, ("DESCRIBE_CONFIGS cluster",)),
    Row(
        "describe_topic_partitions",
        0,
        {"topics": topics("name"), "response_partition_limit": 10},
        ("ALTER topic",),
    ),
    Row(
        "describe_topic_partitions",
        0,
        {"topics": [], "response_partition_limit": 10},
        ("DESCRIBE topic",),
        "all",
    ),
    Row(
        "share_group_heartbeat",
        1,
        {
            "group_id": "{new}",
            "member_id": "AAAAAAAAAAAAAAAAAAAAAA",
            "member_epoch": 0,
            "subscribed_topic_names": [TOPIC],
        },
        ("READ new_group", "DESCRIBE topic"),
        is_loose=True,
    ),
    Row(
        "share_group_describe",
        1,
        {"group_ids": ["{share_group}", HIDDEN_GROUP], "include_authorized_operations": True},
        ("DESCRIBE share_group", "DESCRIBE topic"),
    ),
    Row(
        "share_fetch",
        1,
        {
            "group_id": GROUP,
            **SHARE_SESSION,
            "topics": [
                {"topic_id": ID, "partitions": [{"partition_index": 0}]},
                {"topic_id": HIDDEN_ID, "partitions": [{"partition_index": 0}]},
            ],
        },
        ("READ group", "READ topic"),
        is_loose=True,
    ),
    Row(
        "share_acknowledge",
        1,
        {
            "group_id": GROUP,
            "member_id": "m",
            "share_session_epoch": 1,
            "topics": [
                {
                    "topic_id": one,
                    "partitions": [
                        {
                            "partition_index": 0,
                            "acknowledgement_batches": [
                                {"first_offset": 0, "last_offset": 0, "acknowledge_types": [1]}
                            ],
                        }
                    ],
                }
                for one in (ID, HIDDEN_ID)
            ],
        },
        ("READ group", "READ topic"),
    ),
    Row(
        "initialize_share_group_state",
        0,
        {
            "group_id": GROUP,
            "topics": [{"topic_id": ID, "partitions": [{"partition": 0, "state_epoch": 1, "start_offset": 0}]}],
        },
        ("CLUSTER_ACTION cluster",),
    ),
    Row("read_share_group_state", 0, {"group_id": GROUP, "topics": STATE_TOPICS}, ("CLUSTER_ACTION cluster",)),
    Row("write_share_group_state", 0, {"group_id": GROUP, "topics": STATE_TOPICS}, ("CLUSTER_ACTION cluster",)),
    Row("delete_share_group_state", 0, {"group_id": GROUP, "topics": STATE_TOPICS}, ("CLUSTER_ACTION cluster",)),
    Row(
        "read_share_group_state_summary",
        0,
        {"group_id": GROUP, "topics": STATE_TOPICS},
        ("CLUSTER_ACTION cluster",),
    ),
    Row(
        "describe_share_group_offsets",
        1,
        {
            "groups": [
                {"group_id": name, "topics": topics("topic_name", partitions=[0])}
                for name in ("{share_group}", HIDDEN_GROUP)
            ]
        },
        ("DESCRIBE share_group", "DESCRIBE topic"),
    ),
    Row(
        "describe_share_group_offsets",
        1,
        {"groups": [{"group_id": "{share_group}", "topics": None}]},
        ("DESCRIBE share_group", "DESCRIBE topic"),
        "all",
    ),
    Row(
        "alter_share_group_offsets",
        0,
        {
            "group_id": "{idle_group}",
            "topics": topics("topic_name", partitions=[{"partition_index": 0, "start_offset": 0}]),
        },
        ("READ idle_group", "READ topic"),
        is_loose=True,
    ),
    Row(
        "delete_share_group_offsets",
        0,
        {"group_id": "{idle_group}", "topics": topics("topic_name")},
        ("DELETE idle_group", "READ topic"),
    ),
)  # fmt: skip


def fill(value: Any, names: dict[str, Any]) -> Any:
    """The value with the names of a case for the texts in braces."""
    if isinstance(value, dict):
        return {key: fill(each, names) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [fill(each, names) for each in value]
    if isinstance(value, str) and value.startswith("{") and value[1:-1] in names:
        return names[value[1:-1]]
    if isinstance(value, str) and "{" in value:
        return value.format(**names)
    return value
