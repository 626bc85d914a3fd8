"""The share-group member inside the reader's process: acquires ahead, keeps locks, acknowledges.

It lives on a background loop, and so does the ledger: everything here runs on that loop, one step at a time, and the
reader's thread only waits for results. The tasks read the records: Headrace's broker does not send them here, and what
others send is dropped as it arrives. How much is held is bounded by the member's capacity.
"""

import asyncio
import contextlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headrace.client.admin.aio import AsyncAdmin
from headrace.client.admin.results import ShareGroupOffset
from headrace.client.delivery import AcknowledgeType
from headrace.client.errors import (
    InvalidShareSessionEpochError,
    error_for,
    is_retriable,
)
from headrace.client.member import AcquiredRange, Arrival, AsyncShareMember, Lost, Settled, now_ms
from headrace.spark.dead_letters import copy_rejected, require_topic
from headrace.spark.errors import CheckpointError
from headrace.spark.group_watch import GroupWatch
from headrace.spark.holdings import HeldSegments
from headrace.spark.offset import StateId
from headrace.spark.options import RECORDS_MAX, SourceOptions
from headrace.spark.outcomes import Outcome
from headrace.spark.runs import Run, RunSet
from headrace.spark.settle import BatchLimits, Ledger, before
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.ids import TopicAndPartition, uuid_text
from headrace.wire.messages.share_acknowledge_request import ShareAcknowledgeRequest

logger = logging.getLogger("headrace.spark")
RECORDS_HELD = 1_000_000
RECORDS_PER_FETCH = 50_000
MORE_S = 0.02
"""How long a micro-batch that is smaller than the last one waits for more: as long as a fetch that finds some."""
MORE_S_MAX = 0.5
"""And how long it does so while more and more comes,"""
MORE_PART = 0.2
"""or this part of the time that the last micro-batch took: else one that was slow once would make all others slow."""
CHECK_AGAIN_S = 0.1
"""How often a trigger that waits checks for changes that nobody tells it of."""
IDLE_S = 1.0
"""With Trigger.AvailableNow: a queue that gave nothing for this long, whenever it was asked, is drained."""
JOIN_S_MAX = 60.0
"""And one that gives this member no partition for so long has none for it."""
FIRST_S_MAX = 15.0
"""How long the first trigger waits for the group to give this member partitions."""
OLD_SESSIONS_S = 3.0
CLOSE_S = 10.0
FINAL_EPOCH = -1
"""The share-session epoch that closes a session."""
_FINAL = (AcknowledgeType.ACCEPT, AcknowledgeType.REJECT)


@dataclass(slots=True)
class Counts:
    """Since the reader started."""

    delivered: int = 0
    redelivered: int = 0
    """Had been processed by this query before: acknowledged again, not processed again."""
    confirmed: int = 0
    refused: int = 0
    lost: int = 0
    released: int = 0
    """What the query itself decided, of micro-batches that Spark has committed."""
    rejected: int = 0


