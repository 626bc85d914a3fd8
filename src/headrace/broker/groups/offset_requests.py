"""OffsetCommit, OffsetFetch, OffsetDelete, and commits inside transactions: who may, and each partition's answer."""

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from headrace.broker.call import Call
from headrace.broker.groups import records
from headrace.broker.groups.classic import ClassicGroup
from headrace.broker.groups.offsets import CommittedOffset
from headrace.broker.groups.records import JournalEntry
from headrace.broker.groups.registry import CommitCheck, Group
from headrace.broker.later import Later, resolved
from headrace.broker.producer import ProducerIdAndEpoch
from headrace.broker.slices import Steps
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.message import ZERO_UUID
from headrace.wire.messages.offset_commit_request import OffsetCommitRequest, OffsetCommitRequestPartition
from headrace.wire.messages.offset_commit_response import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from headrace.wire.messages.offset_delete_request import OffsetDeleteRequest, OffsetDeleteRequestTopic
from headrace.wire.messages.offset_delete_response import (
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from headrace.wire.messages.offset_fetch_request import OffsetFetchRequestGroup, OffsetFetchRequestTopics
from headrace.wire.messages.offset_fetch_response import (
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from headrace.wire.messages.txn_offset_commit_request import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from headrace.wire.messages.txn_offset_commit_response import (
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

if TYPE_CHECKING:
    from headrace.broker.groups.coordinator import GroupCoordinator
    from headrace.broker.topics import Topic

TOPIC_IDS_SINCE = 10
GROUP_NOT_FOUND_SINCE = 9
NO_OFFSET = -1
NO_EXPIRY = -1
LONG_MAX = 2**63 - 1
OFFSETS_PER_STEP = 1_000
"""Offsets whose records are made in one turn of the loop."""


class OffsetRequests:
    def __init__(self, coordinator: "GroupCoordinator") -> None:
        self._coordinator = coordinator
        self._registry = coordinator.state.registry
        self._store = coordinator.state.offsets
        self._topics = coordinator.core.topics

    def commit(self, request: OffsetCommitRequest, call: Call) -> Later[OffsetCommitResponse]:
        """Answers when the offsets are durable. What is refused as a whole, is for every partition that exists.

        The records of very many offsets are made in several turns of the loop, and written in one.
        """
        commit = _Commit(self, request, call)
        answer: Later[OffsetCommitResponse] = Later()

        def steps() -> Steps:
            yield from commit.prepare()
            try:
                durable = commit.journal()
            except KafkaError as error:
                answer.resolve(commit.respond(error.code))
            else:
                durable.then(lambda _: answer.settle(partial(commit.respond, ErrorCode.NONE)), answer.fail)

        self._coordinator.core.slices.run(steps(), answer.fail)
        return answer

    def group_for_commit(self, group_id: str, epoch: int, *, unknown: ErrorCode) -> Group:
        group = self._registry.get(group_id)
        if group is not None:
            return group
        if epoch >= 0:
            raise KafkaError(unknown, f"Group {group_id} not found.")
        return ClassicGroup(
            group_id, self._coordinator.state.classic_limits
        )  # a simple one: its offsets will make it

    def committed(
        self,
        partition: OffsetCommitRequestPartition | TxnOffsetCommitRequestPartition,
        *,
        topic_id: bytes,
        wall_ms: int,
        expires_ms: int = NO_EXPIRY,
    ) -> CommittedOffset | None:
        """None: its metadata is longer than `offset.metadata.max.bytes`."""
        metadata = partition.committed_metadata or ""
        if len(metadata) > self._coordinator.core.settings.int("offset.metadata.max.bytes"):
            return None
        return CommittedOffset(
            offset=partition.committed_offset,
            leader_epoch=partition.committed_leader_epoch,
            metadata=metadata,
            committed_ms=wall_ms,
            expires_ms=expires_ms,
            topic_id=topic_id,
        )

    def commit_in_transaction(
        self, request: TxnOffsetCommitRequest, call: Call
    ) -> Later[TxnOffsetCommitResponse]:
        """The topics and the transaction have been checked. Raises KafkaError for the request as a whole."""
        group_id = request.group_id
        group = self.group_for_commit(group_id, request.generation_id, unknown=ErrorCode.ILLEGAL_GENERATION)
        entries: list[JournalEntry] = []
        try:
            check = group.check_offset_commit(
                member_id=request.member_id,
                instance_id=request.group_instance_id,
                epoch=request.generation_id,
                version=call.api_version,
                is_transactional=True,
            )
            topics = [self._commit_topic(group_id, topic, check, entries) for topic in request.topics]
        except KafkaError as error:
            if error.code is ErrorCode.STALE_MEMBER_EPOCH:  # producers know generations only
                raise KafkaError(ErrorCode.ILLEGAL_GENERATION, error.message) from None
            raise
        response = TxnOffsetCommitResponse(topics=topics)
        if not entries:
            return resolved(response)
        producer = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
        return self._coordinator.journal(group_id, entries, producer=producer).map(lambda _: response)

    def _commit_topic(
        self,
        group_id: str,
        topic: TxnOffsetCommitRequestTopic,
        check: CommitCheck | None,
        entries: list[JournalEntry],
    ) -> TxnOffsetCommitResponseTopic:
        topic_id = self._id_of(topic.name)
        wall_ms = self._coordinator.now().wall_ms
        partitions = []
        for partition in topic.partitions:
            index = partition.partition_index
            offset = self.committed(partition, topic_id=topic_id, wall_ms=wall_ms)
            code = ErrorCode.OFFSET_METADATA_TOO_LARGE if offset is None else ErrorCode.NONE
            if offset is not None:
                if check is not None:
                    check(topic.name, topic_id, index)
                entries.append(_entry(group_id, topic.name, index, offset))
            partitions.append(TxnOffsetCommitResponsePartition(partition_index=index, error_code=code))
        return TxnOffsetCommitResponseTopic(name=topic.name, partitions=partitions)

    def fetch(
        self, asked: OffsetFetchRequestGroup, *, require_stable: bool, with_topic_ids: bool
    ) -> OffsetFetchResponseGroup:
        """One group's offsets: of the topics asked for, or all that it has."""
        group_id = asked.group_id
        try:
            group = self._registry.get(group_id)
            if group is not None:
                group.check_offset_fetch(member_id=asked.member_id, epoch=asked.member_epoch)
        except KafkaError as error:
            return OffsetFetchResponseGroup(group_id=group_id, error_code=error.code)
        if asked.topics is None:
            topics = [*self._fetch_all(group_id, require_stable, with_topic_ids)]
        else:
            topics = [
                self._fetch_topic(group_id, topic, require_stable, with_topic_ids) for topic in asked.topics
            ]
        return OffsetFetchResponseGroup(group_id=group_id, topics=topics)

    def _fetch_all(
        self, group_id: str, require_stable: bool, with_topic_ids: bool
    ) -> Iterator[OffsetFetchResponseTopics]:
        for name, offsets in self._store.of_group(group_id):
            topic_id = self._id_of(name)
            if with_topic_ids and topic_id == ZERO_UUID:
                continue
            indexes = sorted(index for index, committed in offsets.items() if committed.is_of(topic_id))
            yield OffsetFetchResponseTopics(
                name=name,
                topic_id=topic_id,
                partitions=[
                    self._fetched(group_id, name, topic_id, index, require_stable) for index in indexes
                ],
            )

    def _fetch_topic(
        self, group_id: str, asked: OffsetFetchRequestTopics, require_stable: bool, with_topic_ids: bool
    ) -> OffsetFetchResponseTopics:
        known = self._topics.by_id(asked.topic_id) if with_topic_ids else None
        if with_topic_ids and known is None:
            unknown = [_no_offset(index, ErrorCode.UNKNOWN_TOPIC_ID) for index in asked.partition_indexes]
            return OffsetFetchResponseTopics(topic_id=asked.topic_id, partitions=unknown)
        name = known.name if known is not None else asked.name
        topic_id = self._id_of(name)
        return OffsetFetchResponseTopics(
            name=name,
            topic_id=topic_id,
            partitions=[
                self._fetched(group_id, name, topic_id, index, require_stable)
                for index in asked.partition_indexes
            ],
        )

    def _id_of(self, topic: str) -> bytes:
        known = self._topics.get(topic)
        return known.id if known is not None else ZERO_UUID

    def _fetched(
        self, group_id: str, topic: str, topic_id: bytes, index: int, require_stable: bool
    ) -> OffsetFetchResponsePartitions:
        if require_stable and self._store.is_pending(group_id, topic, index):
            return _no_offset(index, ErrorCode.UNSTABLE_OFFSET_COMMIT)
        committed = self._store.get(group_id, topic, index)
        # An offset of a topic that had this name before may be left until the next start if the disk was full when
        # that topic was deleted.
        if committed is None or not committed.is_of(topic_id):
            return _no_offset(index, ErrorCode.NONE)
        return OffsetFetchResponsePartitions(
            partition_index=index,
            committed_offset=committed.offset,
            committed_leader_epoch=committed.leader_epoch,
            metadata=committed.metadata,
        )

    def delete(self, request: OffsetDeleteRequest) -> Later[OffsetDeleteResponse]:
        """Of topics that nobody in the group reads. Answers when the offsets are gone for good."""
        if not request.group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID)
        group = self._registry.require(request.group_id)
        group.check_offset_delete()
        entries: list[JournalEntry] = []
        topics = [
            OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetDeleteResponsePartition(
                        partition_index=partition.partition_index,
                        error_code=self._delete_one(group, topic, partition.partition_index, entries),
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
        response = OffsetDeleteResponse(topics=topics)
        if not entries:
            return resolved(response)
        return self._coordinator.journal(request.group_id, entries).map(lambda _: response)

    def _delete_one(
        self, group: Group, topic: OffsetDeleteRequestTopic, index: int, entries: list[JournalEntry]
    ) -> ErrorCode:
        known = self._topics.get(topic.name)
        if known is None or not 0 <= index < len(known.partitions):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if group.is_subscribed_to(topic.name):
            return ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        is_there = self._store.get(group.group_id, topic.name, index) is not None
        if is_there or self._store.is_pending(group.group_id, topic.name, index):
            entries.append(records.offset_commit(group.group_id, topic.name, index, None))
        return ErrorCode.NONE


class _Prepared(NamedTuple):
    place: int
    """Of its topic in the request."""
    topic: "Topic"
    partition: int
    entry: JournalEntry
    encoded: tuple[bytes, bytes | None]


class _Commit:
    """One OffsetCommit under way: an error for each partition that is refused by itself, an entry for each other."""

    def __init__(self, requests: OffsetRequests, request: OffsetCommitRequest, call: Call) -> None:
        self._requests = requests
        self._coordinator = requests._coordinator
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
        topics = self._coordinator.core.topics
        return topics.by_id(topic_id) if self._version >= TOPIC_IDS_SINCE else topics.get(name)

    def _unknown(self, topic: "Topic | None", index: int) -> ErrorCode:
        if topic is None and self._version >= TOPIC_IDS_SINCE:
            return ErrorCode.UNKNOWN_TOPIC_ID
        is_there = topic is not None and 0 <= index < len(topic.partitions)
        return ErrorCode.NONE if is_there else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def prepare(self) -> Steps:
        """Makes the records. Nothing is decided by it: the group may change before they are written."""
        request = self._request
        wall_ms = self._coordinator.now().wall_ms
        has_expiry = request.retention_time_ms != NO_EXPIRY
        expires_ms = min(wall_ms + request.retention_time_ms, LONG_MAX) if has_expiry else NO_EXPIRY
        looked_at = 0
        for place, topic in enumerate(request.topics):
            known = self._topics[place]
            for partition in topic.partitions:
                index = partition.partition_index
                if known is None or (place, index) in self._refused:
                    continue
                if looked_at and looked_at % OFFSETS_PER_STEP == 0:
                    yield
                looked_at += 1
                offset = self._requests.committed(
                    partition, topic_id=known.id, wall_ms=wall_ms, expires_ms=expires_ms
                )
                if offset is None:
                    self._too_large.append((place, index))
                    continue
                entry = _entry(request.group_id, known.name, index, offset)
                self._prepared.append(_Prepared(place, known, index, entry, entry.encode()))
        if looked_at > OFFSETS_PER_STEP:
            yield

    def journal(self) -> Later[None]:
        request = self._request
        for place, topic in enumerate(self._topics):
            if topic is not None and self._coordinator.core.topics.by_id(topic.id) is not topic:
                self._forget(place)  # it was deleted meanwhile
        if len(self._refused) == sum(len(topic.partitions) for topic in request.topics):
            return resolved(None)
        is_newer = self._version >= GROUP_NOT_FOUND_SINCE
        group = self._requests.group_for_commit(
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
        group.note_offset_commit(request.member_id, self._coordinator.now())
        for place, index in self._too_large:
            self._refused.setdefault((place, index), ErrorCode.OFFSET_METADATA_TOO_LARGE)
        prepared = [one for one in self._prepared if (one.place, one.partition) not in self._refused]
        if check is not None:
            for one in prepared:
                check(one.topic.name, one.topic.id, one.partition)
        if not prepared:
            return resolved(None)
        return self._coordinator.journal(
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


def _entry(group_id: str, topic: str, partition: int, committed: CommittedOffset) -> JournalEntry:
    return records.offset_commit(group_id, topic, partition, committed.as_record())


def _no_offset(index: int, code: ErrorCode) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(partition_index=index, committed_offset=NO_OFFSET, error_code=code)
