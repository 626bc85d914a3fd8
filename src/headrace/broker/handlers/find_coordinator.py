"""FindCoordinator (10), v0-v6: who coordinates a group, a transactional id or a share-partition. On one node: we do.

v4 and later ask for many keys at once. Key types: 0 group, 1 transaction, and from v6 on 2 share: the key is then
`groupId:topicId:partition`, read from the right because a group id may hold colons.
"""

import base64
import binascii
from typing import TYPE_CHECKING

from headrace.broker.call import Call
from headrace.broker.pieces import CutList
from headrace.broker.topics import CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages.find_coordinator_request import FindCoordinatorRequest
from headrace.wire.messages.find_coordinator_response import Coordinator, FindCoordinatorResponse

if TYPE_CHECKING:
    from headrace.broker.core import BrokerCore

VERSIONS = (0, 6)
CUTS = {4: CutList("coordinator_keys", "coordinators")}
GROUP, TRANSACTION, SHARE = 0, 1, 2
SHARE_SINCE = 6
JOURNALS = {GROUP: CONSUMER_OFFSETS, TRANSACTION: TRANSACTION_STATE, SHARE: SHARE_GROUP_STATE}


def handle(core: "BrokerCore", request: FindCoordinatorRequest, call: Call) -> FindCoordinatorResponse:
    keys = request.coordinator_keys if call.api_version >= 4 else (request.key,)
    found = [_find(core, key, request.key_type, call) for key in keys]
    if call.api_version >= 4:
        return FindCoordinatorResponse(coordinators=found)
    only = found[0]
    return FindCoordinatorResponse(
        error_code=only.error_code,
        # Kafka's name for "no error" stands here; the versions with many keys have an empty message instead.
        error_message=only.error_message or ErrorCode.NONE.name,
        node_id=only.node_id,
        host=only.host,
        port=only.port,
    )


def _find(core: "BrokerCore", key: str, key_type: int, call: Call) -> Coordinator:
    if key_type not in (GROUP, TRANSACTION, SHARE) or (key_type == SHARE and call.api_version < SHARE_SINCE):
        return _refused(key, ErrorCode.INVALID_REQUEST, f"Unknown coordinator type {key_type}.")
    if key_type == SHARE and not _is_share_key(key):
        return _refused(
            key, ErrorCode.INVALID_REQUEST, "A share-partition's key is groupId:topicId:partition."
        )
    if not key and key_type == TRANSACTION:
        return _refused(key, ErrorCode.INVALID_REQUEST, "The transactional id must not be empty.")
    try:
        core.journals.require(JOURNALS[key_type], key)
    except KafkaError as error:
        return _refused(key, error.code, error.message)
    host, port = core.address_of(call.listener)
    return Coordinator(key=key, node_id=core.node_id, host=host, port=port)


def _is_share_key(key: str) -> bool:
    group_id, topic_id, partition = ["", "", *key.rsplit(":", 2)][-3:]
    if not group_id or not partition.isascii() or not partition.isdigit():
        return False
    try:
        return len(topic_id) == 22 and len(base64.urlsafe_b64decode(topic_id + "==")) == 16
    except (binascii.Error, ValueError):
        return False


def _refused(key: str, code: ErrorCode, message: str | None) -> Coordinator:
    return Coordinator(key=key, node_id=-1, host="", port=-1, error_code=code, error_message=message)
