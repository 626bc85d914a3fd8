"""The source of records of a task with `key_order="strict"`: a consumer group in place of a share group.

Theory of operation. Each partition belongs to one member of the group GROUP.TOPIC.strict (KIP-848, `membership.py`), so
the lanes of the scheduler keep the order of a key in the whole group. Records complete in any order; what is committed
is the lowest offset that is not completed, with the completed ones beyond it in the metadata (`completed.py`). The next
owner of a partition reads both, and runs what is left.

A partition that is to be given up starts nothing any more. When what runs has ended (`revoked` of the runner), it is
committed, and only then does the next heartbeat leave it out: no two members work on it at a time. When everything is
lost (`membership.py` says how), runs are stopped and nothing is committed. Kafka accepts commits only with the epoch of
a member, and refuses those of an earlier one: a worker that wakes up after others have its partitions changes nothing.

The class looks to the runner like a share consumer, and its deliveries like those of one: `accept` and `reject` are the
same here (completed), and a record that is released stays as it is for the next owner of the partition.
"""

import asyncio
import contextlib
import logging
import math
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

from headrace.client.admin.aio import AsyncAdmin
from headrace.client.cluster import Cluster
from headrace.client.core.ranges import RangeState
from headrace.client.delivery import AcknowledgeType, Delivery, Grant, TopicPartition
from headrace.client.errors import (
    AuthorizationError,
    IllegalStateError,
    StaleMemberEpochError,
    WakeupError,
    error_for,
)
from headrace.client.missing_topics import warn_of_missing_topics
from headrace.client.plain_fetch import list_offsets
from headrace.client.settings import ShareSettings
from headrace.client.tailing import Tail, TailPartition
from headrace.wire.enums import OffsetSpec
from headrace.wire.error_groups import COORDINATOR_MOVED, UNKNOWN_TOPIC
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.ids import uuid_text
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
from headrace.wire.records import Record, read_records
from headrace.worker.completed import METADATA_CHARS, CompletedOffsets, OffsetCommit, decode
from headrace.worker.heartbeats import FENCED, session_timeout_ms
from headrace.worker.membership import WorkerMembership

logger = logging.getLogger("headrace.worker")

COMMIT_S = 0.1
"""Between two commits: what was completed since the last one may run again after a crash."""
AGAIN_S = 0.5
LEAVE_TRIES = 60
"""How often the last commit of a partition that is given up is tried."""
CLOSE_S = 5.0
CHARS_MIN = 64
Offsets = Mapping[TopicPartition, set[int]]


def strict_group(group_id: str, topic: str) -> str:
    """The consumer group of a task."""
    return f"{group_id}.{topic}.strict"


class _StrictKeeper:
    """Takes no answers: the function's end is the answer."""

    def acknowledge(self, delivery: Delivery, type: int) -> None:
        raise IllegalStateError(
            f"{delivery!r} cannot be acknowledged by the function of a task with key_order='strict': return, or raise "
            "Retry or Reject"
        )

    def release_later(self, delivery: Delivery, after: float | timedelta) -> None:
        self.acknowledge(delivery, AcknowledgeType.RELEASE)

    def lock_deadline(self, delivery: Delivery) -> float:
        return math.inf


class _Owned:
    """A partition that the coordinator believes this worker to have. Its deliveries see it as what they are from."""

    delivery_count = 1

    def __init__(self, topic: str, topic_id: bytes, index: int) -> None:
        self.topic, self.topic_id, self.partition = topic, topic_id, index
        self.where = TopicPartition(topic, index)
        self.grant = Grant(self, _StrictKeeper())
        self.is_lost = False
        """All of its records are with other workers."""
        self.progress: CompletedOffsets | None = None
        """None until it is loaded."""
        self.tail: TailPartition | None = None
        self.records: deque[Record] = deque()
        """Of the batch that is being handed out."""
        self.records_end: int | None = None
        self.handed: dict[int, Delivery] = {}
        self.answered: set[int] = set()
        """Completed, and not known to be committed."""
        self.is_dirty = False
        self.is_leaving = False
        self.work: asyncio.Task[None] | None = None
        """What is being done to it: loading, finding its position, giving it up."""

    def state_of(self, offset: int) -> RangeState:
        return RangeState.LOST if self.is_lost else RangeState.HANDED

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class _SentCommit(NamedTuple):
    owned: _Owned
    commit: OffsetCommit
    covered: set[int]
    """The records that are committed with it."""


