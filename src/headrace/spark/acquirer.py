"""The share-group member inside the reader's process: acquires ahead, keeps locks, acknowledges.

It lives on a background loop, and so does the ledger: everything here runs on that loop, one step at a time, and the
reader's thread only waits for results. The tasks read the records: Headrace's broker does not send them here, and what
others send is dropped as it arrives. How much is held is bounded by the member's capacity.
"""

import asyncio
import contextlib
import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.client.admin.aio import AsyncAdmin
from headrace.client.admin.results import OffsetSpec
from headrace.client.delivery import AcknowledgeType
from headrace.client.errors import (
    GroupIdNotFoundError,
    InvalidShareSessionEpochError,
    error_for,
    is_retriable,
)
from headrace.client.member import AcquiredRange, Arrival, AsyncShareMember, Lost, Settled, now_ms
from headrace.share.states import FINAL
from headrace.spark.advice import DELIVERIES, RENEWS, WINDOW, advise
from headrace.spark.dead_letters import copy_rejected, require_topic
from headrace.spark.errors import CheckpointError
from headrace.spark.holdings import Holdings
from headrace.spark.options import RECORDS_MAX, SourceOptions
from headrace.spark.outcomes import Outcome
from headrace.spark.runs import Place, Run, RunSet
from headrace.spark.settle import Ledger, Limits, before
from headrace.spark.starting import RESET, start_group
from headrace.spark.window import LOCKS, fit_window
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.ids import uuid_text
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
LOOK_AGAIN_S = 0.1
"""How often a trigger that waits looks for changes that nobody tells it of."""
LOOK_S = 5.0
"""How often the group's start offsets and lag are looked up."""
FIRST_LOOK_S = 0.5
"""And at first, until the lag is known: a short query wants to know it, too."""
LOOKS_PER_STATE = 12
"""And every so many times also the group's state topic, when the journal is not empty."""
IDLE_S = 1.0
"""With Trigger.AvailableNow: a queue that gave nothing for this long, whenever it was asked, is drained."""
JOIN_S_MAX = 60.0
"""And one that gives this member no partition for so long has none for it."""
FIRST_S_MAX = 15.0
"""How long the first trigger waits for the group to give this member partitions."""
OLD_SESSIONS_S = 3.0
STATE_S = 5.0
STATE_AGAIN_MS = 60_000
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


