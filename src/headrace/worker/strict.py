"""The source of records of a task with `key_order="strict"`: a consumer group in place of a share group.

Theory of operation. Each partition belongs to one member of the group GROUP.TOPIC.strict (KIP-848, `membership.py`), so
the lanes of the scheduler keep the order of a key in the whole group. Records complete in any order; commits say which
have (`strict_offsets.py`). The next owner of a partition reads that, and runs what is left.

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
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any

from headrace.client.admin.aio import AsyncAdmin
from headrace.client.cluster import Cluster
from headrace.client.delivery import AcknowledgeType, Delivery
from headrace.client.errors import AuthorizationError, WakeupError, error_for
from headrace.client.missing_topics import warn_of_missing_topics
from headrace.client.settings import ShareSettings
from headrace.client.tailing import Tail
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.ids import uuid_text
from headrace.worker.membership import WorkerMembership, session_timeout_ms
from headrace.worker.owned import Offsets, OwnedPartition
from headrace.worker.strict_offsets import AGAIN_S, StrictOffsets

logger = logging.getLogger("headrace.worker")

LEAVE_TRIES = 60
"""How often the last commit of a partition that is given up is tried."""
CLOSE_S = 5.0


def strict_group(group_id: str, topic: str) -> str:
    """The consumer group of a task."""
    return f"{group_id}.{topic}.strict"


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
        self._opened, self._revoked = opened, revoked
        self._cluster = Cluster(self._settings)
        self._loop = asyncio.get_running_loop()
        self._arrived = asyncio.Event()
        self._is_woken = self._is_closed = False
        self.has_worked = False
        self._owned: dict[tuple[bytes, int], OwnedPartition] = {}
        self._turns: deque[OwnedPartition] = deque()
        """The same, in the order in which they are asked next."""
        self._work: dict[OwnedPartition, asyncio.Task[None]] = {}
        """What is being done to them: loading, finding a position, giving up."""
        self._member = WorkerMembership(
            self._cluster, self._group_id, topic,
            report=lambda: self._owned.keys(), size=lambda: len(self._owned),
            assigned=self._assigned, lost=self._lost, quiet=quiet,
        )  # fmt: skip
        self._offsets = StrictOffsets(
            self._cluster, self._member, self._group_id, topic,
            start_from=start_from, owned=lambda: self._owned.values(),
        )  # fmt: skip
        self._tail = Tail(self._cluster, self._settings, arrived=self._arrived.set)
        self._new_partition = partial(
            OwnedPartition,
            topic,
            tail=self._tail,
            on_lost=on_lost,
            on_committed=on_committed,
            changed=self._offsets.commit_soon,
        )

    async def open(self) -> None:
        """Joins; raises what makes it impossible."""
        async with AsyncAdmin(self._settings) as admin:
            session_ms = await session_timeout_ms(admin, self._group_id)
        await self._cluster.start([self._topic])
        if self._cluster.topic(self._topic) is None:
            await warn_of_missing_topics(self._cluster, [self._topic], f"group {self._group_id!r}")
        await self._member.start(session_ms)
        self._offsets.start()

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
            for error in self._tail.trouble.values():
                if isinstance(error, AuthorizationError):
                    raise error
            try:
                async with asyncio.timeout_at(deadline_s):
                    await self._arrived.wait()
            except TimeoutError:
                return []

    def _take(self, count: int) -> list[Delivery]:
        taken: list[Delivery] = []
        for _ in range(len(self._turns)):
            self._turns.rotate(-1)
            owned = self._turns[-1]
            while len(taken) < count and (delivery := owned.next(self._offsets.chars)) is not None:
                taken.append(delivery)
            if owned.is_out_of_range and owned not in self._work:
                self._begin(owned, self._find_position(owned))
            if len(taken) == count:
                break  # the next call begins with the next partition
        return taken

    def wakeup(self) -> None:
        self._is_woken = True
        self._arrived.set()

    def acknowledge(self, delivery: Delivery, answer: AcknowledgeType) -> None:
        """The runner's answer. IllegalStateError when the record is not this worker's any more."""
        owned: OwnedPartition = delivery._grant.acquired
        owned.acknowledge(delivery, answer)
        self._arrived.set()  # there may be room for more in the metadata

    def commit_async(self) -> None:
        self._offsets.commit_soon()

    async def commit_sync(self, *, timeout: float) -> None:  # noqa: ASYNC109
        """Commits all that is completed; what was refused, `on_committed` hears when the partition is lost."""
        async with asyncio.timeout(timeout):
            while True:
                try:
                    await self._offsets.commit()
                except (KafkaError, OSError, TimeoutError):
                    await asyncio.sleep(AGAIN_S)
                if not any(owned.is_dirty for owned in self._owned.values()):
                    return

    async def close(self, *, leaves: bool = True) -> None:
        """Without `leaves`, nobody gets the partitions before the session has timed out."""
        self._is_closed = True
        working = list(self._work.values())
        for task in working:
            task.cancel()
        if working:
            await asyncio.wait(working)
        await self._offsets.stop()
        with contextlib.suppress(KafkaError, OSError, TimeoutError):
            async with asyncio.timeout(CLOSE_S):
                await self._offsets.commit()  # of a worker that was not drained
        await self._member.close(leaves=leaves)
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

    def _assigned(self, places: frozenset[tuple[bytes, int]]) -> None:
        for place in places - self._owned.keys():
            owned = self._owned[place] = self._new_partition(*place)
            self._turns.append(owned)
            self._begin(owned, self._load(owned))
        for place in self._owned.keys() - places:
            owned = self._owned[place]
            if not owned.is_leaving:
                owned.leave()
                self._begin(owned, self._leave(owned))

    def _begin(self, owned: OwnedPartition, work: Coroutine[Any, Any, None]) -> None:
        if owned in self._work:
            self._work[owned].cancel()
        task = self._work[owned] = self._loop.create_task(work)
        task.add_done_callback(partial(self._worked, owned))

    def _worked(self, owned: OwnedPartition, task: "asyncio.Task[None]") -> None:
        if self._work.get(owned) is task:
            del self._work[owned]
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("%s: %r", owned, error, exc_info=error)
        self._arrived.set()

    async def _load(self, owned: OwnedPartition) -> None:
        find = partial(self._offsets.find_progress, owned)
        progress, is_new = await self._offsets.insist(owned, find)
        owned.load(progress, is_new=is_new)
        self._opened(owned.partition)
        logger.info("group %s: %s begins at %d", self._group_id, owned, progress.start)

    async def _find_position(self, owned: OwnedPartition) -> None:
        """The log does not have what is to be read next: retention has deleted it, or the log was cut."""
        first = await self._offsets.insist(owned, partial(self._offsets.find_first, owned))
        position = owned.position
        if first > position:
            logger.error(
                "%s: offsets %d to %d were deleted from the log before they were run",
                owned,
                position,
                first - 1,
            )
            owned.skip_to(first)
            return
        start = await self._offsets.insist(owned, partial(self._offsets.find_start, owned))
        logger.error(
            "%s: the log ends before offset %d, so records were lost; continuing at %d",
            owned,
            position,
            start,
        )
        owned.restart(start)

    async def _leave(self, owned: OwnedPartition) -> None:
        """Gives a partition up: what runs ends, what is completed is committed, then the coordinator hears of it."""
        logger.info("group %s: %s is revoked", self._group_id, owned)
        if owned.progress is not None:
            await self._revoked(owned.partition)
        for tries_left in reversed(range(LEAVE_TRIES)):
            try:
                await self._offsets.commit()
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

    def _drop(self, owned: OwnedPartition, error: Exception) -> None:
        del self._owned[owned.topic_id, owned.partition]
        self._turns = deque(each for each in self._turns if each is not owned)
        work = self._work.get(owned)
        if work is not None and work is not asyncio.current_task():
            work.cancel()
        owned.drop(error)
