"""Looks at the cluster every few seconds: the overview for whoever asks, and one point for each chart.

Theory of operation. Pages and the API read the last overview; however many people watch, the cluster is asked once a
round. A round that fails keeps the overview before it, with the reason. Rates come from counts: a topic's end offsets,
and for groups the records they have settled, which is how far the ends have moved less how far the lag has grown. That
holds for any Kafka. The embedded broker counts acknowledgements by type and lock time-outs too.

A round costs the cluster something, and an embedded broker is in this very process. While nobody has looked for a
while, a cluster that is cheap to look at is looked at for 1% of the time, so that charts have a past; a larger one is
left alone until somebody comes, who then waits for a round. What a failed round took is no cost.

Whether the cluster responds at all is asked every second while somebody watches (`probe`). When it does not, the round
under way is broken off; when it does again, a round begins at once. Both are news that pages in a browser and
`headrace top` wait for, so that they are shown within three seconds.
"""

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from headrace.client.admin.health import HealthLimits
from headrace.client.admin.results import ClusterDescription, DiskUsage, TopicDescription
from headrace.client.admin.survey import GroupSurvey, done_of, has_settled, lag_of
from headrace.client.dead_letter_watch import DeadLetterWatch
from headrace.client.oldest import OldestRecords
from headrace.version import __version__
from headrace.web.group_rows import LiveFigures, group_row, live_figures, with_live_lags
from headrace.web.history import History, Key, Rates
from headrace.web.missing import AGES, DISKS, LETTER_TOPICS, LETTERS
from headrace.web.model import BrokerRow, DiskRow, GroupRow, Overview, TopicRow
from headrace.web.options import WebOptions
from headrace.web.source import PageSource
from headrace.wire.enums import GroupType
from headrace.wire.errors import KafkaError
from headrace.wire.ids import TopicAndPartition

logger = logging.getLogger("headrace.web")