class Acquirer:
    """One member of the group, and what it holds. `start` before anything else, `close` at the end."""

    def __init__(self, options: SourceOptions, ledger: Ledger, *, member_id: str | None) -> None:
        self.ledger = ledger
        self.counts = Counts()
        self.topic_ids: dict[str, str] = {}
        self.reset: Collection[Place] = ()
        """Where the group was reset before we joined: what was known of its records is of no use any more."""
        self._state_epochs: dict[Place, int] = {}
        """Of the group's state, where it can be read. A reset changes it, and needs a group without members."""
        self._state_again_ms: dict[Place, int] = {}
        """When what could not be read is tried again."""
        self.lag: int | None = None
        self.bytes_per_record = 0.0
        self.delivery_limit: int | None = None
        """After so many deliveries the broker gives a record up; None when it does not tell."""
        self.more_s = MORE_S_MAX
        """How long a micro-batch waits for more, while more and more comes."""
        self.window = 0
        """How many records the group may lock at a time, in all partitions together."""
        self._options = options
        self._holdings: Holdings[AcquiredRange] = Holdings()
        self._error: BaseException | None = None
        self.arrived = asyncio.Event()
        """Records have come: for whoever takes them ahead."""
        self._changed = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._trouble_ms = self._last_trouble_ms = 0
        self._arrived_ms = 0
        self._ends: dict[Place, int] | None = None
        per_trigger = min(options.records_per_trigger or RECORDS_HELD, RECORDS_MAX)
        self._capacity = per_trigger + (options.records_held or per_trigger)
        self._admin = AsyncAdmin(options.client)
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

    async def start(self, *, is_new: bool, state_epochs: Mapping[Place, int]) -> None:
        """Joins the group. `is_new`: the query has no checkpoint yet, so startingOffsets counts.

        Acquires nothing before the first `wait`, so not while Spark replays a micro-batch: if that fails again and
        again, each new start would cost the records behind it a delivery, and one that has had all its deliveries is
        given up.
        """
        await self._admin.start()
        await self._look_at_group(is_new=is_new)
        await self._look_for_reset(state_epochs)
        await self._member.start()
        if self._options.dead_letter_topic is not None:
            await require_topic(self._member.cluster, self._options.dead_letter_topic)
        await self._end_old_sessions()
        self._member.configure(is_paused=True)  # until the first `wait`
        self._member.subscribe(self._options.topics)
        self._tasks = [asyncio.create_task(self._acquire()), asyncio.create_task(self._look_after())]

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

    async def close(self) -> None:
        """Lets go of everything that is not acknowledged, and leaves the group."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        with contextlib.suppress(KafkaError, OSError, TimeoutError):
            await self._member.close(timeout_s=CLOSE_S)
        await self._admin.close()

    async def end_offsets(self) -> dict[Place, int]:
        """Where the subscribed topics end now."""
        described = await self._admin.describe_topics(self._options.topics)
        places = [(name, each.partition) for name, topic in described.items() for each in topic.partitions]
        offsets = await self._admin.list_offsets(dict.fromkeys(places, OffsetSpec.LATEST))
        self._ends = {place: found.offset or 0 for place, found in offsets.items()}
        return self._ends

    async def state_epochs(self, places: Collection[Place]) -> dict[Place, int]:
        """Those that are known; what is not is looked up now, and if that fails again some time later."""
        now = now_ms()
        unknown = [
            place
            for place in places
            if place not in self._state_epochs and self._state_again_ms.get(place, now) <= now
        ]
        if unknown:
            self._state_again_ms.update(dict.fromkeys(unknown, now + STATE_AGAIN_MS))
            with contextlib.suppress(GroupIdNotFoundError):
                self._state_epochs.update(await self._read_state_epochs(unknown))
        return {place: self._state_epochs[place] for place in places if place in self._state_epochs}

    async def _read_state_epochs(self, places: Collection[Place]) -> dict[Place, int]:
        """What can be seen."""
        try:
            async with asyncio.timeout(STATE_S):
                states = await self._admin.share_state(self._options.group, places)
        except GroupIdNotFoundError:
            raise  # that is an answer, too
        except (KafkaError, OSError, TimeoutError) as error:
            logger.warning(
                "The state of group %s cannot be read (%s). If the group is reset, give this query a new "
                "checkpointLocation: it would not see it.",
                self._options.group,
                error,
            )
            return {}
        return {place: state.state_epoch for place, state in states.items()}

    async def _look_for_reset(self, epochs: Mapping[Place, int]) -> None:
        """The group was perhaps reset, or deleted, since an offset was logged with these epochs."""
        if not epochs:
            return
        try:
            found = await self._read_state_epochs(epochs)
            self.reset = [place for place, epoch in found.items() if epoch != epochs[place]]
        except GroupIdNotFoundError:
            self.reset = list(epochs)
        if self.reset:
            logger.warning(
                "Group %s was reset since this query ran (%s): what comes again is processed again.",
                self._options.group,
                ", ".join(f"{topic}-{partition}" for topic, partition in sorted(self.reset)),
            )

    async def wait(self, limits: Limits, wait_s: float, wanted: int | None) -> bool:
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
                await self._change(min(left_s, LOOK_AGAIN_S))
            await self._gather(limits, wanted)
            # What comes next is a micro-batch, and then its acknowledgement, which must not wait behind a fetch.
            fetch_wait_ms = 0
            return True
        finally:
            self._member.configure(fetch_wait_ms=fetch_wait_ms)

    async def _gather(self, limits: Limits, wanted: int | None) -> None:
        """Waits as long as more comes, up to what is wanted."""
        until_ms = now_ms() + 1000 * self.more_s
        while not self._has(RECORDS_HELD if wanted is None else wanted, limits):
            if not await self._change(min(MORE_S, (until_ms - now_ms()) / 1000)):
                return

    def _has(self, count: int, limits: Limits) -> bool:
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
                    self._trouble(error)
                else:
                    for arrival in arrivals:
                        self._arrived(arrival)
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            self.fail(error)

    def _trouble(self, error: KafkaError) -> None:
        """Errors that pass, as when a leader moves, are borne for default.api.timeout.ms in a row."""
        if isinstance(error, InvalidShareSessionEpochError):  # it has been borne that long
            raise CheckpointError(
                f"Another reader works in group {self._options.group} under this one's member id {self.member_id}, so "
                "neither gets on: it runs from a copy of this checkpoint. Stop one of them, and give the one that "
                "shall work beside the other a new checkpointLocation."
            ) from error
        patience_ms, now = self._options.client.default_api_timeout_ms, now_ms()
        if self._member.asked_ms >= self._trouble_ms or now - self._last_trouble_ms > patience_ms:
            self._trouble_ms = now
        self._last_trouble_ms = now
        if not is_retriable(error.code) or now - self._trouble_ms > patience_ms:
            raise error
        logger.warning("Share group %s has trouble, and tries again: %s", self._options.group, error)

    def _arrived(self, arrival: Arrival) -> None:
        self._know_topic(arrival.topic, uuid_text(arrival.topic_id))
        place = arrival.topic, arrival.partition
        runs: list[tuple[Place, Run]] = []
        for acquired in arrival.acquired:
            self._holdings.put(place, acquired.first, acquired.last, acquired)
            runs.append((place, Run(acquired.first, acquired.last, acquired.delivery_count)))
        delivered = RunSet.of(runs)
        count = delivered.record_count
        if not count:
            return
        size = arrival.size / count
        self.bytes_per_record = (
            size if not self.bytes_per_record else 0.9 * self.bytes_per_record + 0.1 * size
        )
        again = self.ledger.acquired(delivered)
        self._look_at_ends(delivered)
        self.counts.delivered += count
        self.counts.redelivered += again.record_count
        self._send(again)
        self.arrived.set()
        self._changed.set()

    def _look_at_ends(self, delivered: RunSet) -> None:
        """What lies behind the ends takes no room from what does not, and does not count as an arrival."""
        if self._ends is not None:
            behind = self.ledger.fresh.minus(before(self._ends))
            self._member.configure(capacity=self._capacity + behind.record_count)
            if not delivered.within(before(self._ends)):
                return
        self._arrived_ms = now_ms()

    def _know_topic(self, topic: str, topic_id: str) -> None:
        if self.topic_ids.setdefault(topic, topic_id) == topic_id:
            return
        logger.warning(
            "Topic %s was deleted and made again; nothing of its new records counts as processed.", topic
        )
        self.ledger.forget(topic)
        self._holdings.forget(topic)
        self.topic_ids[topic] = topic_id

    def _settled(self, answers: Sequence[Settled]) -> None:
        confirmed: list[tuple[Place, Run]] = []
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
        lost: list[tuple[Place, Run]] = []
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

    # the group

    async def _look_at_group(self, *, is_new: bool) -> None:
        group = self._options.group
        try:
            entries = await self._admin.group_config(group)
        except KafkaError as error:
            logger.warning(
                "The settings of group %s cannot be read (%s), so they are not checked.", group, error
            )
            entries = {}
        config = {name: entry.value for name, entry in entries.items()}
        limit = config.get(DELIVERIES)
        self.delivery_limit = int(limit) if limit else None
        self._member.configure(auto_renew=config.get(RENEWS) != "false")
        described = await self._admin.describe_topics(self._options.topics)
        wanted = self._options.starting_offsets
        await start_group(
            self._admin, group, described, found=config.get(RESET), wanted=wanted, is_new=is_new
        )
        partitions = sum(len(topic.partitions) for topic in described.values())
        locks = await fit_window(self._admin, self._options, entries.get(WINDOW), partitions=partitions)
        if locks is not None:
            config[WINDOW] = str(locks)
        self.window = partitions * (locks or LOCKS)
        for sentence in advise(config, self._options, partitions=partitions):
            logger.warning("%s", sentence)

    async def _look_after(self) -> None:
        """Finds out what the broker has settled without our seeing the answer, and how much there is to do."""
        looks = 0
        while True:
            try:
                await self._look()
                if self.ledger.processed and looks % LOOKS_PER_STATE == 0:
                    await self._look_at_state()
            except (KafkaError, OSError, TimeoutError) as error:
                logger.debug("How far group %s is cannot be read: %s", self._options.group, error)
            looks += 1
            await asyncio.sleep(FIRST_LOOK_S if self.lag is None and looks < LOOKS_PER_STATE else LOOK_S)

    async def _look(self) -> dict[Place, Any]:
        owed = self.ledger.processed
        offsets = await self._admin.share_group_offsets(self._options.group, list(self._options.topics))
        for place, found in offsets.items():
            if found.start_offset is not None:
                self.ledger.passed(place, found.start_offset)
            if found.lag == 0:
                # Everything is settled there. What entered the journal after the question is not meant.
                self.ledger.confirmed(owed.only([place]))
        lags = [found.lag for found in offsets.values()]
        self.lag = None if None in lags else sum(lag for lag in lags if lag is not None)
        return dict(offsets)

    async def _look_at_state(self) -> None:
        """What `__share_group_state` shows as settled: acknowledgements are written there before they are answered."""
        owed = self.ledger.processed
        states = await self._admin.share_state(self._options.group, owed.places)
        settled = RunSet.of(
            (place, Run(run.first, run.last, 0))
            for place, state in states.items()
            for run in state.runs
            if run.state in FINAL
        )
        self.ledger.confirmed(owed.within(settled))

    async def _is_drained(self, limits: Limits, began_ms: int) -> bool:
        """Nothing below the ends is left for us: all of it is settled, or the brokers have stopped giving us any.

        `began_ms` is when we started to wait: what we did before, such as a release, may still bring records.
        """
        assert limits.ends is not None
        is_settled = False
        with contextlib.suppress(KafkaError):
            offsets = await self._look()
            is_settled = all(_is_settled(offsets.get(place), end) for place, end in limits.ends.items())
        if self.ledger.waiting(limits) or self.ledger.is_taking(limits):
            return False  # records have come while the broker was asked
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
                f"the brokers of its partitions have not answered for {JOIN_S_MAX:g} s",
                about=f"share group {self._options.group!r}",
            )
        return True


def _is_settled(found: Any, end: int) -> bool:
    if end == 0:
        return True
    return found is not None and (
        found.lag == 0 or (found.start_offset is not None and found.start_offset >= end)
    )
