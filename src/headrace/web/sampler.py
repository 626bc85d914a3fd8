"""Looks at the cluster every few seconds: the overview for whoever asks, and one point for each chart.

Theory of operation. Pages and the API read the last overview; however many people watch, the cluster is asked once a
round. A round that fails keeps the overview before it, with the reason. Rates come from counts: a topic's end offsets,
and for groups the records they have settled, which is how far the ends have moved less how far the lag has grown. That
holds for any Kafka. The embedded broker counts acknowledgements by type and lock time-outs too.

A round costs the cluster something, and an embedded broker is in this very process. While nobody has looked for a
while, a cluster that is cheap to look at is looked at for 1% of the time, so that charts have a past; a larger one is
left alone until somebody comes, who then waits for a round.
"""

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace

from headrace.client.admin.results import GroupListing, GroupType, TopicDescription
from headrace.version import __version__
from headrace.web.history import History, Key, Rates
from headrace.web.model import BrokerRow, GroupRow, Overview, TopicRow
from headrace.web.options import WebOptions
from headrace.web.source import PageSource
from headrace.wire.errors import KafkaError

logger = logging.getLogger("headrace.web")

GROUPS_MAX = 200
AT_ONCE = 16
COST_RATIO = 9
"""A round that took long is followed by a longer pause: a large cluster is looked at less often."""
UNWATCHED_COST_RATIO = 99
WATCHED_S = 30.0
"""So long after the last look somebody is taken to be there."""
CHEAP_S = 0.05
"""Rounds that take longer wait for somebody who looks."""
FRESH_S_MAX = 10.0
"""Who comes after a rest waits at most so long for a round."""
SMOOTHED = 3
"""Rates on pages are means of so many samples; the charts show each."""


@dataclass(slots=True)
class Round:
    """What one look has found, on its way to the overview and the history."""

    time_s: float
    values: dict[Key, float] = field(default_factory=dict)
    counts: dict[Key, float] = field(default_factory=dict)


