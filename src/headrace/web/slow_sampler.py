"""What costs more to find out and changes slowly: disks, sizes, the ages of the oldest records, waiting dead letters.

Theory of operation. Nobody who asks waits long: `facts` gives what was found last and, if that is old, looks again in
the background; only the first who asks waits for it. A look that took long is followed by a longer pause, and while
nobody asks, nobody looks. From an embedded broker sizes and ages are read in small steps between its requests; from
any other Kafka by DescribeLogDirs, and by fetching the first batch that a group has not settled, of so many partitions
at a time. What has not moved since the last look is not read again. Each of the three is found out by itself: one that
may not be read, or cannot be read now, keeps what was found last and holds up no other.
"""

import asyncio
import contextlib
import logging
import time
from dataclasses import dataclass, field, replace

from headrace.client.admin.results import DiskUsage
from headrace.client.dead_letters import LetterStatus
from headrace.client.oldest import OldestRecords
from headrace.client.plain_fetch import list_offsets_once
from headrace.web.missing import AGES, DISKS, LETTER_TOPICS, LETTERS
from headrace.web.source import PageSource
from headrace.wire.enums import OffsetSpec

logger = logging.getLogger("headrace.web")

INTERVAL_S = 15.0
COST_RATIO = 20
"""A look that took a second is followed by twenty without one."""
WAIT_S = 3.0
"""So long the first who asks waits."""
FETCHES_MAX = 200
"""Partitions of a foreign Kafka whose oldest record is read in one look."""
GROUPS_MAX = 2_000
TOPICS_INTERVAL_S = 60.0
"""How often it is found out which topics are dead-letter topics: for many topics that is many requests."""
DEAD_LETTER_TOPICS_MAX = 100


@dataclass(frozen=True, slots=True)
class SlowFacts:
    looked_at: float = 0.0
    """Seconds since 1970; 0 before the first look."""
    oldest: dict[str, int] = field(default_factory=dict)
    """By group: when its oldest unsettled record came, in milliseconds since 1970. Groups without one are not in it."""
    waiting: dict[str, int] = field(default_factory=dict)
    """By dead-letter topic: dead letters that nobody has redriven or dropped."""
    disks: tuple[DiskUsage, ...] = ()

    def oldest_age_s(self, group_id: str, now_s: float) -> float | None:
        came_ms = self.oldest.get(group_id)
        return None if came_ms is None else max(0.0, now_s - came_ms / 1000)

    def topic_bytes(self) -> dict[str, int]:
        """Bytes by topic, all partitions and all replicas."""
        sizes: dict[str, int] = {}
        for disk in self.disks:
            for (topic, _), size in disk.sizes.items():
                sizes[topic] = sizes.get(topic, 0) + size
        return sizes


class SlowSampler:
    def __init__(self, source: PageSource) -> None:
        self._source = source
        self.last = SlowFacts()
        self._next_look = 0.0
        self._looking: asyncio.Task[None] | None = None
        self._oldest = OldestRecords(source.cluster, reads_max=FETCHES_MAX)
        self._dead_letter_topics: list[str] = []
        self._topics_again = 0.0

    async def facts(self) -> SlowFacts:
        if self._looking is None and time.monotonic() >= self._next_look:
            self._looking = asyncio.create_task(self._look())
        if self._looking is not None and not self.last.looked_at:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(WAIT_S):
                    await asyncio.shield(self._looking)
        return self.last

    async def close(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)

    async def _look(self) -> None:
        began = time.monotonic()
        try:
            await asyncio.gather(self._find_disks(), self._find_oldest(), self._count_waiting())
        except Exception:  # a fault of ours must not end it for ever
            logger.exception("the slow sampler failed")
        finally:
            self.last = replace(self.last, looked_at=time.time())
            cost_s = time.monotonic() - began
            self._next_look = time.monotonic() + max(INTERVAL_S, COST_RATIO * cost_s)
            self._looking = None

    async def _find_disks(self) -> None:
        with self._source.missing.of(DISKS):
            disks = await (self._source.detail or self._source.admin).disk_usage()
            self.last = replace(self.last, disks=tuple(disks))

    async def _find_oldest(self) -> None:
        with self._source.missing.of(AGES):
            detail = self._source.detail
            oldest = await self._fetch_oldest() if detail is None else await detail.oldest()
            self.last = replace(self.last, oldest=oldest)

    async def _fetch_oldest(self) -> dict[str, int]:
        surveys, _ = await self._source.admin.survey_groups(groups_max=GROUPS_MAX)
        places = list({place: None for survey in surveys for place in survey.places})
        if places:
            await self._source.cluster.refresh({topic for topic, _ in places})
        ends = await list_offsets_once(self._source.cluster, dict.fromkeys(places, OffsetSpec.LATEST))
        known = {place: end for place, end in ends.items() if isinstance(end, int)}
        oldest = await self._oldest.by_group(surveys, known)
        self._source.missing.topics(AGES, self._oldest.denied)
        return oldest

    async def _count_waiting(self) -> None:
        admin, letters, missing = self._source.admin, self._source.letters, self._source.missing
        if time.monotonic() >= self._topics_again:
            with missing.of(LETTER_TOPICS):
                self._dead_letter_topics = (await admin.dead_letter_topics())[:DEAD_LETTER_TOPICS_MAX]
                self._topics_again = time.monotonic() + TOPICS_INTERVAL_S
        with missing.of(LETTERS):
            await letters.refresh(self._dead_letter_topics)
            missing.topics(LETTERS, letters.denied)
            listings = (letters.listing(name) for name in letters.topics if name not in letters.denied)
            waiting = {
                listing.topic: listing.passed_over
                + sum(letter.status is LetterStatus.WAITING for letter in listing.letters)
                for listing in listings
                if listing is not None
            }
            self.last = replace(self.last, waiting=waiting)
