"""A partition that a worker has of a task with strict order: its records, and how far they are completed."""

import asyncio
import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import NamedTuple

from headrace.client.core.ranges import RangeState
from headrace.client.delivery import AcknowledgeType, Delivery, Grant, TopicPartition
from headrace.client.errors import IllegalStateError, error_for
from headrace.client.tailing import Tail, TailPartition
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.records import Record, read_records
from headrace.worker.completed import CompletedOffsets, OffsetCommit

Offsets = Mapping[TopicPartition, set[int]]


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


class SentCommit(NamedTuple):
    owned: "OwnedPartition"
    commit: OffsetCommit
    covered: set[int]
    """The records that are committed with it."""


class OwnedPartition:
    """The coordinator believes this worker to have it. Its deliveries see it as what they are from.

    `changed` is called when it has something to commit.
    """

    delivery_count = 1

    def __init__(
        self,
        topic: str,
        topic_id: bytes,
        index: int,
        tail: Tail,
        *,
        on_lost: Callable[[Sequence[Delivery], Exception], None],
        on_committed: Callable[[Offsets, Exception | None], None],
        changed: Callable[[], None],
    ) -> None:
        self.topic, self.topic_id, self.partition = topic, topic_id, index
        self.is_lost = False
        """All of its records are with other workers."""
        self.is_leaving = False
        """Nothing of it is handed out any more."""
        self.is_dirty = False
        """There is something to commit."""
        self.progress: CompletedOffsets | None = None
        """None until it is loaded."""
        self._place = TopicPartition(topic, index)
        self._grant = Grant(self, _StrictKeeper())
        self._tail = tail
        self._on_lost, self._on_committed, self._changed = on_lost, on_committed, changed
        self._reading: TailPartition | None = None
        self._records: deque[Record] = deque()
        """Of the batch that is being handed out."""
        self._records_end: int | None = None
        self._handed: dict[int, Delivery] = {}
        self._answered: set[int] = set()
        """Completed, and not known to be committed."""

    def state_of(self, offset: int) -> RangeState:
        return RangeState.LOST if self.is_lost else RangeState.HANDED

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"

    def load(self, progress: CompletedOffsets, *, is_new: bool) -> None:
        self.progress = progress
        if is_new:  # so that it begins there even if nothing is ever completed
            self._touch()
        self._reading = self._tail.follow(self.topic, self.topic_id, self.partition, progress.start)

    def next(self, chars: int) -> Delivery | None:
        """The next record that may be run; None without one at hand, or without room for it in the metadata."""
        progress, reading = self.progress, self._reading
        if progress is None or reading is None or self.is_leaving:
            return None
        while True:
            while self._records:
                record = self._records[0]
                if record.offset >= progress.position and not progress.is_done(record.offset):
                    if not progress.may_admit(record.offset, chars):
                        return None
                    self._records.popleft()
                    progress.admit(record.offset)
                    return self._hand_out(record)
                self._records.popleft()
            if not self._open_part(progress, reading):
                return None

    def _open_part(self, progress: CompletedOffsets, reading: TailPartition) -> bool:
        """Turns to the next batch; False when there is none at hand."""
        before = progress.start
        if self._records_end is not None:
            progress.skip(self._records_end)
            self._records_end = None
        if progress.start != before:
            self._touch()
        part = reading.take()
        self._tail.look()
        if part is None:
            return False
        try:
            self._records = deque(read_records(part.batch) if part.batch is not None else ())
            self._records_end = part.end
        except KafkaError as error:
            reading.move(progress.position)
            self._tail.failed(reading, error)
        return True

    def _hand_out(self, record: Record) -> Delivery:
        delivery = Delivery(
            record.key, record.value, record.offset, record.timestamp, record.headers or (), record.timestamp_type,
            self._grant,
        )  # fmt: skip
        self._handed[record.offset] = delivery
        return delivery

    def acknowledge(self, delivery: Delivery, answer: AcknowledgeType) -> None:
        """IllegalStateError when the record is not this worker's any more. A released one stays as it is."""
        offset = delivery.offset
        if self._handed.get(offset) is not delivery:
            raise IllegalStateError(f"{delivery!r} was already acknowledged, or its partition was lost")
        del self._handed[offset]
        if answer is AcknowledgeType.RELEASE:
            asyncio.get_running_loop().call_soon(self._on_committed, {self._place: {offset}}, None)
            return
        assert self.progress is not None
        self.progress.finish(offset)
        self._answered.add(offset)
        self.is_dirty = True

    def begin_commit(self, chars: int) -> SentCommit | None:
        if not self.is_dirty or self.progress is None:
            return None
        self.is_dirty = False
        commit = self.progress.encode(self.topic_id, chars)
        return SentCommit(self, commit, {offset for offset in self._answered if offset < commit.end})

    def committed(self, sent: SentCommit) -> None:
        self._answered -= sent.covered
        if sent.covered:
            self._on_committed({self._place: sent.covered}, None)

    def commit_failed(self) -> None:
        self.is_dirty = not self.is_lost

    @property
    def is_out_of_range(self) -> bool:
        """Nothing is at hand, and the log does not have what is to be read next."""
        reading = self._reading
        return reading is not None and reading.is_out_of_range and reading.is_empty and not self._records

    @property
    def position(self) -> int:
        """Where the log is read next."""
        assert self._reading is not None
        return self._reading.position

    def skip_to(self, first: int) -> None:
        """The log begins there now."""
        assert self._reading is not None
        self._reading.skip_to(first)

    def restart(self, start: int) -> None:
        """The log was cut, and records from `start` on are others."""
        assert self._reading is not None
        self.take_away(error_for(ErrorCode.OFFSET_OUT_OF_RANGE, about=f"partition {self}"))
        self._records.clear()
        self._records_end = None
        self.progress = CompletedOffsets(start)
        self.is_dirty = True
        self._reading.move(start)

    def leave(self) -> None:
        """Nothing of it is handed out any more."""
        self.is_leaving = True
        if self._reading is not None:
            self._tail.leave(self._reading)

    def drop(self, error: Exception) -> None:
        self.leave()
        self.is_lost = True
        self.take_away(error)

    def take_away(self, error: Exception) -> None:
        """Its records are not this worker's any more."""
        handed, self._handed = list(self._handed.values()), {}
        answered, self._answered = self._answered, set()
        self.is_dirty = False
        if answered:
            self._on_committed({self._place: answered}, error)
        if handed:
            self._on_lost(handed, error)

    def _touch(self) -> None:
        self.is_dirty = True
        self._changed()
