"""What one transaction of the forwarder does: the records of the steps that are due, and the tasks sent by the clock.

Memory does not grow with the number of waiting records: of each step, only the next records are read.
"""

import logging
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field

from headrace.client.cluster import Cluster
from headrace.client.plain_fetch import list_offsets, read_range
from headrace.wire.enums import OffsetSpec
from headrace.wire.ids import uuid_text
from headrace.wire.records import Record, read_records
from headrace.worker.control import valid_positions
from headrace.worker.later import (
    STEPS,
    StepPositions,
    Waiting,
    control_topic,
    due_ms,
    later_topic,
    step_of,
    waiting_of,
)
from headrace.worker.periodic import Periodic

logger = logging.getLogger("headrace.worker")

MOVES_MAX, BYTES_MAX = 2_000, 16 * 1024 * 1024
"""Of one transaction. More would not fit into memory, or into the transaction's time."""
READ_BYTES = 256 * 1024
Ends = Mapping[tuple[str, int], int]


@dataclass(frozen=True, slots=True)
class DueRecord:
    step: int
    record: Record
    waiting: Waiting

    @property
    def place(self) -> tuple[int, int]:
        return (self.step, self.record.offset)


@dataclass(slots=True)
class ForwardPlan:
    """What one transaction does."""

    now_ms: int
    topic_id: bytes
    positions: list[int]
    due: list[DueRecord] = field(default_factory=list)
    fired: dict[str, int] = field(default_factory=dict)
    sent: list[tuple[Periodic, int]] = field(default_factory=list)
    forgotten: list[str] = field(default_factory=list)
    size: int = 0

    @property
    def noted(self) -> StepPositions:
        return StepPositions(self.topic_id, tuple(self.positions))

    @property
    def is_full(self) -> bool:
        return len(self.due) >= MOVES_MAX or self.size >= BYTES_MAX

    @property
    def is_empty(self) -> bool:
        return not (self.due or self.fired or self.forgotten)

    def fire(self, tasks: Sequence[Periodic], fired: Mapping[str, int]) -> None:
        """The periodic tasks that are due."""
        for periodic in tasks:
            last_ms = periodic.last_ms(fired, self.now_ms)
            if last_ms is None:  # new: its first period begins now
                self.fired[periodic.topic] = self.now_ms
            elif (moment_ms := periodic.due_ms(last_ms, self.now_ms)) is not None:
                self.fired[periodic.topic] = moment_ms
                self.sent.append((periodic, moment_ms))


class StepReader:
    """Reads the steps of a group."""

    def __init__(self, cluster: Cluster, group_id: str) -> None:
        self._cluster = cluster
        self._topic, self._control_topic = later_topic(group_id), control_topic(group_id)
        self._heads: list[int | None] = [None] * STEPS
        """When the first record of each step is due, where that is known."""

    async def find_ends(self) -> Ends:
        """Of the steps, and of the control topic."""
        places = {(self._topic, step): OffsetSpec.LATEST for step in range(STEPS)} | {
            (self._control_topic, 0): OffsetSpec.LATEST
        }
        return await list_offsets(self._cluster, places, committed=True)

    async def valid(self, positions: StepPositions, ends: Ends) -> StepPositions:
        """They do not hold when the topic was created again."""
        known = self._cluster.topic(self._topic)
        if (
            known is not None
            and known.topic_id == positions.topic_id
            and all(offset <= ends[self._topic, step] for step, offset in enumerate(positions.offsets))
        ):
            return positions
        self._heads = [None] * STEPS
        return await valid_positions(self._cluster, self._topic, positions)

    async def gather(self, ends: Ends, plan: ForwardPlan) -> None:
        for step in range(STEPS):
            await self._gather(step, ends[self._topic, step], plan)

    async def _gather(self, step: int, end: int, plan: ForwardPlan) -> None:
        """The records of a step that are due. Its position is then that of the first that is not."""
        position, head_ms = plan.positions[step], self._heads[step]
        if position >= end or (head_ms is not None and head_ms > plan.now_ms):
            return
        self._heads[step] = None
        reading = read_range(
            self._cluster, self._topic, step, position, end - 1,
            committed=True, max_bytes=READ_BYTES, topic_id=uuid_text(plan.topic_id),
        )  # fmt: skip
        async with aclosing(reading) as batches:
            async for _, batch in batches:
                for record in read_records(batch):
                    if record.offset >= position and not self._take(step, record, plan):
                        return
        plan.positions[step] = end  # whatever is left there are marks of transactions

    def _take(self, step: int, record: Record, plan: ForwardPlan) -> bool:
        waiting = waiting_of(record.headers)
        if waiting is None or waiting.topic in (self._topic, self._control_topic):
            logger.error(
                "%s-%d@%d is not a scheduled record and is skipped", self._topic, step, record.offset
            )
            return True
        due = due_ms(step, record.timestamp, waiting.at_ms, plan.now_ms)
        if due > plan.now_ms or plan.is_full:
            plan.positions[step] = record.offset
            self._heads[step] = due
            return False
        plan.due.append(DueRecord(step, record, waiting))
        plan.size += len(record.key or b"") + len(record.value or b"")
        return True

    def next_ms(self, plan: ForwardPlan) -> list[int]:
        """When records are due next, as far as is known."""
        moments = [head_ms for head_ms in self._heads if head_ms is not None]
        for each in plan.due:
            left_ms = each.waiting.at_ms - plan.now_ms
            if left_ms > 0:
                moments.append(due_ms(step_of(left_ms), plan.now_ms, each.waiting.at_ms, plan.now_ms))
        return moments
