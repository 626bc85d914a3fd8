"""What each API needs, as Kafka's KafkaApis and ControllerApis have it: one row for every API that is served.

Rules that only one API has are in `special.py`. Fetch, ShareFetch and ShareAcknowledge look at the topics of their
sessions themselves, Metadata and DescribeTopicPartitions at what they list.
"""

from typing import TYPE_CHECKING

from headrace.broker.call import Call
from headrace.broker.security import special
from headrace.broker.security.rules import Answer, Asker, Proceed, Rule, all_of, cluster, each, run, whole
from headrace.wire.acls import AclOperation as Op
from headrace.wire.acls import AclResourceType
from headrace.wire.apis import NAMES
from headrace.wire.message import Message

if TYPE_CHECKING:
    from headrace.broker.core import BrokerCore
    from headrace.broker.security.acls import AccessControl

TOPIC, GROUP = AclResourceType.TOPIC, AclResourceType.GROUP
TRANSACTIONAL_ID = AclResourceType.TRANSACTIONAL_ID
FREE: tuple[Rule, ...] = ()
_READ_GROUP = whole(Op.READ, GROUP, "group_id")
_WRITE_TRANSACTION = whole(Op.WRITE, TRANSACTIONAL_ID, "transactional_id")
_TOPIC_OPERATIONS = special.operations("topics", "name", TOPIC, "topic_authorized_operations")
_GROUP_OPERATIONS = special.operations("groups", "group_id", GROUP, "authorized_operations")
_STATE = (cluster(Op.CLUSTER_ACTION),)

NEEDS: dict[str, tuple[Rule, ...]] = {
    "produce": (special.produce,),
    "fetch": FREE,
    "list_offsets": (each(Op.DESCRIBE, TOPIC, "topics", "name"),),
    "metadata": (
        special.cluster_operations,
        _TOPIC_OPERATIONS,
    ),
    "offset_commit": (_READ_GROUP, each(Op.READ, TOPIC, "topics", "name")),
    "offset_fetch": (special.offset_fetch,),
    "find_coordinator": (special.find_coordinator,),
    "join_group": (_READ_GROUP,),
    "heartbeat": (_READ_GROUP,),
    "leave_group": (_READ_GROUP,),
    "sync_group": (_READ_GROUP,),
    "describe_groups": (
        each(Op.DESCRIBE, GROUP, "groups"),
        _GROUP_OPERATIONS,
    ),
    "list_groups": (special.list_groups,),
    "sasl_handshake": FREE,
    "api_versions": FREE,
    "create_topics": (special.create_topics,),
    "delete_topics": (special.delete_topics,),
    "delete_records": (each(Op.DELETE, TOPIC, "topics", "name"),),
    "init_producer_id": (special.init_producer_id,),
    "offset_for_leader_epoch": (special.offset_for_leader_epoch,),
    "add_partitions_to_txn": (special.add_partitions_to_txn,),
    "add_offsets_to_txn": (_WRITE_TRANSACTION, _READ_GROUP),
    "end_txn": (_WRITE_TRANSACTION,),
    "write_txn_markers": (cluster(Op.ALTER, Op.CLUSTER_ACTION),),
    "txn_offset_commit": (_WRITE_TRANSACTION, _READ_GROUP, each(Op.READ, TOPIC, "topics", "name")),
    "describe_acls": (cluster(Op.DESCRIBE),),
    "create_acls": (cluster(Op.ALTER),),
    "delete_acls": (cluster(Op.ALTER),),
    "describe_configs": (special.configs(Op.DESCRIBE_CONFIGS, "results"),),
    "alter_configs": (special.configs(Op.ALTER_CONFIGS, "responses"),),
    "describe_log_dirs": (special.describe_log_dirs,),
    "sasl_authenticate": FREE,
    "create_partitions": (each(Op.ALTER, TOPIC, "topics", "name", answers="results"),),
    "delete_groups": (each(Op.DELETE, GROUP, "groups_names", answers="results"),),
    "elect_leaders": (cluster(Op.ALTER),),
    "incremental_alter_configs": (special.configs(Op.ALTER_CONFIGS, "responses"),),
    "list_partition_reassignments": (cluster(Op.DESCRIBE),),
    "offset_delete": (whole(Op.DELETE, GROUP, "group_id"), each(Op.READ, TOPIC, "topics", "name")),
    "describe_client_quotas": (cluster(Op.DESCRIBE_CONFIGS),),
    "describe_user_scram_credentials": (cluster(Op.DESCRIBE),),
    "alter_user_scram_credentials": (cluster(Op.ALTER),),
    "describe_quorum": (cluster(Op.DESCRIBE),),
    "update_features": (cluster(Op.ALTER),),
    "describe_cluster": (special.cluster_operations,),
    "describe_producers": (each(Op.READ, TOPIC, "topics", "name"),),
    "describe_transactions": (special.describe_transactions,),
    "list_transactions": (special.list_transactions,),
    "consumer_group_heartbeat": (_READ_GROUP, all_of(Op.DESCRIBE, TOPIC, "subscribed_topic_names")),
    "consumer_group_describe": (
        each(Op.DESCRIBE, GROUP, "group_ids", answers="groups"),
        _GROUP_OPERATIONS,
        special.hide_members,
    ),
    "list_config_resources": (cluster(Op.DESCRIBE_CONFIGS),),
    "describe_topic_partitions": (_TOPIC_OPERATIONS,),
    "share_group_heartbeat": (_READ_GROUP, all_of(Op.DESCRIBE, TOPIC, "subscribed_topic_names")),
    "share_group_describe": (
        each(Op.DESCRIBE, GROUP, "group_ids", answers="groups"),
        _GROUP_OPERATIONS,
        special.hide_members,
    ),
    "share_fetch": (_READ_GROUP,),
    "share_acknowledge": (_READ_GROUP,),
    "initialize_share_group_state": _STATE,
    "read_share_group_state": _STATE,
    "write_share_group_state": _STATE,
    "delete_share_group_state": _STATE,
    "read_share_group_state_summary": _STATE,
    "describe_share_group_offsets": (
        each(Op.DESCRIBE, GROUP, "groups", "group_id"),
        special.describe_share_offsets,
    ),
    "alter_share_group_offsets": (
        _READ_GROUP,
        each(Op.READ, TOPIC, "topics", "topic_name", answers="responses"),
    ),
    "delete_share_group_offsets": (
        whole(Op.DELETE, GROUP, "group_id"),
        each(Op.READ, TOPIC, "topics", "topic_name", answers="responses"),
    ),
}
_BY_KEY = {key: NEEDS[name] for key, name in NAMES.items() if name in NEEDS}
_UNKNOWN = (cluster(Op.CLUSTER_ACTION),)
"""An API that has no row is not open to everybody."""


def authorized(
    core: "BrokerCore", access: "AccessControl", request: Message, call: Call, proceed: Proceed
) -> Answer:
    """The handler's answer to what of the request is allowed, and a refusal of the rest."""
    return run(_BY_KEY.get(request.API_KEY, _UNKNOWN), Asker(core, access, call), request, proceed)