GROUPS_MAX = 2_000
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
SLOW_ROUNDS = 5
"""Disks and the list of dead-letter topics change slowly and cost more: they are read once in so many rounds."""
TREND_POINTS, TREND_S = 60, 120.0
"""A group's trend is made of the lags of so many rounds, and no older ones."""
PROBE_S = 1.0
PROBE_S_MAX = 1.4
"""A cluster that has not responded for so long is shown as gone."""


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
        self._limits = HealthLimits()
        self._rates = Rates()
        self._recent: dict[Key, deque[float]] = {}
        self._lags: dict[str, deque[tuple[float, float]]] = {}
        self._oldest: OldestRecords | None = None
        self._letter_topics: list[str] = []
        self._disks: list[DiskUsage] = []
        self._fast_rounds = SLOW_ROUNDS
        self._wanted = asyncio.Event()
        self._is_awake = asyncio.Event()
        self._is_awake.set()
        self._is_gone = asyncio.Event()
        self._is_there = asyncio.Event()
        self._is_there.set()
        self._news = asyncio.Event()
        self._round: asyncio.Task[Overview] | None = None
        self._looked_at = time.monotonic() - WATCHED_S
        self._probed_at = 0.0
        self._cost_s = 0.0
        self.surveys: dict[str, GroupSurvey] = {}
        """Of the last round, by group."""
        self.ends: dict[TopicAndPartition, int] = {}
        self.overview = Overview(
            cluster_id="",
            version=__version__,
            is_embedded=source.detail is not None,
            is_read_only=options.is_read_only,
            sampled_at=None,
        )

    @property
    def letters(self) -> DeadLetterWatch:
        return self._source.letters

    @property
    def overview(self) -> Overview:
        return self._overview

    @overview.setter
    def overview(self, seen: Overview) -> None:
        self._overview = seen
        self._news.set()
        self._news = asyncio.Event()

    async def news(self) -> Overview:
        """The next overview."""
        await self._news.wait()
        return self.overview

    async def run(self) -> None:
        """Until canceled. Begins with a round if there was none."""
        probing = asyncio.create_task(self._probe_for_ever())
        try:
            if self.overview.sampled_at is None:
                await self.sample()
            while True:
                await self._pause()
                await self.sample()
                self._is_awake.set()
        finally:
            probing.cancel()

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
        """Somebody comes: after a time without anybody there is a probe first, and a round that looks at everything."""
        is_back = not self._is_watched() and self.overview.sampled_at is not None
        self._looked_at = time.monotonic()
        if is_back:
            self._fast_rounds = SLOW_ROUNDS
            self._is_awake.clear()
        if time.monotonic() - self._probed_at > 2 * PROBE_S and self.overview.sampled_at is not None:
            await self.probe()
        if not self._is_awake.is_set():
            self._wanted.set()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(FRESH_S_MAX):
                    await self._is_awake.wait()

    def hurry(self) -> None:
        """Something has been changed: look again at once, at everything."""
        self._fast_rounds = SLOW_ROUNDS
        self._wanted.set()

    async def gone(self) -> None:
        """Returns when the cluster does not respond."""
        await self._is_gone.wait()

    async def turned(self) -> None:
        """Returns when a cluster that responds does not any more, or one that did not does again."""
        await (self._is_there if self.is_gone else self._is_gone).wait()

    @property
    def is_gone(self) -> bool:
        return self._is_gone.is_set()

    async def _probe_for_ever(self) -> None:
        while True:
            await asyncio.sleep(PROBE_S)
            if self._is_watched() or self.is_gone:
                await self.probe()

    async def probe(self) -> None:
        """Asks for a sign of life, and says in the overview if there is none."""
        self._probed_at = time.monotonic()
        try:
            async with asyncio.timeout(PROBE_S_MAX):
                await self._source.admin.cluster()
        except (KafkaError, OSError) as error:  # a time-out is an OSError
            if not self.is_gone:
                self._note_gone(str(error) or f"no response within {PROBE_S_MAX:g} s")
        else:
            if self.is_gone:
                logger.warning("the cluster responds again")
                self._is_gone.clear()
                self.overview = replace(self.overview, error=None, gone_since=None)
                self._is_there.set()
                self.hurry()
        self._probed_at = time.monotonic()

    def _note_gone(self, why: str) -> None:
        logger.warning("the cluster does not respond: %s", why)
        self._is_there.clear()
        since = self.overview.gone_since or int(time.time() * 1000)
        error = f"The cluster does not respond: {why}"
        self.overview = replace(self.overview, error=error, gone_since=since)
        self._is_gone.set()
        if self._round is not None:
            self._round.cancel()

    async def sample(self) -> None:
        if self.is_gone:
            return
        began = time.monotonic()
        self._round = asyncio.create_task(self._look())
        try:
            self.overview = await self._round
            self._cost_s = time.monotonic() - began
        except asyncio.CancelledError:
            self._round.cancel()
            task = asyncio.current_task()
            if not self.is_gone or (task is not None and task.cancelling()):
                raise
        except (KafkaError, OSError) as error:
            if self.overview.error is None:
                logger.warning("the cluster could not be sampled: %s", error)
            self.overview = replace(self.overview, error=str(error))
        except Exception as error:  # a fault of ours must not end the sampling for ever
            logger.exception("the sampler failed")
            self.overview = replace(self.overview, error=f"the dashboard failed: {error!r}")
        finally:
            self._round = None

    async def _look(self) -> Overview:
        admin = self._source.admin
        this = Round(time.time())
        cluster = await admin.cluster()
        topics = await self._topics()
        surveyed, left_out = await admin.survey_groups(groups_max=GROUPS_MAX)
        self.ends = {
            (topic.name, one.partition): one.end_offset or 0 for topic in topics for one in topic.partitions
        }
        self.surveys = {survey.listing.group_id: survey for survey in surveyed}
        for topic in topics:
            if not topic.is_internal:
                this.counts["in", topic.name] = sum(one.end_offset or 0 for one in topic.partitions)
        live = await self._count_in_broker(this)
        self._count_groups(this)
        await self._look_slowly([topic.name for topic in topics if not topic.is_internal])
        oldest = await self._find_oldest()
        self._remember(this)
        sizes = topic_sizes(self._disks)
        return Overview(
            cluster_id=cluster.cluster_id,
            version=__version__,
            is_embedded=self._source.detail is not None,
            is_read_only=self._options.is_read_only,
            sampled_at=int(this.time_s * 1000),
            brokers=_broker_rows(cluster),
            topics=tuple(self._topic_row(topic, sizes) for topic in topics),
            groups=self._group_rows(this, live, oldest),
            left_out=left_out,
            dead_letters=self.letters.waiting(),
            disks=tuple(_disk_row(disk) for disk in self._disks),
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

    def _count_groups(self, this: Round) -> None:
        for group_id, survey in self.surveys.items():
            lag = lag_of(survey, self.ends)
            if lag is not None and survey.error is None:
                this.values["lag", group_id] = lag
            done = done_of(survey, self.ends)
            if done is not None:
                this.counts["done", group_id] = done

    async def _look_slowly(self, topics: list[str]) -> None:
        """Who may not see disks or configs sees the rest."""
        admin = self._source.admin
        self._fast_rounds += 1
        is_slow = self._fast_rounds > SLOW_ROUNDS
        if is_slow:
            self._fast_rounds = 0
            with self._source.missing.of(DISKS):
                self._disks = await (self._source.detail or admin).disk_usage()
            with self._source.missing.of(LETTER_TOPICS):
                groups = [one for one, seen in self.surveys.items() if seen.listing.type is GroupType.SHARE]
                self._letter_topics = await admin.dead_letter_topics(topics=topics, groups=groups)
        with self._source.missing.of(LETTERS):
            await self.letters.refresh(self._letter_topics, fresh=is_slow)
            self._source.missing.topics(LETTERS, self.letters.denied)

    async def _find_oldest(self) -> dict[str, int]:
        """By group: when its oldest unsettled record came, in milliseconds since 1970."""
        if self._source.detail is not None:
            return await self._source.detail.oldest()
        if self._oldest is None:
            self._oldest = OldestRecords(self._source.cluster)
        oldest = await self._oldest.by_group(self.surveys.values(), self.ends)
        self._source.missing.topics(AGES, self._oldest.denied)
        return oldest

    def _group_rows(
        self,
        this: Round,
        live: Mapping[str, LiveFigures] | None,
        oldest: Mapping[str, int],
    ) -> tuple[GroupRow, ...]:
        """The group with the worst trouble first."""
        letters = self.letters.waiting_by_group()
        rows = []
        for group_id, survey in self.surveys.items():
            lag = this.values.get(("lag", group_id))
            oldest_ms = oldest.get(group_id)
            rows.append(
                group_row(
                    survey,
                    lag=None if lag is None else int(lag),
                    lags=self._trend_points(group_id, this.time_s, lag),
                    rate_done=self._smooth(("done", group_id)),
                    oldest_age_s=None if oldest_ms is None else max(0.0, this.time_s - oldest_ms / 1000),
                    lock_timeouts=self._smooth(("time-outs", group_id)),
                    dead_letters=letters.get(group_id, 0),
                    live=None if live is None else live.get(group_id, LiveFigures()),
                    limits=self._limits,
                    has_settled=has_settled(survey, self.ends),
                )
            )
        self._lags = {group_id: points for group_id, points in self._lags.items() if group_id in self.surveys}
        return tuple(
            row for _, row in sorted(rows, key=lambda one: (one[0].rank, -(one[1].lag or 0), one[1].group_id))
        )

    def _trend_points(self, group_id: str, time_s: float, lag: float | None) -> list[tuple[float, float]]:
        points = self._lags.setdefault(group_id, deque(maxlen=TREND_POINTS))
        if lag is not None:
            points.append((time_s, lag))
        return [point for point in points if point[0] >= time_s - TREND_S]

    async def _count_in_broker(self, this: Round) -> dict[str, LiveFigures] | None:
        detail = self._source.detail
        if detail is None:
            return None
        for sample in await detail.samples():
            group = sample.labels.get("group", "")
            if sample.name == "RecordAcknowledgementsPerSec":
                this.counts["acknowledged", group, sample.labels["ack_type"]] = sample.value
            elif sample.name == "AcquisitionLockTimeoutPerSec":
                key = ("time-outs", group)
                this.counts[key] = this.counts.get(key, 0) + sample.value
        windows = await detail.windows()
        self.surveys = with_live_lags(self.surveys, windows)
        live = live_figures(windows)
        for group, figures in live.items():
            this.values["in-flight", group] = figures.in_flight
        return live

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

    def _topic_row(self, topic: TopicDescription, sizes: Mapping[str, int]) -> TopicRow:
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
            size=sizes.get(topic.name),
        )


def _broker_rows(cluster: ClusterDescription) -> tuple[BrokerRow, ...]:
    controller = cluster.controller.node_id if cluster.controller else None
    return tuple(
        BrokerRow(
            node_id=node.node_id,
            address=f"{node.host}:{node.port}",
            rack=node.rack,
            is_controller=node.node_id == controller,
        )
        for node in cluster.nodes
    )


def topic_sizes(disks: Iterable[DiskUsage]) -> dict[str, int]:
    """Bytes by topic; of a partition with several replicas the largest counts once."""
    largest: dict[TopicAndPartition, int] = {}
    for disk in disks:
        for place, size in disk.sizes.items():
            largest[place] = max(size, largest.get(place, 0))
    sizes: dict[str, int] = {}
    for (topic, _), size in largest.items():
        sizes[topic] = sizes.get(topic, 0) + size
    return sizes


def _disk_row(disk: DiskUsage) -> DiskRow:
    return DiskRow(
        node_id=disk.broker_id,
        path=disk.path,
        total_bytes=disk.total_bytes,
        free_bytes=disk.free_bytes,
        error=disk.error,
    )