class Sampler:
    def __init__(self, source: PageSource, history: History, options: WebOptions) -> None:
        self._source = source
        self._history = history
        self._options = options
        self._rates = Rates()
        self._recent: dict[Key, deque[float]] = {}
        self._wanted = asyncio.Event()
        self._is_awake = asyncio.Event()
        self._is_awake.set()
        self._looked_at = time.monotonic() - WATCHED_S
        self._cost_s = 0.0
        self.overview = Overview(
            cluster_id="",
            version=__version__,
            is_embedded=source.detail is not None,
            is_read_only=options.is_read_only,
            sampled_at=None,
        )

    async def run(self) -> None:
        """Until cancelled. Whoever starts it has sampled once."""
        while True:
            await self._pause()
            await self.sample()
            self._is_awake.set()

    async def _pause(self) -> None:
        ratio = UNWATCHED_COST_RATIO if self._cost_s <= CHEAP_S and not self._is_watched() else COST_RATIO
        self._wanted.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(self._options.sample_s, ratio * self._cost_s)):
                await self._wanted.wait()
        if self._cost_s > CHEAP_S and not self._is_watched() and self.overview.error is None:
            self._is_awake.clear()
            await self._wanted.wait()

    def _is_watched(self) -> bool:
        return time.monotonic() - self._looked_at < WATCHED_S

    def look(self) -> Overview:
        """The last overview, for somebody who wants to see it."""
        self._looked_at = time.monotonic()
        return self.overview

    async def awake(self) -> None:
        """Somebody comes: after a rest there is a round first."""
        self._looked_at = time.monotonic()
        if not self._is_awake.is_set():
            self._wanted.set()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(FRESH_S_MAX):
                    await self._is_awake.wait()

    def hurry(self) -> None:
        """Something has been changed: look again at once."""
        self._wanted.set()

    async def sample(self) -> None:
        began = time.monotonic()
        try:
            self.overview = await self._look()
            self._cost_s = time.monotonic() - began
        except (KafkaError, OSError) as error:
            if self.overview.error is None:
                logger.warning("the cluster could not be looked at: %s", error)
            self.overview = replace(self.overview, error=str(error))
        except Exception as error:  # a fault of ours must not end the sampling for ever
            logger.exception("the sampler failed")
            self.overview = replace(self.overview, error=f"the dashboard failed: {error!r}")

    async def _look(self) -> Overview:
        admin = self._source.admin
        this = Round(time.time())
        cluster = await admin.cluster()
        topics = await self._topics()
        listings = sorted(
            await admin.list_groups(), key=lambda one: (one.type is not GroupType.SHARE, one.group_id)
        )
        ends = {
            (topic.name, one.partition): one.end_offset or 0 for topic in topics for one in topic.partitions
        }
        limit = asyncio.Semaphore(AT_ONCE)

        async def look_at(listing: GroupListing) -> GroupRow:
            async with limit:
                return await self._group(listing, ends, this)

        groups = await asyncio.gather(*(look_at(listing) for listing in listings[:GROUPS_MAX]))
        for topic in topics:
            if not topic.is_internal:
                this.counts["in", topic.name] = sum(one.end_offset or 0 for one in topic.partitions)
        await self._count_in_broker(this)
        self._remember(this)
        controller = cluster.controller.node_id if cluster.controller else None
        return Overview(
            cluster_id=cluster.cluster_id,
            version=__version__,
            is_embedded=self._source.detail is not None,
            is_read_only=self._options.is_read_only,
            sampled_at=int(this.time_s * 1000),
            brokers=tuple(
                BrokerRow(
                    node_id=node.node_id,
                    address=f"{node.host}:{node.port}",
                    rack=node.rack,
                    is_controller=node.node_id == controller,
                )
                for node in cluster.nodes
            ),
            topics=tuple(self._topic_row(topic) for topic in topics),
            groups=tuple(
                replace(
                    group,
                    rate_done=self._smooth(("done", group.group_id)),
                    in_flight=_whole(this.values.get(("in-flight", group.group_id))),
                )
                for group in groups
            ),
            left_out=max(0, len(listings) - GROUPS_MAX),
        )

    async def _topics(self) -> list[TopicDescription]:
        """With offsets; where a topic vanishes meanwhile, once more."""
        admin = self._source.admin
        for is_last in (False, True):
            names = [topic.name for topic in await admin.list_topics(internal=True)]
            try:
                return list((await admin.describe_topics(names, offsets=True)).values())
            except KafkaError:
                if is_last:
                    raise
        raise AssertionError("not reached")

    async def _group(self, listing: GroupListing, ends: dict[tuple[str, int], int], this: Round) -> GroupRow:
        row = GroupRow(
            group_id=listing.group_id,
            type=listing.type.value,
            state=listing.state.value,
            members=None,
            lag=None,
            in_flight=None,
            rate_done=None,
        )
        look = self._share_group if listing.type is GroupType.SHARE else self._consumer_group
        try:
            row = await _known_kind(look, listing)(row, ends, this)
        except KafkaError as error:  # it may have been deleted since it was listed
            return replace(row, error=str(error))
        if row.lag is not None:
            this.values["lag", row.group_id] = row.lag
        return row

    async def _share_group(self, row: GroupRow, ends: dict[tuple[str, int], int], this: Round) -> GroupRow:
        admin = self._source.admin
        described = await admin.describe_share_group(row.group_id)
        offsets = await admin.share_group_offsets(row.group_id)
        lags = [one.lag for one in offsets.values()]
        if offsets and None not in lags:
            moved = sum(ends.get(place, one.end_offset or 0) for place, one in offsets.items())
            this.counts["done", row.group_id] = moved - sum(lag or 0 for lag in lags)
        return replace(row, members=len(described.members), lag=sum(lag or 0 for lag in lags))

    async def _consumer_group(self, row: GroupRow, ends: dict[tuple[str, int], int], this: Round) -> GroupRow:
        described = await self._source.admin.describe_consumer_group(row.group_id)
        committed = [one.offset for one in described.offsets.values() if one.offset is not None]
        if committed:
            this.counts["done", row.group_id] = sum(committed)
        lags = [one.lag for one in described.offsets.values() if one.lag is not None]
        return replace(row, members=len(described.members), lag=sum(lags) if lags else None)

    async def _count_in_broker(self, this: Round) -> None:
        if self._source.detail is None:
            return
        for sample in await self._source.detail.samples():
            group = sample.labels.get("group", "")
            if sample.name == "RecordAcknowledgementsPerSec":
                this.counts["acknowledged", group, sample.labels["ack_type"]] = sample.value
            elif sample.name == "AcquisitionLockTimeoutPerSec":
                key = ("time-outs", group)
                this.counts[key] = this.counts.get(key, 0) + sample.value
            elif sample.name == "InFlightMessageCount":
                key = ("in-flight", group)
                this.values[key] = this.values.get(key, 0) + sample.value

    def _remember(self, this: Round) -> None:
        rates = self._rates.update(this.time_s, this.counts)
        for key, rate in rates.items():
            self._recent.setdefault(key, deque(maxlen=SMOOTHED)).append(rate)
        for key in [key for key in self._recent if key not in rates]:
            del self._recent[key]
        self._history.record(this.time_s, {**this.values, **rates})

    def _smooth(self, key: Key) -> float | None:
        recent = self._recent.get(key)
        return sum(recent) / len(recent) if recent else None

    def _topic_row(self, topic: TopicDescription) -> TopicRow:
        known = [
            one.end_offset - one.start_offset
            for one in topic.partitions
            if one.end_offset is not None and one.start_offset is not None
        ]
        return TopicRow(
            name=topic.name,
            partitions=len(topic.partitions),
            replication_factor=topic.replication_factor,
            is_internal=topic.is_internal,
            records=sum(known) if len(known) == len(topic.partitions) else None,
            rate_in=self._smooth(("in", topic.name)),
        )


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)


Look = Callable[[GroupRow, dict[tuple[str, int], int], Round], Awaitable[GroupRow]]


def _known_kind(look: Look, listing: GroupListing) -> Look:
    """Streams groups and kinds that are newer than us are listed, no more."""
    if listing.type in (GroupType.SHARE, GroupType.CONSUMER, GroupType.CLASSIC):
        return look

    async def as_it_is(row: GroupRow, ends: dict[tuple[str, int], int], this: Round) -> GroupRow:
        return row

    return as_it_is
