"""DeleteTopics (20), v1-v6: by name, or from v6 on by name or id.

A topic is gone when its answer is sent; its files follow. With `delete.topic.enable=false` nothing is
deleted: 73, which v1 and v2 do not know and see as 42. The broker's own topics cannot be deleted:
coordinators live in them.
"""

from collections import Counter
from typing import TYPE_CHECKING

from headrace.broker.call import Call
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.message import ZERO_UUID
from headrace.wire.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from headrace.wire.messages.delete_topics_response import DeletableTopicResult, DeleteTopicsResponse

if TYPE_CHECKING:
    from headrace.broker.core import BrokerCore
    from headrace.broker.topics import Topic

VERSIONS = (1, 6)
UNKNOWN_TOPIC = KafkaError(
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition."
)
UNKNOWN_ID = KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID.")


def handle(core: "BrokerCore", request: DeleteTopicsRequest, call: Call) -> DeleteTopicsResponse:
    if not core.settings.bool("delete.topic.enable"):
        if call.api_version < 3:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Topic deletion is disabled.")
        raise KafkaError(ErrorCode.TOPIC_DELETION_DISABLED)
    asked = _asked(request)
    names = Counter(topic.name for topic in asked if topic.name is not None)
    ids = Counter(topic.topic_id for topic in asked if topic.topic_id != ZERO_UUID)
    results: dict[tuple[str | None, bytes], DeletableTopicResult] = {}
    for topic in asked:
        key = (topic.name, topic.topic_id)
        if key not in results:
            results[key] = _attempt(core, topic, names, ids)
    return DeleteTopicsResponse(responses=list(results.values()))


def _asked(request: DeleteTopicsRequest) -> list[DeleteTopicState]:
    return [*request.topics, *(DeleteTopicState(name=name) for name in request.topic_names)]


def _attempt(
    core: "BrokerCore", asked: DeleteTopicState, names: Counter[str], ids: Counter[bytes]
) -> DeletableTopicResult:
    try:
        topic = _find(core, asked, names, ids)
        if topic.is_internal:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"Topic {topic.name} is internal and cannot be deleted."
            )
        core.topics.delete(topic.name)
    except KafkaError as error:
        return DeletableTopicResult(
            name=asked.name, topic_id=asked.topic_id, error_code=error.code, error_message=error.message
        )
    return DeletableTopicResult(name=topic.name, topic_id=topic.id)


def _find(core: "BrokerCore", asked: DeleteTopicState, names: Counter[str], ids: Counter[bytes]) -> "Topic":
    if asked.name is None:
        if asked.topic_id == ZERO_UUID:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Neither topic name nor id were specified.")
        if ids[asked.topic_id] > 1:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic id.")
        topic = core.topics.by_id(asked.topic_id)
        if topic is None:
            raise UNKNOWN_ID
        return topic
    if asked.topic_id != ZERO_UUID:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "You may not specify both topic name and topic id.")
    if names[asked.name] > 1:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
    topic = core.topics.get(asked.name)
    if topic is None:
        raise UNKNOWN_TOPIC
    if ids[topic.id]:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, "The provided topic name maps to an ID that was already supplied."
        )
    return topic


def error_response(
    request: DeleteTopicsRequest, code: ErrorCode, message: str | None, call: Call
) -> DeleteTopicsResponse:
    return DeleteTopicsResponse(
        responses=[
            DeletableTopicResult(
                name=topic.name, topic_id=topic.topic_id, error_code=code, error_message=message
            )
            for topic in _asked(request)
        ]
    )