class StrictConsumer:
    """`revoked` returns when nothing of a partition runs, and `quiet` when nothing runs at all."""

    def __init__(
        self,
        given: Mapping[str, Any],
        group_id: str,
        topic: str,
        *,
        start_from: str | None,
        on_lost: Callable[[Sequence[Delivery], Exception], None],
        on_committed: Callable[[Offsets, Exception | None], None],
        opened: Callable[[int], None],
        revoked: Callable[[int], Awaitable[None]],
        quiet: Callable[[], Awaitable[None]],
    ) -> None:
        self._group_id = strict_group(group_id, topic)
        self._settings = ShareSettings.parse({**given, "group.id": self._group_id})
        self._topic = topic
        self._starts_at = OffsetSpec.EARLIEST if start_from == "earliest" else OffsetSpec.LATEST
        self._on_lost, self._on_committed = on_lost, on_committed
        self._opened, self._revoked = opened, revoked
        self._cluster = Cluster(self._settings)
        self._owned: dict[tuple[bytes, int], _Owned] = {}
        self._turns: deque[_Owned] = deque()
        """The same, in the order in which they are asked next."""
        self._member = WorkerMembership(
            self._cluster, self._group_id, topic,
            owned=lambda: self._owned.keys(), assigned=self._assigned, lost=self._lost, quiet=quiet,
        )  # fmt: skip
        self._loop = asyncio.get_running_loop()
        self._tail: Tail | None = None
        self._arrived = asyncio.Event()
        self._is_woken = self._is_closed = False
        self._chars = METADATA_CHARS
        self._dirty = asyncio.Event()
        self._committing = asyncio.Lock()
        self._committer: asyncio.Task[None] | None = None
        self.has_worked = False

    async def open(self) -> None:
        """Joins; raises what makes it impossible."""
        async with AsyncAdmin(self._settings) as admin:
            session_ms = await session_timeout_ms(admin, self._group_id)
        await self._cluster.start([self._topic])
        if self._cluster.topic(self._topic) is None:
            await warn_of_missing_topics(self._cluster, [self._topic], f"group {self._group_id!r}")
        self._tail = Tail(self._cluster, self._settings, arrived=self._arrive)
        await self._member.start(session_ms)
        self._committer = self._loop.create_task(self._commit_often())

    def check(self) -> None:
        """Before anything is started: gives up what may be lost by now."""
        self._member.check()

    async def poll(self, *, timeout: float, max_records: int) -> list[Delivery]:  # noqa: ASYNC109
        """Records that may be run now, of each partition in order; none after `timeout` seconds. WakeupError."""
        deadline_s = self._loop.time() + timeout
        while True:
            if self._is_woken:
                self._is_woken = False
                raise WakeupError("woken up")
            self._arrived.clear()
            self.check()
            if taken := self._take(max_records):
                self.has_worked = True
                return taken
            self._raise_denied()
            try:
                async with asyncio.timeout_at(deadline_s):
                    await self._arrived.wait()
            except TimeoutError:
                return []

    def wakeup(self) -> None:
        self._is_woken = True
        self._arrive()

    def acknowledge(self, delivery: Delivery, answer: AcknowledgeType) -> None:
        """The runner's answer. IllegalStateError when the record is not this worker's any more."""
        offset = delivery.offset
        owned = self._owned.get((delivery._grant.acquired.topic_id, delivery.partition))
        if owned is None or owned.handed.get(offset) is not delivery:
            raise IllegalStateError(f"{delivery!r} was already acknowledged, or its partition was lost")
        del owned.handed[offset]
        if answer is AcknowledgeType.RELEASE:
            self._loop.call_soon(self._on_committed, {owned.where: {offset}}, None)
            return
        assert owned.progress is not None
        owned.progress.finish(offset)
        owned.answered.add(offset)
        owned.is_dirty = True
        self._arrive()  # there may be room for more in the metadata

    def commit_async(self) -> None:
        self._dirty.set()

    async def commit_sync(self, *, timeout: float) -> None:  # noqa: ASYNC109
        """Commits all that is completed; what was refused, `on_committed` hears when the partition is lost."""
        async with asyncio.timeout(timeout):
            while True:
                try:
                    await self._commit()  # also to wait for one that is under way
                except (KafkaError, OSError, TimeoutError):
                    await asyncio.sleep(AGAIN_S)
                if not any(owned.is_dirty for owned in self._owned.values()):
                    return

    async def close(self, *, leaves: bool = True) -> None:
        """Without `leaves`, nobody gets the partitions before the session has timed out."""
        self._is_closed = True
        working = [owned.work for owned in self._owned.values() if owned.work is not None]
        tasks = [task for task in (self._committer, *working) if task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        with contextlib.suppress(KafkaError, OSError, TimeoutError):
            async with asyncio.timeout(CLOSE_S):
                await self._commit()  # of a worker that was not drained
        await self._member.close(leaves=leaves)
        if self._tail is not None:
            await self._tail.close()
        await self._cluster.close()

    @property
    def partitions(self) -> list[int]:
        """Those that this worker has, and that are not to be given up."""
        return [owned.partition for owned in list(self._owned.values()) if not owned.is_leaving]

    @property
    def completed(self) -> dict[str, dict[int, int]]:
        """Of this worker's partitions, by the id of their topic: the offset below which all is completed."""
        found: dict[str, dict[int, int]] = {}
        for owned in self._owned.values():
            if owned.progress is not None:
                found.setdefault(uuid_text(owned.topic_id), {})[owned.partition] = owned.progress.start
        return found

    def open_records(self, bounds: Sequence[tuple[int, int]]) -> int:
        """How many records of logs with these starts and ends are not completed, as far as is known here."""
        by_index = {owned.partition: owned.progress for owned in self._owned.values()}
        count = 0
        for index, (start, end) in enumerate(bounds):
            progress = by_index.get(index)
            count += end - start if progress is None else end - progress.start - progress.beyond
        return count

    # Records

    def _arrive(self) -> None:
        self._arrived.set()

    def _take(self, count: int) -> list[Delivery]:
        taken: list[Delivery] = []
        for _ in range(len(self._turns)):
            self._turns.rotate(-1)
            owned = self._turns[-1]
            while len(taken) < count and (delivery := self._next(owned)) is not None:
                taken.append(delivery)
        return taken

    def _next(self, owned: _Owned) -> Delivery | None:
        progress, tail = owned.progress, owned.tail
        if progress is None or tail is None or owned.is_leaving:
            return None
        while True:
            while owned.records:
                record = owned.records[0]
                if record.offset >= progress.position and not progress.is_done(record.offset):
                    if not progress.may_admit(record.offset, self._chars):
                        return None
                    owned.records.popleft()
                    progress.admit(record.offset)
                    return self._hand_out(owned, record)
                owned.records.popleft()
            if not self._open_part(owned, progress, tail):
                return None

    def _open_part(self, owned: _Owned, progress: CompletedOffsets, tail: TailPartition) -> bool:
        """Turns to the next batch; False when there is none at hand."""
        before = progress.start
        if owned.records_end is not None:
            progress.skip(owned.records_end)
            owned.records_end = None
        if progress.start != before:
            owned.is_dirty = True
            self._dirty.set()
        part = tail.take()
        assert self._tail is not None
        self._tail.look()
        if part is None:
            if tail.is_out_of_range and owned.work is None:
                self._begin(owned, self._find_position(owned))
            return False
        try:
            owned.records = deque(read_records(part.batch) if part.batch is not None else ())
            owned.records_end = part.end
        except KafkaError as error:
            tail.move(progress.position)
            self._tail.failed(tail, error)
        return True

    def _hand_out(self, owned: _Owned, record: Record) -> Delivery:
        delivery = Delivery(
            record.key, record.value, record.offset, record.timestamp, record.headers or (), record.timestamp_type,
            owned.grant,
        )  # fmt: skip
        owned.handed[record.offset] = delivery
        return delivery

    def _raise_denied(self) -> None:
        assert self._tail is not None
        for error in self._tail.trouble.values():
            if isinstance(error, AuthorizationError):
                raise error

    # Partitions come and go

    def _assigned(self, places: frozenset[tuple[bytes, int]]) -> None:
        for place in places - self._owned.keys():
            owned = self._owned[place] = _Owned(self._topic, *place)
            self._turns.append(owned)
            self._begin(owned, self._load(owned))
        for place in self._owned.keys() - places:
            owned = self._owned[place]
            if not owned.is_leaving:
                owned.is_leaving = True
                self._begin(owned, self._leave(owned))

    def _begin(self, owned: _Owned, work: Coroutine[Any, Any, None]) -> None:
        if owned.work is not None:
            owned.work.cancel()
        task = owned.work = self._loop.create_task(work)
        task.add_done_callback(lambda _: self._worked(owned, task))

    def _worked(self, owned: _Owned, task: "asyncio.Task[None]") -> None:
        if owned.work is task:
            owned.work = None
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("%s: %r", owned, error, exc_info=error)
        self._arrive()

    async def _load(self, owned: _Owned) -> None:
        progress, is_new = await self._insist(owned, self._find_progress)
        assert self._tail is not None
        owned.progress = progress
        if is_new:  # so that it begins there even if nothing is ever completed
            owned.is_dirty = True
            self._dirty.set()
        owned.tail = self._tail.follow(self._topic, owned.topic_id, owned.partition, progress.start)
        self._opened(owned.partition)
        logger.info("group %s: %s begins at %d", self._group_id, owned, progress.start)

    async def _insist(self, owned: _Owned, find: "Callable[[_Owned], Coroutine[Any, Any, Any]]") -> Any:
        """As often as it takes: who is given up or lost meanwhile is canceled."""
        trouble = ""
        while True:
            try:
                return await find(owned)
            except (KafkaError, OSError, TimeoutError) as error:
                if str(error) != trouble:
                    trouble = str(error)
                    logger.warning("%s: its offsets cannot be read, retrying: %s", owned, error)
                self._member.beat_soon()  # the epoch may be old
                await asyncio.sleep(AGAIN_S)

    async def _find_progress(self, owned: _Owned) -> tuple[CompletedOffsets, bool]:
        """What is committed, or where the group begins, and whether that is new."""
        if any(other.partition == owned.partition and other is not owned for other in self._owned.values()):
            about = f"partition {owned}"  # of the topic before it was deleted and created again
            raise error_for(
                ErrorCode.UNKNOWN_TOPIC_ID,
                "the partition of a deleted topic with this name is in use",
                about=about,
            )
        committed = await self._fetch_committed(owned)
        if committed.committed_offset < 0:
            return CompletedOffsets(await self._find_offset(owned, self._starts_at)), True
        done = decode(committed.metadata, owned.topic_id, committed.committed_offset)
        if done is None:
            logger.warning(
                "%s: the metadata of the committed offset %d does not match it; all records from that offset are run",
                owned, committed.committed_offset,
            )  # fmt: skip
        return CompletedOffsets(committed.committed_offset, done or ()), False

    async def _fetch_committed(self, owned: _Owned) -> OffsetFetchResponsePartitions:
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

    async def _find_offset(self, owned: _Owned, spec: int) -> int:
        place = (self._topic, owned.partition)
        return (await list_offsets(self._cluster, {place: spec}))[place]

    async def _find_position(self, owned: _Owned) -> None:
        """The log does not have what is to be read next: retention has deleted it, or the log was cut."""
        progress, tail = owned.progress, owned.tail
        assert progress is not None
        assert tail is not None
        first = await self._insist(owned, lambda owned: self._find_offset(owned, OffsetSpec.EARLIEST))
        if first > tail.position:
            logger.error(
                "%s: offsets %d to %d were deleted from the log before they were run",
                owned,
                tail.position,
                first - 1,
            )
            tail.skip_to(first)
            return
        start = await self._insist(owned, lambda owned: self._find_offset(owned, self._starts_at))
        logger.error(
            "%s: the log ends before offset %d, so records were lost; continuing at %d",
            owned,
            tail.position,
            start,
        )
        error = error_for(ErrorCode.OFFSET_OUT_OF_RANGE, about=f"partition {owned}")
        self._take_away(owned, error)
        owned.records.clear()
        owned.records_end = None
        owned.progress = CompletedOffsets(start)
        owned.is_dirty = True
        tail.move(start)

    async def _leave(self, owned: _Owned) -> None:
        """Gives a partition up: what runs ends, what is completed is committed, then the coordinator hears of it."""
        logger.info("group %s: %s is revoked", self._group_id, owned)
        if owned.tail is not None and self._tail is not None:
            self._tail.leave(owned.tail)
        if owned.progress is not None:
            await self._revoked(owned.partition)
        for tries_left in reversed(range(LEAVE_TRIES)):
            try:
                await self._commit()  # also to wait for one that is under way
            except (KafkaError, OSError, TimeoutError) as error:
                if not tries_left:
                    logger.error("%s was revoked without its last commit: %s", owned, error)
            if not owned.is_dirty:
                break
            await asyncio.sleep(AGAIN_S)
        self._drop(
            owned, error_for(ErrorCode.STALE_MEMBER_EPOCH, "it was revoked", about=f"partition {owned}")
        )
        self._member.beat_soon()

    def _lost(self, why: str) -> None:
        if self._owned and not self._is_closed:
            names = ", ".join(map(str, self._owned.values()))
            logger.warning(
                "group %s: %s: partitions were lost, their runs are stopped: %s", self._group_id, names, why
            )
        for owned in list(self._owned.values()):
            error = error_for(ErrorCode.FENCED_MEMBER_EPOCH, why, about=f"partition {owned}")
            self._drop(owned, error)

    def _drop(self, owned: _Owned, error: Exception) -> None:
        del self._owned[owned.topic_id, owned.partition]
        self._turns = deque(each for each in self._turns if each is not owned)
        if owned.work is not None and owned.work is not asyncio.current_task():
            owned.work.cancel()
        if owned.tail is not None and self._tail is not None:
            self._tail.leave(owned.tail)
        owned.is_lost = True
        owned.is_leaving = True
        self._take_away(owned, error)

    def _take_away(self, owned: _Owned, error: Exception) -> None:
        """Its records are not this worker's any more."""
        handed, owned.handed = list(owned.handed.values()), {}
        answered, owned.answered = owned.answered, set()
        owned.is_dirty = False
        if answered:
            self._on_committed({owned.where: answered}, error)
        if handed:
            self._on_lost(handed, error)

    # Commits

    async def _commit_often(self) -> None:
        trouble = ""
        while True:
            await self._dirty.wait()
            self._dirty.clear()
            try:
                await self._commit()
                trouble = ""
                await asyncio.sleep(COMMIT_S)
            except (KafkaError, OSError, TimeoutError) as error:
                if str(error) != trouble:
                    trouble = str(error)
                    level = logging.DEBUG if isinstance(error, StaleMemberEpochError) else logging.WARNING
                    logger.log(level, "group %s: commit failed, retrying: %s", self._group_id, error)
                self._dirty.set()
                await asyncio.sleep(AGAIN_S)

    async def _commit(self) -> None:
        """Commits what is not committed, once; raises the first failure. Never two at a time."""
        async with self._committing:
            sent: list[_SentCommit] = []
            for owned in self._owned.values():
                if owned.is_dirty and owned.progress is not None:
                    owned.is_dirty = False
                    commit = owned.progress.encode(owned.topic_id, self._chars)
                    covered = {offset for offset in owned.answered if offset < commit.end}
                    sent.append(_SentCommit(owned, commit, covered))
            if not sent:
                return
            try:
                codes = _codes_of(await self._send_commit(sent))
            except BaseException:
                for each in sent:
                    each.owned.is_dirty = self._has(each.owned)
                raise
            troubles = [self._answered(each, codes) for each in sent]
            for trouble in troubles:
                if trouble is not None:
                    raise trouble

    async def _send_commit(self, sent: "Sequence[_SentCommit]") -> OffsetCommitResponse:
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

    def _answered(self, sent: "_SentCommit", codes: Mapping[tuple[bytes, int], int]) -> Exception | None:
        owned, commit, covered = sent
        if not self._has(owned):
            return None  # it was lost meanwhile
        place = (owned.topic_id, owned.partition)
        code = codes.get(place, codes.get((ZERO_UUID, owned.partition), ErrorCode.UNKNOWN_SERVER_ERROR))
        if not code:
            owned.answered -= covered
            if covered:
                self._on_committed({owned.where: covered}, None)
            return None
        owned.is_dirty = True
        if code in UNKNOWN_TOPIC and owned.is_leaving:  # the topic was deleted
            self._take_away(owned, error_for(code, about=f"partition {owned}"))
        if code == ErrorCode.OFFSET_METADATA_TOO_LARGE:
            self._chars = len(commit.metadata) // 2 if len(commit.metadata) > CHARS_MIN else 0
            logger.error(
                "group %s: the broker does not accept commit metadata of %d characters. To stay below %d, fewer "
                "records run at a time. Raise the broker's offset.metadata.max.bytes",
                self._group_id, len(commit.metadata), self._chars + 1,
            )  # fmt: skip
        self._note_code(code)
        return error_for(code, about=f"the offset of partition {owned}")

    def _has(self, owned: _Owned) -> bool:
        return self._owned.get((owned.topic_id, owned.partition)) is owned

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
