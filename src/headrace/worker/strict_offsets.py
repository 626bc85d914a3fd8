"""What the group of a task with strict order has committed, and where its partitions begin.

Records complete in any order. What is committed is the lowest offset that is not completed, with the completed ones
beyond it in the metadata (`completed.py`). Commits are sent some times a second, never two at a time. Kafka accepts
them only with the epoch of a member, and refuses those of an earlier one.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Sequence
from typing import Any, TypeVar

from headrace.client.cluster import Cluster
from headrace.client.errors import StaleMemberEpochError, error_for
from headrace.client.plain_fetch import list_offsets
from headrace.wire.enums import OffsetSpec
from headrace.wire.error_groups import COORDINATOR_MOVED, UNKNOWN_TOPIC
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.message import ZERO_UUID
from headrace.wire.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from headrace.wire.messages.offset_commit_response import OffsetCommitResponse
from headrace.wire.messages.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from headrace.wire.messages.offset_fetch_response import OffsetFetchResponse, OffsetFetchResponsePartitions
from headrace.worker.completed import METADATA_CHARS, CompletedOffsets, decode
from headrace.worker.membership import FENCED, WorkerMembership
from headrace.worker.owned import OwnedPartition, SentCommit

logger = logging.getLogger("headrace.worker")

COMMIT_S = 0.1
"""Between two commits: what was completed since the last one may run again after a crash."""
AGAIN_S = 0.5
CHARS_MIN = 64
T = TypeVar("T")


class StrictOffsets:
    """Of the partitions that `owned` returns."""

    def __init__(
        self,
        cluster: Cluster,
        member: WorkerMembership,
        group_id: str,
        topic: str,
        *,
        start_from: str | None,
        owned: Callable[[], Collection[OwnedPartition]],
    ) -> None:
        self._cluster = cluster
        self._member = member
        self._group_id = group_id
        self._topic = topic
        self._starts_at = OffsetSpec.EARLIEST if start_from == "earliest" else OffsetSpec.LATEST
        self._owned = owned
        self.chars = METADATA_CHARS
        """How long the metadata of a commit may be."""
        self._dirty = asyncio.Event()
        self._committing = asyncio.Lock()
        self._committer: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._committer = asyncio.get_running_loop().create_task(self._commit_often())

    async def stop(self) -> None:
        if self._committer is not None:
            self._committer.cancel()
            await asyncio.wait((self._committer,))

    async def insist(self, owned: OwnedPartition, find: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """As often as it takes: who is given up or lost meanwhile is canceled."""
        trouble = ""
        while True:
            try:
                return await find()
            except (KafkaError, OSError, TimeoutError) as error:
                if str(error) != trouble:
                    trouble = str(error)
                    logger.warning("%s: its offsets cannot be read, retrying: %s", owned, error)
                self._member.beat_soon()  # the epoch may be old
                await asyncio.sleep(AGAIN_S)

    async def find_progress(self, owned: OwnedPartition) -> tuple[CompletedOffsets, bool]:
        """What is committed, or where the group begins, and whether that is new."""
        if any(other.partition == owned.partition and other is not owned for other in self._owned()):
            about = f"partition {owned}"  # of the topic before it was deleted and created again
            raise error_for(
                ErrorCode.UNKNOWN_TOPIC_ID,
                "the partition of a deleted topic with this name is in use",
                about=about,
            )
        committed = await self._fetch_committed(owned)
        if committed.committed_offset < 0:
            return CompletedOffsets(await self.find_start(owned)), True
        done = decode(committed.metadata, owned.topic_id, committed.committed_offset)
        if done is None:
            logger.warning(
                "%s: the metadata of the committed offset %d does not match it; all records from that offset are run",
                owned, committed.committed_offset,
            )  # fmt: skip
        return CompletedOffsets(committed.committed_offset, done or ()), False

    async def find_start(self, owned: OwnedPartition) -> int:
        """Where a group begins that has committed nothing."""
        return await self._find(owned, self._starts_at)

    async def find_first(self, owned: OwnedPartition) -> int:
        """Where the log begins."""
        return await self._find(owned, OffsetSpec.EARLIEST)

    async def _find(self, owned: OwnedPartition, spec: int) -> int:
        place = (self._topic, owned.partition)
        return (await list_offsets(self._cluster, {place: spec}))[place]

    async def _fetch_committed(self, owned: OwnedPartition) -> OffsetFetchResponsePartitions:
        asked = OffsetFetchRequestTopics(
            name=self._topic, topic_id=owned.topic_id, partition_indexes=[owned.partition]
        )
        group = OffsetFetchRequestGroup(
            group_id=self._group_id,
            member_id=self._member.member_id,
            member_epoch=self._member.epoch,
            topics=[asked],
        )
        response: OffsetFetchResponse = await self._ask(
            OffsetFetchRequest(groups=[group], require_stable=True)
        )
        answer = response.groups[0]
        found = [each for topic in answer.topics for each in topic.partitions]
        code = answer.error_code or (found[0].error_code if found else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if code:
            self._note_code(code)
            raise error_for(code, about=f"group {self._group_id!r}")
        return found[0]

    def commit_soon(self) -> None:
        self._dirty.set()

    async def _commit_often(self) -> None:
        trouble = ""
        while True:
            await self._dirty.wait()
            self._dirty.clear()
            try:
                await self.commit()
                trouble = ""
                await asyncio.sleep(COMMIT_S)
            except (KafkaError, OSError, TimeoutError) as error:
                if str(error) != trouble:
                    trouble = str(error)
                    level = logging.DEBUG if isinstance(error, StaleMemberEpochError) else logging.WARNING
                    logger.log(level, "group %s: commit failed, retrying: %s", self._group_id, error)
                self._dirty.set()
                await asyncio.sleep(AGAIN_S)

    async def commit(self) -> None:
        """Commits what is not committed, once; raises the first failure. Also waits for one that is under way."""
        async with self._committing:
            begun = [owned.begin_commit(self.chars) for owned in self._owned()]
            sent = [each for each in begun if each is not None]
            if not sent:
                return
            try:
                codes = _codes_of(await self._send_commit(sent))
            except BaseException:
                for each in sent:
                    each.owned.commit_failed()
                raise
            troubles = [self._answered(each, codes) for each in sent]
            for trouble in troubles:
                if trouble is not None:
                    raise trouble

    async def _send_commit(self, sent: Sequence[SentCommit]) -> OffsetCommitResponse:
        by_topic: dict[bytes, list[OffsetCommitRequestPartition]] = {}
        for owned, commit, _ in sent:
            by_topic.setdefault(owned.topic_id, []).append(
                OffsetCommitRequestPartition(
                    partition_index=owned.partition,
                    committed_offset=commit.offset,
                    committed_metadata=commit.metadata,
                )
            )
        request = OffsetCommitRequest(
            group_id=self._group_id,
            generation_id_or_member_epoch=self._member.epoch,
            member_id=self._member.member_id,
            topics=[
                OffsetCommitRequestTopic(name=self._topic, topic_id=topic_id, partitions=each)
                for topic_id, each in by_topic.items()
            ],
        )
        response: OffsetCommitResponse = await self._ask(request)
        return response

    def _answered(self, sent: SentCommit, codes: dict[tuple[bytes, int], int]) -> Exception | None:
        owned, commit, _ = sent
        if owned.is_lost:
            return None
        place = (owned.topic_id, owned.partition)
        code = codes.get(place, codes.get((ZERO_UUID, owned.partition), ErrorCode.UNKNOWN_SERVER_ERROR))
        if not code:
            owned.committed(sent)
            return None
        owned.commit_failed()
        if code in UNKNOWN_TOPIC and owned.is_leaving:  # the topic was deleted
            owned.take_away(error_for(code, about=f"partition {owned}"))
        if code == ErrorCode.OFFSET_METADATA_TOO_LARGE:
            self.chars = len(commit.metadata) // 2 if len(commit.metadata) > CHARS_MIN else 0
            logger.error(
                "group %s: the broker does not accept commit metadata of %d characters. To stay below %d, fewer "
                "records run at a time. Raise the broker's offset.metadata.max.bytes",
                self._group_id, len(commit.metadata), self.chars + 1,
            )  # fmt: skip
        self._note_code(code)
        return error_for(code, about=f"the offset of partition {owned}")

    async def _ask(self, request: Any) -> Any:
        node_id = await self._cluster.coordinator(self._group_id)
        try:
            return await self._cluster.send(node_id, request)
        except (KafkaError, OSError):
            self._cluster.forget_coordinator(self._group_id)
            raise

    def _note_code(self, code: int) -> None:
        if code in COORDINATOR_MOVED:
            self._cluster.forget_coordinator(self._group_id)
        elif code in FENCED:
            self._member.expire("the coordinator has expelled this member")
        elif code == ErrorCode.STALE_MEMBER_EPOCH:
            self._member.beat_soon()


def _codes_of(response: OffsetCommitResponse) -> dict[tuple[bytes, int], int]:
    return {
        (topic.topic_id, each.partition_index): each.error_code
        for topic in response.topics
        for each in topic.partitions
    }
