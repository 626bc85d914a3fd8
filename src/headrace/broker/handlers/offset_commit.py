"""OffsetCommit (8), v2-v10: how far a group has read. Answered when it is durable.

Members are checked against their generation or epoch; epoch -1 (administrators, consumers without a group) is
accepted while the group has no members. v2-v4 may ask for a retention of their own, v10 names topics by id.
What is refused as a whole, is for every partition that exists. The records of very many offsets are made in several
turns of the loop, and written in one.
"""

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from headrace.broker.call import Call
from headrace.broker.groups.commits import NO_EXPIRY, commit_entry, committed_offset, group_for_commit
from headrace.broker.groups.records import JournalEntry
from headrace.broker.later import Later, resolved
from headrace.broker.slices import Steps
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages.offset_commit_request import OffsetCommitRequest
from headrace.wire.messages.offset_commit_response import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

if TYPE_CHECKING:
    from headrace.broker.core import BrokerCore
    from headrace.broker.topics import Topic

VERSIONS = (2, 10)
TAKES_MANY = True
TOPIC_IDS_SINCE = 10
GROUP_NOT_FOUND_SINCE = 9
LONG_MAX = 2**63 - 1
OFFSETS_PER_STEP = 1_000
"""Offsets whose records are made in one turn of the loop."""


def handle(core: "BrokerCore", request: OffsetCommitRequest, call: Call) -> Later[OffsetCommitResponse]:
    commit = _Commit(core, request, call)
    later: Later[OffsetCommitResponse] = Later()

    def steps() -> Steps:
        yield from commit.prepare()
        try:
            durable = commit.journal()
        except KafkaError as error:
            later.resolve(commit.respond(error.code))
        else:
            durable.then(lambda _: later.settle(partial(commit.respond, ErrorCode.NONE)), later.fail)

    core.slices.run(steps(), later.fail)
    return later


class _Prepared(NamedTuple):
    place: int
    """Of its topic in the request."""
    topic: "Topic"
    partition: int
    entry: JournalEntry
    encoded: tuple[bytes, bytes | None]


class _Commit:
    """One OffsetCommit under way: an error for each partition that is refused by itself, an entry for each other."""

    def __init__(self, core: "BrokerCore", request: OffsetCommitRequest, call: Call) -> None:
        self._core = core
        self._groups = core.groups
        self._request = request
        self._version = call.api_version
        self._topics = [self._find(topic.name, topic.topic_id) for topic in request.topics]
        self._refused: dict[tuple[int, int], ErrorCode] = {}
        """By the topic's place in the request, and the partition."""
        for place, topic in enumerate(request.topics):
            for partition in topic.partitions:
                code = self._unknown(self._topics[place], partition.partition_index)
                if code is not ErrorCode.NONE:
                    self._refused[place, partition.partition_index] = code
        self._too_large: list[tuple[int, int]] = []
        self._prepared: list[_Prepared] = []

    def _find(self, name: str, topic_id: bytes) -> "Topic | None":
        topics = self._core.topics
        return topics.by_id(topic_id) if self._version >= TOPIC_IDS_SINCE else topics.get(name)

    def _unknown(self, topic: "Topic | None", index: int) -> ErrorCode:
        if topic is None and self._version >= TOPIC_IDS_SINCE:
            return ErrorCode.UNKNOWN_TOPIC_ID
        is_there = topic is not None and 0 <= index < len(topic.partitions)
        return ErrorCode.NONE if is_there else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def prepare(self) -> Steps:
        """Makes the records. Nothing is decided by it: the group may change before they are written."""
        request = self._request
        wall_ms = self._groups.now().wall_ms
        has_expiry = request.retention_time_ms != NO_EXPIRY
        expires_ms = min(wall_ms + request.retention_time_ms, LONG_MAX) if has_expiry else NO_EXPIRY
        metadata_max = self._core.settings.get_int("offset.metadata.max.bytes")
        prepared = 0
        for place, topic in enumerate(request.topics):
            known = self._topics[place]
            for partition in topic.partitions:
                index = partition.partition_index
                if known is None or (place, index) in self._refused:
                    continue
                if prepared and prepared % OFFSETS_PER_STEP == 0:
                    yield
                prepared += 1
                offset = committed_offset(
                    partition,
                    topic_id=known.id,
                    wall_ms=wall_ms,
                    metadata_max=metadata_max,
                    expires_ms=expires_ms,
                )
                if offset is None:
                    self._too_large.append((place, index))
                    continue
                entry = commit_entry(request.group_id, known.name, index, offset)
                self._prepared.append(_Prepared(place, known, index, entry, entry.encode()))
        if prepared > OFFSETS_PER_STEP:
            yield

    def journal(self) -> Later[None]:
        request = self._request
        for place, topic in enumerate(self._topics):
            if topic is not None and self._core.topics.by_id(topic.id) is not topic:
                self._forget(place)  # it was deleted meanwhile
        if len(self._refused) == sum(len(topic.partitions) for topic in request.topics):
            return resolved(None)
        is_newer = self._version >= GROUP_NOT_FOUND_SINCE
        group = group_for_commit(
            self._groups,
            request.group_id,
            request.generation_id_or_member_epoch,
            unknown=ErrorCode.GROUP_ID_NOT_FOUND if is_newer else ErrorCode.ILLEGAL_GENERATION,
        )
        check = group.check_offset_commit(
            member_id=request.member_id,
            instance_id=request.group_instance_id,
            epoch=request.generation_id_or_member_epoch,
            version=self._version,
            is_transactional=False,
        )
        group.note_offset_commit(request.member_id, self._groups.now())
        for place, index in self._too_large:
            self._refused.setdefault((place, index), ErrorCode.OFFSET_METADATA_TOO_LARGE)
        prepared = [one for one in self._prepared if (one.place, one.partition) not in self._refused]
        if check is not None:
            for one in prepared:
                check(one.topic.name, one.topic.id, one.partition)
        if not prepared:
            return resolved(None)
        return self._groups.journal(
            request.group_id, [one.entry for one in prepared], encoded=[one.encoded for one in prepared]
        )

    def _forget(self, place: int) -> None:
        self._topics[place] = None
        for partition in self._request.topics[place].partitions:
            index = partition.partition_index
            self._refused.setdefault((place, index), self._unknown(None, index))

    def respond(self, code: ErrorCode) -> OffsetCommitResponse:
        topics = [
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitResponsePartition(
                        partition_index=partition.partition_index,
                        error_code=self._refused.get((place, partition.partition_index), code),
                    )
                    for partition in topic.partitions
                ],
            )
            for place, topic in enumerate(self._request.topics)
        ]
        return OffsetCommitResponse(topics=topics)
