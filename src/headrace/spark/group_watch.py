"""What the source must know of its group beside the records: settings, resets, how far the group is.

It runs on the reader's background loop and asks through the admin client. What the brokers show as settled without our
having seen the response is told to the ledger.
"""

import asyncio
import contextlib
import logging
from collections.abc import Collection, Mapping

from headrace.client.admin.aio import AsyncAdmin
from headrace.client.admin.results import ShareGroupOffset
from headrace.client.errors import GroupIdNotFoundError
from headrace.client.member import now_ms
from headrace.share.states import FINAL
from headrace.share.view import SharePartitionState
from headrace.spark.advice import DELIVERIES, RENEWS, WINDOW, advise
from headrace.spark.offset import StateId
from headrace.spark.options import SourceOptions
from headrace.spark.runs import Run, RunSet
from headrace.spark.settle import Ledger
from headrace.spark.starting import RESET, start_group
from headrace.spark.window import LOCKS, fit_window
from headrace.wire.enums import OffsetSpec
from headrace.wire.errors import KafkaError
from headrace.wire.ids import TopicAndPartition

logger = logging.getLogger("headrace.spark")
POLL_S = 5.0
"""How often the group's start offsets and lag are read."""
FIRST_POLL_S = 0.5
"""And at first, until the lag is known: a short query wants to know it, too."""
OFFSET_POLLS_PER_STATE_READ = 12
"""And every so many times also the group's state topic, when the journal is not empty."""
STATE_S = 5.0
STATE_AGAIN_MS = 60_000