class Acquirer:
    """One member of the group, and what it holds. `start` before anything else, `close` at the end."""

    def __init__(self, options: SourceOptions, ledger: Ledger, *, member_id: str | None) -> None:
        self.ledger = ledger
        self.counts = Counts()
        self.topic_ids: dict[str, str] = {}
        self.has_forgotten = False
        """A topic was made again, and the note of what is accepted ahead may still be about the old one."""
        self.bytes_per_record = 0.0
        self.more_s = MORE_S_MAX
        """How long a micro-batch waits for more, while more and more comes."""
        self._options = options
        self._holdings: HeldSegments[AcquiredRange] = HeldSegments()
        self._error: BaseException | None = None
        self.arrived = asyncio.Event()
        """Records have come: for whoever takes them ahead."""
        self._changed = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._failing_since_ms = self._last_error_ms = 0
        self._arrived_ms = 0
        self._joins = 0
        """After which of our joins it was looked whether the group was reset."""
        self.ends: dict[TopicAndPartition, int] | None = None
        """With Trigger.AvailableNow: only what is before these offsets counts."""
        per_trigger = min(options.records_per_trigger or RECORDS_HELD, RECORDS_MAX)
        self._capacity = per_trigger + (options.records_held or per_trigger)
        self._admin = AsyncAdmin(options.client)
        self.group = GroupWatch(options, ledger, self._admin)
        self._member = AsyncShareMember(
            options.client,
            capacity=self._capacity,
            acquire_only=True,
            member_id=member_id,
            on_settled=self._settled,
            on_lost=self._lost,
        )

    @property
    def member_id(self) -> str:
        return self._member.member_id

    async def start(self, *, is_new: bool, states: Mapping[TopicAndPartition, StateId]) -> None:
        """Joins the group. `is_new`: the query has no checkpoint yet, so startingOffsets counts.

        Acquires nothing before the first `wait`, so not while Spark replays a micro-batch: if that fails again and
        again, each new start would cost the records behind it a delivery, and one that has had all its deliveries is
        given up.
        """
        await self._admin.start()
        await self.group.find_reset(states)  # before `check`, which may make the group again
        await self.group.check(is_new=is_new)
        self._member.configure(auto_renew=self.group.is_renewing)
        await self._member.start()
        if self._options.dead_letter_topic is not None:
            await require_topic(self._member.cluster, self._options.dead_letter_topic)
        await self._end_old_sessions()
        self._member.configure(is_paused=True)  # until the first `wait`
        self._member.subscribe(self._options.topics)
        self._tasks = [asyncio.create_task(self._acquire()), asyncio.create_task(self.group.run())]

    async def _end_old_sessions(self) -> None:
        """Ends what an earlier life under this member id has left at the brokers, which releases its records.

        They would be released when its connections end. But Kafka does not see that while it works on a request of
        such a connection, and once a new session is open the old records stay locked until their time is over.
        """
        cluster = self._member.cluster
        request = ShareAcknowledgeRequest(
            group_id=self._options.group, member_id=self.member_id, share_session_epoch=FINAL_EPOCH, topics=[]
        )
        ends = [asyncio.create_task(cluster.send(node_id, request)) for node_id in list(cluster.nodes)]
        _, late = await asyncio.wait(
            ends, timeout=OLD_SESSIONS_S
        )  # a broker that does not answer is no reason to wait
        for task in late:
            task.cancel()
        await asyncio.gather(*ends, return_exceptions=True)

    async def close(self, *, is_drained: bool = False) -> None:
        """Lets go of everything that is not acknowledged, and leaves the group.

        `is_drained`: the query ends because there is nothing left for it; if others have something, that is told.
        """
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.group.close()
        with contextlib.suppress(KafkaError, OSError, TimeoutError):
            await self._member.close(timeout_s=CLOSE_S)
            if is_drained and self.ends is not None:
                await self.group.tell_what_is_left(self.ends)
        await self._admin.close()

    async def drain(self) -> None:
        """From now on only what is in the subscribed topics now counts."""
        self.ends = await self.group.end_offsets()

    async def wait(self, limits: BatchLimits, wait_s: float, wanted: int | None) -> bool:
        """Until there are records for a micro-batch (True), the time is over, or (with ends) the queue is drained.

        Each micro-batch has a price of its own, so where records come in a stream it waits for as many as are wanted.
        """
        began_ms = now_ms()
        is_first = self._member.is_paused
        fetch_wait_ms = self._options.client.fetch_max_wait_ms
        self._member.configure(is_paused=False)
        try:
            while not self._has(1, limits):
                self.raise_error()
                self._member.configure(fetch_wait_ms=fetch_wait_ms)
                left_s = wait_s - (now_ms() - began_ms) / 1000
                if limits.ends is not None:
                    if await self._is_drained(limits, began_ms):
                        return False
                    left_s = 0.1
                elif is_first and not self._member.asked_ms:
                    # Trigger.Once has only this trigger, and joining a group takes longer than an answer.
                    left_s = FIRST_S_MAX - (now_ms() - began_ms) / 1000
                if left_s <= 0:
                    return False
                await self._change(min(left_s, CHECK_AGAIN_S))
            await self._gather(limits, wanted)
            # What comes next is a micro-batch, and then its acknowledgement, which must not wait behind a fetch.
            fetch_wait_ms = 0
            return True
        finally:
            self._member.configure(fetch_wait_ms=fetch_wait_ms)

    async def _gather(self, limits: BatchLimits, wanted: int | None) -> None:
        """Waits as long as more comes, up to what is wanted."""
        until_ms = now_ms() + 1000 * self.more_s
        while not self._has(RECORDS_HELD if wanted is None else wanted, limits):
            if not await self._change(min(MORE_S, (until_ms - now_ms()) / 1000)):
                return

    def _has(self, count: int, limits: BatchLimits) -> bool:
        """Whether so many records wait for a micro-batch; from now on a change is one to that answer."""
        self._changed.clear()
        return self.ledger.waiting(limits).record_count >= count

    async def _change(self, timeout_s: float) -> bool:
        """Whether something arrived, or failed, within the time."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._changed.wait(), timeout_s)
        return self._changed.is_set()

    def acknowledge(self, owed: RunSet) -> None:
        """Sends what the ledger owes. What is not confirmed in time is in the next offset's journal."""
        self._send(owed)
        self._member.pump()

    async def copy_rejected(self, outcomes: Sequence[Outcome], topic: str) -> None:
        """Dead letters for what was rejected."""
        await copy_rejected(self._member.cluster, outcomes, topic, self._options.group, self.topic_ids)

    def let_go_of_ended_locks(self) -> None:
        """Tells the ledger of locks whose time has run out unnoticed, as after a pause of this process."""
        self._member.pump()

    def tell(self) -> None:
        """Something has changed for whoever waits."""
        self._changed.set()

    def fail(self, error: BaseException) -> None:
        """Ends the query, with the next trigger."""
        logger.error("The share consumer of group %s failed: %s", self._options.group, error)
        self._error = error
        self._changed.set()

    def raise_error(self) -> None:
        if self._error is not None:
            raise self._error

    # the member's news

    async def _acquire(self) -> None:
        try:
            while True:
                try:
                    arrivals = await self._member.take(RECORDS_PER_FETCH, timeout_s=1.0)
                except KafkaError as error:
                    self._tolerate(error)
                else:
                    joins = self._member.core.membership.joins
                    if joins != self._joins:  # the group may have been reset while it had no members
                        await self.group.find_reset()
                        self._joins = joins
                    for arrival in arrivals:
                        self._arrived(arrival)
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            self.fail(error)

    def _tolerate(self, error: KafkaError) -> None:
        """Errors that pass, as when a leader moves, are borne for default.api.timeout.ms in a row."""
        if isinstance(error, InvalidShareSessionEpochError):  # it has been borne that long
            raise CheckpointError(
                f"Another reader in group {self._options.group} has the same member ID {self.member_id}, so neither "
                "can make progress: it runs from a copy of this checkpoint. Stop one of them, or give one of them a "
                "new checkpointLocation."
            ) from error
        timeout_ms, now = self._options.client.default_api_timeout_ms, now_ms()
        if self._member.asked_ms >= self._failing_since_ms or now - self._last_error_ms > timeout_ms:
            self._failing_since_ms = now
        self._last_error_ms = now
        if not is_retriable(error.code) or now - self._failing_since_ms > timeout_ms:
            raise error
        logger.warning("Share group %s: a retriable error, retrying: %s", self._options.group, error)

    def _arrived(self, arrival: Arrival) -> None:
        self._know_topic(arrival.topic, uuid_text(arrival.topic_id))
        place = arrival.topic, arrival.partition
        runs: list[tuple[TopicAndPartition, Run]] = []
        for acquired in arrival.acquired:
            self._holdings.put(place, acquired.first, acquired.last, acquired)
            runs.append((place, Run(acquired.first, acquired.last, acquired.delivery_count)))
        delivered = RunSet.of(runs)
        count = delivered.record_count
        if not count:
            return
        self.group.look_up_states(delivered.places)
        size = arrival.size / count
        self.bytes_per_record = (
            size if not self.bytes_per_record else 0.9 * self.bytes_per_record + 0.1 * size
        )
        again = self.ledger.acquired(delivered)
        self._note_arrival(delivered)
        self.counts.delivered += count
        self.counts.redelivered += again.record_count
        self._send(again)
        self.arrived.set()
        self._changed.set()

    def _note_arrival(self, delivered: RunSet) -> None:
        """What lies behind the ends takes no room from what does not, and does not count as an arrival."""
        if self.ends is not None:
            behind = self.ledger.fresh.minus(before(self.ends))
            self._member.configure(capacity=self._capacity + behind.record_count)
            if not delivered.within(before(self.ends)):
                return
        self._arrived_ms = now_ms()

    def _know_topic(self, topic: str, topic_id: str) -> None:
        if self.topic_ids.setdefault(topic, topic_id) == topic_id:
            return
        logger.warning(
            "Topic %s was deleted and created again; none of its new records counts as processed.", topic
        )
        self.ledger.forget(topic)
        self._holdings.forget(topic)
        self.topic_ids[topic] = topic_id
        self.has_forgotten = True

    def _settled(self, answers: Sequence[Settled]) -> None:
        confirmed: list[tuple[TopicAndPartition, Run]] = []
        for answer in answers:
            topic_id = uuid_text(answer.acquired.topic_id)
            if answer.type not in _FINAL or self.topic_ids.get(answer.acquired.topic) != topic_id:
                continue
            size = answer.last - answer.first + 1
            if answer.error is None:
                self.counts.confirmed += size
                place = answer.acquired.topic, answer.acquired.partition
                confirmed.append((place, Run(answer.first, answer.last, 0)))
            else:
                self.counts.refused += size
        self.ledger.confirmed(RunSet.of(confirmed))

    def _lost(self, losses: Sequence[Lost]) -> None:
        lost: list[tuple[TopicAndPartition, Run]] = []
        for loss in losses:
            place = loss.acquired.topic, loss.acquired.partition
            for first, last, held in self._holdings.take(place, loss.first, loss.last):
                if held is loss.acquired:
                    lost.append((place, Run(first, last, 0)))
                    self.counts.lost += last - first + 1
                else:
                    self._holdings.put(place, first, last, held)  # it has been delivered to us again since
        self.ledger.lost(RunSet.of(lost))

    def _send(self, owed: RunSet) -> None:
        for place, run in owed:
            for first, last, acquired in self._holdings.take(place, run.first, run.last):
                self._member.acknowledge(acquired, run.outcome, first, last)

    async def _is_drained(self, limits: BatchLimits, began_ms: int) -> bool:
        """Nothing below the ends is left for us: all of it is settled, or the brokers have stopped giving us any.

        `began_ms` is when we started to wait: what we did before, such as a release, may still bring records.
        """
        assert limits.ends is not None
        is_settled = False
        with contextlib.suppress(KafkaError):
            offsets = await self.group.refresh_offsets()
            is_settled = all(_is_settled(offsets.get(place), end) for place, end in limits.ends.items())
        if self.ledger.waiting(limits) or self.ledger.is_taking(limits):
            return False  # records have come while the broker was asked
        if self._member.core.membership.joins != self._joins:
            return False  # records may have come, and wait until it is known whether the group was reset
        if is_settled:
            return True
        since_ms = max(began_ms, self._arrived_ms)
        if self._member.idle_ms(since_ms) > 1000 * IDLE_S:
            return True
        if now_ms() - max(since_ms, self._member.asked_ms) < 1000 * JOIN_S_MAX:
            return False
        if self._member.has_partitions:
            raise error_for(
                ErrorCode.REQUEST_TIMED_OUT,
                f"the brokers of its partitions have not responded for {JOIN_S_MAX:g} s",
                about=f"share group {self._options.group!r}",
            )
        return True


def _is_settled(found: ShareGroupOffset | None, end: int) -> bool:
    if end == 0:
        return True
    return found is not None and (
        found.lag == 0 or (found.start_offset is not None and found.start_offset >= end)
    )
