"""The records of a topic that a group has not settled yet, and those that are scheduled for it."""

from contextlib import aclosing
from types import TracebackType
from typing import Self

from headrace.adapters.backend import TaskBackend
from headrace.client.admin.aio import AsyncAdmin
from headrace.client.background import BackgroundLoop
from headrace.client.errors import GroupIdNotFoundError, UnknownTopicOrPartitionError
from headrace.client.producing.aio import AsyncProducer
from headrace.client.settings import ClientSettings
from headrace.wire.enums import OffsetSpec
from headrace.wire.ids import TopicAndPartition
from headrace.worker.later import CANCEL, control_topic, later_topic, time_in, write_moment
from headrace.worker.outbox import settings_for

Ends = dict[TopicAndPartition, int]


class Backlog:
    """For one thread."""

    def __init__(self, backend: TaskBackend, topic: str) -> None:
        self._backend = backend
        self._topic = topic
        self._later = later_topic(backend.group_id)
        self._admin = AsyncAdmin(ClientSettings.parse(backend.given))
        self._background = BackgroundLoop("headrace-backlog")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._background.run(self._admin.close())
        finally:
            self._background.close()

    def is_empty(self, timeout_s: float | None = None) -> bool:
        """Whether all is settled and nothing is scheduled. A retry is written before its original is settled, so what
        was read counts only if nothing was written meanwhile. TimeoutError if brokers do not say so in time."""
        return self._background.run(self._is_empty(), timeout_s)

    def drop(self) -> None:
        """Deletes the records from the topic, for all groups, and takes the scheduled ones out of the schedule."""
        self._background.run(self._drop())

    async def _is_empty(self) -> bool:
        await self._admin.start()
        before = await self._ends()
        may_be_scheduled = any(place[0] == self._later for place in before)
        if (may_be_scheduled and await self._is_scheduled()) or await self._lag(before):
            return False
        return before == await self._ends()

    async def _is_scheduled(self) -> bool:
        async with aclosing(self._backend.schedule.scan()) as scheduled:
            async for each in scheduled:
                if each.topic == self._topic:
                    return True
        return False

    async def _lag(self, ends: Ends) -> int:
        places = {place: end for place, end in ends.items() if place[0] == self._topic}
        begins = await self._admin.list_offsets(dict.fromkeys(places, OffsetSpec.EARLIEST))
        try:
            offsets = await self._admin.share_group_offsets(self._backend.group_id)
        except GroupIdNotFoundError:
            offsets = {}
        total = 0
        for place, end in places.items():
            begin, stands = begins[place].offset or 0, offsets.get(place)
            if begin < end:  # else all of it has been deleted, which the group may not know yet
                total += end - begin if stands is None or stands.lag is None else stands.lag
        return total

    async def _ends(self) -> Ends:
        found: Ends = {}
        for topic in (self._topic, self._later):
            try:
                described = (await self._admin.describe_topics([topic]))[topic]
            except UnknownTopicOrPartitionError:
                continue
            wanted = {(topic, one.partition): OffsetSpec.LATEST for one in described.partitions}
            listed = await self._admin.list_offsets(wanted)
            found |= {place: one.offset or 0 for place, one in listed.items()}
        return found

    async def _drop(self) -> None:
        await self._admin.start()
        await self._cancel_scheduled()
        places = [place for place in await self._ends() if place[0] == self._topic]
        if places:
            await self._admin.delete_records(dict.fromkeys(places, int(OffsetSpec.LATEST)))

    async def _cancel_scheduled(self) -> None:
        async with (
            AsyncProducer.of(settings_for(self._backend.given)) as producer,
            aclosing(self._backend.schedule.scan()) as scheduled,
        ):
            async for each in scheduled:
                if each.topic == self._topic:
                    await self._cancel(producer, each.id)

    async def _cancel(self, producer: AsyncProducer, id: str) -> None:
        at_ms = time_in(id)
        if at_ms is not None:
            control = control_topic(self._backend.group_id)
            await producer.send(control, write_moment(at_ms), key=CANCEL + id.encode(), partition=0)