class GroupWatch:
    def __init__(self, options: SourceOptions, ledger: Ledger, admin: AsyncAdmin) -> None:
        self._options = options
        self._ledger = ledger
        self._admin = admin
        self._states: dict[TopicAndPartition, StateId] = {}
        """Which states of the group the ledger is about, as far as is known. A reset needs a group without members."""
        self._state_again_ms: dict[TopicAndPartition, int] = {}
        """When what could not be read is tried again."""
        self._lookups: set[asyncio.Task[None]] = set()
        """Of states, under way."""
        self.lag: int | None = None
        self.delivery_limit: int | None = None
        """After so many deliveries the broker gives a record up; None when it does not tell."""
        self.is_renewing = True
        """Whether the group lets members renew locks."""
        self.window = 0
        """How many records the group may lock at a time, in all partitions together."""

    def look_up_states(self, places: Collection[TopicAndPartition]) -> None:
        """Begins to read the states that are unknown; what could not be read is tried again some time later.

        It takes several requests one after the other, so it begins when the first records of a partition arrive.
        """
        now = now_ms()
        unknown = [
            place
            for place in places
            if place not in self._states and self._state_again_ms.get(place, now) <= now
        ]
        if unknown:
            self._state_again_ms.update(dict.fromkeys(unknown, now + STATE_AGAIN_MS))
            lookup = asyncio.create_task(self._look_up_states(unknown))
            self._lookups.add(lookup)
            lookup.add_done_callback(self._lookups.discard)

    async def states(self, places: Collection[TopicAndPartition]) -> dict[TopicAndPartition, StateId]:
        """Those that are known, when what is looked up now has been found or not."""
        self.look_up_states(places)
        if self._lookups:
            await asyncio.gather(*self._lookups)
        return {place: self._states[place] for place in places if place in self._states}

    async def _look_up_states(self, places: Collection[TopicAndPartition]) -> None:
        with contextlib.suppress(GroupIdNotFoundError):
            self._states.update(await self._read_states(places))

    async def close(self) -> None:
        """Ends what is looked up for nobody any more."""
        for lookup in self._lookups:
            lookup.cancel()
        await asyncio.gather(*self._lookups, return_exceptions=True)

    async def _read_states(self, places: Collection[TopicAndPartition]) -> dict[TopicAndPartition, StateId]:
        """What can be seen."""
        try:
            async with asyncio.timeout(STATE_S):
                states = await self._admin.share_state(self._options.group, places)
        except GroupIdNotFoundError:
            raise  # that is an answer, too
        except (KafkaError, OSError, TimeoutError) as error:
            logger.warning(
                "The state of group %s cannot be read (%s). If the group is reset, give this query a new "
                "checkpointLocation, because it cannot detect the reset.",
                self._options.group,
                error,
            )
            return {}
        return {place: _id_of(state) for place, state in states.items()}

    async def find_reset(self, logged: Mapping[TopicAndPartition, StateId] | None = None) -> None:
        """The group was perhaps reset, or deleted, since an offset was `logged`, or since we looked last.

        Where that cannot be seen now, the next look compares with the same states.
        """
        self._states.update(logged or {})
        known = dict(self._states)
        if not known:
            return
        try:
            found = await self._read_states(known)
            reset = [place for place, state in found.items() if not state.may_continue(known[place])]
            self._states.update(found)
        except GroupIdNotFoundError:
            reset = list(known)
            self._states.clear()
        if reset:
            self._ledger.reset(reset)
            logger.warning(
                "Group %s was reset since this query ran (%s): records that are delivered again are processed again.",
                self._options.group,
                ", ".join(f"{topic}-{partition}" for topic, partition in sorted(reset)),
            )

    async def check(self, *, is_new: bool) -> None:
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
        self.is_renewing = config.get(RENEWS) != "false"
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

    async def run(self) -> None:
        """Finds out what the broker has settled without our seeing the response, and how much there is to do."""
        polls = 0
        while True:
            try:
                await self.refresh_offsets()
                if self._ledger.processed and polls % OFFSET_POLLS_PER_STATE_READ == 0:
                    await self.refresh_state()
            except (KafkaError, OSError, TimeoutError) as error:
                logger.debug("The position of group %s cannot be read: %s", self._options.group, error)
            polls += 1
            await asyncio.sleep(
                FIRST_POLL_S if self.lag is None and polls < OFFSET_POLLS_PER_STATE_READ else POLL_S
            )

    async def refresh_offsets(self) -> dict[TopicAndPartition, ShareGroupOffset]:
        owed = self._ledger.processed
        offsets = await self._admin.share_group_offsets(self._options.group, list(self._options.topics))
        for place, found in offsets.items():
            if found.start_offset is not None:
                self._ledger.passed(place, found.start_offset)
            if found.lag == 0:
                # Everything is settled there. What entered the journal after the question is not meant.
                self._ledger.confirmed(owed.only([place]))
        lags = [found.lag for found in offsets.values()]
        self.lag = None if None in lags else sum(lag for lag in lags if lag is not None)
        return offsets

    async def refresh_state(self) -> None:
        """What `__share_group_state` shows as settled: acknowledgements are there before their response."""
        owed = self._ledger.processed
        states = await self._admin.share_state(self._options.group, owed.places)
        settled = RunSet.of(
            (place, Run(run.first, run.last, 0))
            for place, state in states.items()
            for run in state.runs
            if run.state in FINAL
        )
        self._ledger.confirmed(owed.within(settled))
        for place, state in states.items():
            if place in self._states and _id_of(state).may_continue(self._states[place]):
                self._states[place] = _id_of(state)

    async def tell_what_is_left(self, ends: Mapping[TopicAndPartition, int]) -> None:
        """When the query has left the group: what it had to process and did not get, and why."""
        group = self._options.group
        left = await self._left_below(ends)
        if not left:
            return
        shown = ", ".join(
            f"{topic}-{partition}: {count}" for (topic, partition), count in sorted(left.items())
        )
        members = (await self._admin.describe_share_group(group)).members
        others = ", ".join(sorted(member.client_id or member.member_id for member in members))
        logger.warning(
            "Trigger.AvailableNow ends, and %d records of group %s that were there when it started are not settled "
            "(%s): the brokers had no more for this query. %s `headrace explain TOPIC/PARTITION/OFFSET --group %s` "
            "says why a record is not delivered. Start the query again when they are available.",
            *(sum(left.values()), group, shown),
            f"The group has other members ({others}), which hold them or have their partitions."
            if others
            else "They are locked by a member that is gone, until their locks expire, or wait for an open transaction.",
            group,
        )

    async def _left_below(self, ends: Mapping[TopicAndPartition, int]) -> dict[TopicAndPartition, int]:
        found = await self._admin.share_group_offsets(self._options.group, list(self._options.topics))
        untouched = [place for place, end in ends.items() if end and _start_of(found.get(place)) is None]
        starts = (
            await self._admin.list_offsets(dict.fromkeys(untouched, OffsetSpec.EARLIEST)) if untouched else {}
        )
        left: dict[TopicAndPartition, int] = {}
        for place, end in ends.items():
            known = found.get(place)
            if place in starts:
                left[place] = end - (starts[place].offset or 0)
            elif known is not None and known.lag is not None:
                left[place] = known.lag - max(0, (known.end_offset or end) - end)
        return {place: count for place, count in left.items() if count > 0}

    async def end_offsets(self) -> dict[TopicAndPartition, int]:
        """Where the subscribed topics end now."""
        described = await self._admin.describe_topics(self._options.topics)
        places = [(name, each.partition) for name, topic in described.items() for each in topic.partitions]
        offsets = await self._admin.list_offsets(dict.fromkeys(places, OffsetSpec.LATEST))
        return {place: found.offset or 0 for place, found in offsets.items()}


def _id_of(state: SharePartitionState) -> StateId:
    if state.created_ms is None or state.snapshot_ms is None:
        return StateId(state.state_epoch)
    snapshot = state.snapshot_epoch, state.created_ms
    return StateId(state.state_epoch, snapshot, keeps_time=state.created_ms < state.snapshot_ms)


def _start_of(found: ShareGroupOffset | None) -> int | None:
    return None if found is None else found.start_offset
