"""AlterShareGroupOffsets (91), v0: where an empty share group shall start anew. Answered when it is durable.

A group that does not exist is made. Partitions that do not exist are refused. Offsets are not checked against the log:
what is below its start is read from there. Many partitions are altered over several turns of the loop, each time as
by a request for these alone: should the group get a member meanwhile, the rest is refused.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headrace.broker.call import Call
from headrace.broker.groups.registry import require_group_id
from headrace.broker.groups.share import ShareGroup
from headrace.broker.groups.share_groups import require_empty
from headrace.broker.later import Later, when_all
from headrace.broker.slices import Steps
from headrace.share.membership import TopicState
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.message import ZERO_UUID
from headrace.wire.messages.alter_share_group_offsets_request import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
)
from headrace.wire.messages.alter_share_group_offsets_response import (
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)
from headrace.wire.share_state import ShareKey

if TYPE_CHECKING:
    from headrace.broker.core import BrokerCore
    from headrace.broker.topics import Topic

VERSIONS = (0, 0)
UNKNOWN = -1
PARTITIONS_PER_STEP = 50
"""Partitions that are altered in one turn of the loop."""


def handle(
    core: "BrokerCore", request: AlterShareGroupOffsetsRequest, call: Call
) -> Later[AlterShareGroupOffsetsResponse]:
    core.features.require_share_groups()
    require_group_id(request.group_id)
    _require_group(core, request.group_id)
    answer: Later[AlterShareGroupOffsetsResponse] = Later()
    alteration = _Alteration(core, request)

    def steps() -> Steps:
        yield from alteration.steps()
        when_all(alteration.written).then(lambda _: answer.settle(alteration.respond), answer.fail)

    core.slices.run(steps(), answer.fail)
    return answer


def _require_group(core: "BrokerCore", group_id: str) -> ShareGroup:
    """The group as it is now, or a new one."""
    group = core.groups.registry.get(group_id)
    if group is None:
        return ShareGroup(group_id, core.topics)
    if not isinstance(group, ShareGroup):
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a share group.")
    require_empty(group)
    return group


Asked = tuple[int, AlterShareGroupOffsetsRequestPartition]
"""With the place of its topic in the request."""


class _Alteration:
    """One request under way."""

    def __init__(self, core: "BrokerCore", request: AlterShareGroupOffsetsRequest) -> None:
        self._core = core
        self._request = request
        self._topics = [core.topics.get(asked.topic_name) for asked in request.topics]
        self._results: list[list[AlterShareGroupOffsetsResponsePartition]] = [[] for _ in request.topics]
        self.written: list[Later[None]] = []

    def steps(self) -> Steps:
        asked = [
            (place, partition)
            for place, topic in enumerate(self._request.topics)
            for partition in topic.partitions
        ]
        for first in range(0, len(asked), PARTITIONS_PER_STEP):
            if first:
                yield
            self._alter(asked[first : first + PARTITIONS_PER_STEP])

    def _alter(self, part: Sequence[Asked]) -> None:
        core, group_id = self._core, self._request.group_id
        try:
            group = _require_group(core, group_id)
        except KafkaError as error:
            for place, asked in part:
                self._results[place].append(_refused(asked.partition_index, error))
            return
        done: dict[int, list[int]] = {}
        for place, asked in part:
            result = _alter_partition(core, group, self._topic(place), asked, self.written)
            self._results[place].append(result)
            if not result.error_code:
                done.setdefault(place, []).append(result.partition_index)
        altered: dict[bytes, TopicState] = {}
        for place, indexes in done.items():
            topic = self._topics[place]
            assert topic is not None
            known = altered[topic.id].partitions if topic.id in altered else ()
            altered[topic.id] = TopicState(topic.name, (*known, *indexes))
            core.share_leader.fence_partitions(group_id, topic.id, frozenset(indexes))
        if altered:
            changes = group.rules.initialize(altered)
            self.written.append(core.groups.share.change(group, changes, core.groups.now()))

    def _topic(self, place: int) -> "Topic | None":
        """None for one that was deleted meanwhile."""
        topic = self._topics[place]
        is_there = topic is not None and self._core.topics.by_id(topic.id) is topic
        return topic if is_there else None

    def respond(self) -> AlterShareGroupOffsetsResponse:
        return AlterShareGroupOffsetsResponse(
            responses=[
                AlterShareGroupOffsetsResponseTopic(
                    topic_name=asked.topic_name,
                    topic_id=topic.id if topic is not None else ZERO_UUID,
                    partitions=results,
                )
                for asked, topic, results in zip(
                    self._request.topics, self._topics, self._results, strict=True
                )
            ]
        )


def _alter_partition(
    core: "BrokerCore",
    group: ShareGroup,
    topic: "Topic | None",
    asked: AlterShareGroupOffsetsRequestPartition,
    written: list[Later[None]],
) -> AlterShareGroupOffsetsResponsePartition:
    index = asked.partition_index
    try:
        if topic is None or not 0 <= index < len(topic.partitions):
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if asked.start_offset < UNKNOWN:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"{asked.start_offset} is not an offset that a partition can start at.",
            )
        key = ShareKey(group.group_id, topic.id, index)
        written.append(core.groups.share.initialize(key, group.rules.epoch, start_offset=asked.start_offset))
    except KafkaError as error:
        return _refused(index, error)
    return AlterShareGroupOffsetsResponsePartition(partition_index=index)


def _refused(index: int, error: KafkaError) -> AlterShareGroupOffsetsResponsePartition:
    return AlterShareGroupOffsetsResponsePartition(
        partition_index=index, error_code=error.code, error_message=error.text
    )
