"""DeleteShareGroupOffsets (92), v0: an empty share group forgets topics. Answered when it is durable.

The next member that reads a forgotten topic begins anew.
"""

from collections.abc import Container
from typing import TYPE_CHECKING

from headrace.broker.call import Call
from headrace.broker.groups.registry import require_group_id
from headrace.broker.groups.share import ShareGroup
from headrace.broker.groups.share_groups import require_empty
from headrace.broker.later import Later, when_all
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages.delete_share_group_offsets_request import DeleteShareGroupOffsetsRequest
from headrace.wire.messages.delete_share_group_offsets_response import (
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)

if TYPE_CHECKING:
    from headrace.broker.core import BrokerCore
    from headrace.broker.topics import Topic

VERSIONS = (0, 0)
NOTHING_TO_DELETE = "There is no offset information to delete."


def handle(
    core: "BrokerCore", request: DeleteShareGroupOffsetsRequest, call: Call
) -> Later[DeleteShareGroupOffsetsResponse]:
    core.features.require_share_groups()
    require_group_id(request.group_id)
    group = core.groups.registry.require_type(request.group_id, ShareGroup, "share")
    require_empty(group)
    left = set(group.rules.initialized)
    written: list[Later[None]] = []
    responses = []
    for asked in request.topics:
        try:
            topic = _require_initialized(core, asked.topic_name, left)
        except KafkaError as error:
            responses.append(
                DeleteShareGroupOffsetsResponseTopic(
                    topic_name=asked.topic_name, error_code=error.code, error_message=error.text
                )
            )
            continue
        written += core.groups.share.forget_state(group, topic.id)
        left.remove(topic.id)
        responses.append(DeleteShareGroupOffsetsResponseTopic(topic_name=topic.name, topic_id=topic.id))
    changes = group.rules.forget_topics(group.rules.initialized.keys() - left)
    if changes:
        written.append(core.groups.share.change(group, changes, core.groups.now()))
    return when_all(written).map(lambda _: DeleteShareGroupOffsetsResponse(responses=responses))


def _require_initialized(core: "BrokerCore", name: str, initialized: Container[bytes]) -> "Topic":
    topic = core.topics.get(name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if topic.id not in initialized:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, NOTHING_TO_DELETE)
    return topic
