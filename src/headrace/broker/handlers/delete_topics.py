"""DeleteTopics (20), v1-v6: by name, or from v6 on by name or id.

A topic is gone for good when its answer is sent; its files follow. With `delete.topic.enable=false` nothing is
deleted: 73, which v1 and v2 do not know and see as 42. The broker's own topics cannot be deleted:
coordinators live in them.
"""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from headrace.broker.call import Call
from headrace.broker.later import Later, when_all
from headrace.broker.slices import Steps
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.message import ZERO_UUID
from headrace.wire.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from headrace.wire.messages.delete_topics_response import DeletableTopicResult, DeleteTopicsResponse

if TYPE_CHECKING:
    from headrace.broker.core import BrokerCore
    from headrace.broker.topics import Topic

VERSIONS = (1, 6)
TAKES_MANY = True
TOPICS_PER_STEP = 100
"""Topics that are deleted in one turn of the loop, in one transaction."""
UNKNOWN_TOPIC = KafkaError(
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition."
)
UNKNOWN_ID = KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID.")


def handle(
    core: "BrokerCore", request: DeleteTopicsRequest, call: Call
) -> DeleteTopicsResponse | Later[DeleteTopicsResponse]:
    if not core.settings.get_bool("delete.topic.enable"):
        if call.api_version < 3:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Topic deletion is disabled.")
        raise KafkaError(ErrorCode.TOPIC_DELETION_DISABLED)
    every = _asked(request)
    names = Counter(topic.name for topic in every if topic.name is not None)
    ids = Counter(topic.topic_id for topic in every if topic.topic_id != ZERO_UUID)
    asked = list({(topic.name, topic.topic_id): topic for topic in every}.values())
    gone: Later[DeleteTopicsResponse] = Later()

    def steps() -> Steps:
        results: list[DeletableTopicResult] = []
        waiting: list[Later[None]] = []
        for begin in range(0, len(asked), TOPICS_PER_STEP):
            if begin:
                yield
            results += _delete_some(core, asked[begin : begin + TOPICS_PER_STEP], names, ids, waiting)
        waiting.append(core.durable(()))
        when_all(waiting).map(lambda _: DeleteTopicsResponse(responses=results)).then(gone.resolve, gone.fail)

    core.slices.run(steps(), gone.fail)
    return gone.value if gone.is_done else gone


def _asked(request: DeleteTopicsRequest) -> list[DeleteTopicState]:
    return [*request.topics, *(DeleteTopicState(name=name) for name in request.topic_names)]


def _delete_some(
    core: "BrokerCore",
    asked: Sequence[DeleteTopicState],
    names: Counter[str],
    ids: Counter[bytes],
    waiting: list[Later[None]],
) -> list[DeletableTopicResult]:
    """In the order they were asked for. Those that can be deleted are deleted together."""
    results: list[DeletableTopicResult] = []
    found: dict[int, Topic] = {}
    for one in asked:
        try:
            topic = _find(core, one, names, ids)
            if topic.is_internal:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST, f"Topic {topic.name} is internal and cannot be deleted."
                )
        except KafkaError as error:
            results.append(_refused(one, error))
            continue
        found[len(results)] = topic
        results.append(DeletableTopicResult(name=topic.name, topic_id=topic.id))
    if not found:
        return results
    try:
        waiting.append(core.topics.delete_all([topic.name for topic in found.values()]))
    except KafkaError as error:
        for index in found:
            results[index] = _refused(asked[index], error)
    return results


def _refused(asked: DeleteTopicState, error: KafkaError) -> DeletableTopicResult:
    return DeletableTopicResult(
        name=asked.name, topic_id=asked.topic_id, error_code=error.code, error_message=error.message
    )


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
