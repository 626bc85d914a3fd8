"""Metadata (3), v0-v13: the brokers (one) and the topics, by name or, from v12 on, by id.

A name that does not exist is created when both the request (v4+) and `auto.create.topics.enable` allow it. v0 asks for
all topics with an empty list, later versions with null.
"""

from typing import TYPE_CHECKING

from headrace.broker.call import Call
from headrace.broker.pieces import CutList
from headrace.broker.security.acls import is_visible, may_topic
from headrace.broker.topics import CONSUMER_OFFSETS, INTERNAL, TRANSACTION_STATE, check_name
from headrace.wire.acls import CLUSTER_NAME, AclOperation, AclResourceType
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.message import ZERO_UUID
from headrace.wire.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from headrace.wire.messages.metadata_response import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

if TYPE_CHECKING:
    from headrace.broker.core import BrokerCore
    from headrace.broker.topics import Topic

VERSIONS = (0, 13)
CUTS = {0: CutList("topics", "topics", piece_max=100, names=("name", "topic_id"))}
BY_ID_SINCE = 12
NOT_ASKED = -(2**31)
ALL_TOPIC_OPERATIONS = sum(1 << operation for operation in (3, 4, 5, 6, 7, 8, 10, 11))
ALL_CLUSTER_OPERATIONS = sum(1 << operation for operation in (5, 7, 8, 9, 10, 11, 12))


def handle(core: "BrokerCore", request: MetadataRequest, call: Call) -> MetadataResponse:
    if call.api_version < BY_ID_SINCE and any(topic.topic_id != ZERO_UUID for topic in request.topics or ()):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"topic IDs require Metadata v{BY_ID_SINCE} or later")
    wants_all = request.topics is None or (call.api_version == 0 and not request.topics)
    include = request.include_topic_authorized_operations
    if wants_all:
        topics = [
            _describe(core, topic, include) for topic in core.topics if is_visible(core, call, topic.name)
        ]
    else:
        # A topic that is asked for twice is told once.
        asked_once = {(asked.name, asked.topic_id): asked for asked in request.topics or ()}
        topics = [_find(core, asked, request, call) for asked in asked_once.values()]
    host, port = core.address_of(call.listener)
    return MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=core.node_id, host=host, port=port, rack=core.rack)],
        cluster_id=core.cluster_id,
        controller_id=core.node_id,
        topics=topics,
        cluster_authorized_operations=(
            ALL_CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else NOT_ASKED
        ),
    )


def _find(
    core: "BrokerCore", asked: MetadataRequestTopic, request: MetadataRequest, call: Call
) -> MetadataResponseTopic:
    include = request.include_topic_authorized_operations
    if asked.topic_id != ZERO_UUID:
        topic = core.topics.by_id(asked.topic_id)
        code = ErrorCode.UNKNOWN_TOPIC_ID
        if topic is not None:
            if may_topic(core, call, AclOperation.DESCRIBE, topic.name):
                return _describe(core, topic, include)
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return MetadataResponseTopic(error_code=code, name=None, topic_id=asked.topic_id)
    name = asked.name or ""
    may_create = call.api_version < 4 or request.allow_auto_topic_creation
    try:
        if not may_topic(core, call, AclOperation.DESCRIBE, name):
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        topic = core.topics.get(name) or _create(core, name, may_create, call)
    except KafkaError as error:
        is_internal = error.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED and name in INTERNAL
        return MetadataResponseTopic(error_code=error.code, name=name, is_internal=is_internal)
    return _describe(core, topic, include)


def _create(core: "BrokerCore", name: str, may_create: bool, call: Call) -> "Topic":
    may_create = may_create and core.settings.get_bool("auto.create.topics.enable")
    if may_create and not _is_creator(core, name, call):
        raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    check_name(name)
    if not may_create:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if name in (CONSUMER_OFFSETS, TRANSACTION_STATE):
        return core.topics.internal(name)
    if core.topics.is_being_deleted(name):
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return core.topics.create(name, partitions=core.settings.get_int("num.partitions"), configs={})


def _is_creator(core: "BrokerCore", name: str, call: Call) -> bool:
    access = core.access
    return (
        access is None
        or access.may(call, AclOperation.CREATE, AclResourceType.CLUSTER, CLUSTER_NAME)
        or access.allows(call, AclOperation.CREATE, AclResourceType.TOPIC, name)
    )


def _describe(core: "BrokerCore", topic: "Topic", include_operations: bool) -> MetadataResponseTopic:
    leader_epoch = core.logs.store.leader_epoch  # of all logs; asking each would open those not in use
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.id,
        is_internal=topic.is_internal,
        partitions=[
            MetadataResponsePartition(
                partition_index=partition.index,
                leader_id=core.node_id,
                leader_epoch=leader_epoch,
                replica_nodes=[core.node_id],
                isr_nodes=[core.node_id],
            )
            for partition in topic.partitions
        ],
        topic_authorized_operations=ALL_TOPIC_OPERATIONS if include_operations else NOT_ASKED,
    )


def error_response(
    request: MetadataRequest, code: ErrorCode, message: str | None, call: Call
) -> MetadataResponse:
    return MetadataResponse(
        error_code=code,
        topics=[
            MetadataResponseTopic(error_code=code, name=topic.name or "", topic_id=topic.topic_id)
            for topic in request.topics or ()
        ],
    )
