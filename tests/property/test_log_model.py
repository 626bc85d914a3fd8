"""A log against a naive model: whatever is appended, ended, deleted, restarted or cut, both tell the same.

Goal: PartitionLog equals a plain list of events. Method: Hypothesis drives both through random operations on a
simulated disk, with clean restarts, kill -9 and power cuts, and compares everything a client can see after each.
"""

import random
from dataclasses import dataclass

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from headrace.log.config import LogConfig
from headrace.log.manager import LogManager
from headrace.log.memory_disk import MemoryDisk
from headrace.wire.errors import ErrorCode, KafkaError
from tests.unit.log.logs import DAY, NOW, TOPIC_ID, batch, delete_records, values_of

CONFIG = LogConfig(
    segment_bytes=400,
    index_interval_bytes=60,
    retention_ms=DAY,
    file_delete_delay_ms=0,
    producer_expiration_ms=10_000 * DAY,
)
IDEMPOTENT = st.integers(1, 2)
TRANSACTIONAL = st.integers(11, 13)
FIRST_SEQUENCE = 2**31 - 4
"""So that sequences turn over soon."""


@dataclass(frozen=True)
class Event:
    base_offset: int
    values: tuple[str, ...]
    at: int
    producer_id: int = -1
    sequence: int = -1
    commit: bool | None = None
    """Not None: the marker that ends the producer's transaction."""

    @property
    def next_offset(self) -> int:
        return self.base_offset + (len(self.values) or 1)

    @property
    def is_transactional(self) -> bool:
        return self.producer_id > 10


class Model:
    def __init__(self) -> None:
        self.events: list[Event] = []
        self.start = 0
        self.end = 0

    def add(self, event: Event) -> None:
        self.events.append(event)
        self.end = event.next_offset

    def cut(self, end: int) -> None:
        self.events = [event for event in self.events if event.next_offset <= end]
        self.end = end

    def last_of(self, producer_id: int) -> list[Event]:
        return [event for event in self.events if event.producer_id == producer_id and event.values]

    def next_sequence(self, producer_id: int) -> int:
        sent = self.last_of(producer_id)
        return (sent[-1].sequence + len(sent[-1].values)) % 2**31 if sent else FIRST_SEQUENCE

    def open_transactions(self) -> dict[int, int]:
        found: dict[int, int] = {}
        for event in self.events:
            if event.commit is not None:
                found.pop(event.producer_id, None)
            elif event.is_transactional:
                found.setdefault(event.producer_id, event.base_offset)
        return found

    def stable(self) -> int:
        return max(self.start, min(self.open_transactions().values(), default=self.end))

    def values(self, *, committed: bool) -> list[str]:
        limit = self.stable() if committed else self.end
        pending: dict[int, list[tuple[int, str]]] = {}
        found: list[tuple[int, str]] = []
        for event in self.events:
            numbered = [(event.base_offset + index, value) for index, value in enumerate(event.values)]
            if not committed or not event.is_transactional:
                found += numbered
            elif event.commit is None:
                pending.setdefault(event.producer_id, []).extend(numbered)
            else:
                ended = pending.pop(event.producer_id, [])
                found += ended if event.commit else []
        return [value for offset, value in sorted(found) if self.start <= offset < limit]


class LogMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.disk = MemoryDisk(is_simulated=True)
        self.now_ms = NOW
        self.model = Model()
        self.synced = 0
        self.count = 0
        self.open()

    def open(self) -> None:
        self.manager = LogManager(self.disk, now_ms=self.now_ms)
        self.log = self.manager.open_log("orders", 0, CONFIG, TOPIC_ID)

    def fresh(self, count: int) -> tuple[str, ...]:
        self.count += count
        return tuple(f"{self.count - index}" for index in range(count))

    def send(self, values: tuple[str, ...], producer_id: int = -1) -> None:
        sequence = self.model.next_sequence(producer_id) if producer_id >= 0 else -1
        data = batch(
            *values,
            at=self.now_ms,
            producer=(producer_id, 0, sequence) if producer_id >= 0 else None,
            transactional=producer_id > 10,
        )
        appended = self.log.append(data, now_ms=self.now_ms)
        assert appended.base_offset == self.model.end
        assert not appended.is_duplicate
        self.model.add(Event(self.model.end, values, self.now_ms, producer_id, sequence))

    @rule(count=st.integers(1, 4))
    def append(self, count: int) -> None:
        self.send(self.fresh(count))

    @rule(producer_id=IDEMPOTENT | TRANSACTIONAL, count=st.integers(1, 3))
    def append_as_producer(self, producer_id: int, count: int) -> None:
        self.send(self.fresh(count), producer_id)

    @rule(producer_id=TRANSACTIONAL, commit=st.booleans())
    def end_transaction(self, producer_id: int, commit: bool) -> None:
        if self.model.last_of(producer_id):
            self.log.append_marker(
                producer_id=producer_id,
                producer_epoch=0,
                commit=commit,
                coordinator_epoch=0,
                now_ms=self.now_ms,
            )
            self.model.add(Event(self.model.end, (), self.now_ms, producer_id, commit=commit))

    @rule(producer_id=IDEMPOTENT, back=st.integers(1, 5))
    def retry(self, producer_id: int, back: int) -> None:
        sent = self.model.last_of(producer_id)
        if len(sent) >= back:
            event = sent[-back]
            data = batch(*event.values, at=event.at, producer=(producer_id, 0, event.sequence))
            again = self.log.append(data, now_ms=self.now_ms)
            assert (again.base_offset, again.is_duplicate) == (event.base_offset, True)

    @rule(producer_id=IDEMPOTENT, ahead=st.integers(1, 3))
    def leave_a_gap(self, producer_id: int, ahead: int) -> None:
        if self.model.last_of(producer_id):
            sequence = (self.model.next_sequence(producer_id) + ahead) % 2**31
            with pytest.raises(KafkaError) as caught:
                self.log.append(batch("gap", producer=(producer_id, 0, sequence)), now_ms=self.now_ms)
            assert caught.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    @rule(share=st.floats(0, 1))
    def delete_records(self, share: float) -> None:
        """Up to what is synced: what the log knows of producers beyond that, a power cut may take."""
        before = self.model.start + round(share * (max(self.synced, self.model.start) - self.model.start))
        assert delete_records(self.log, before) == before
        self.model.start = before

    @rule(hours=st.sampled_from([0, 1, 13]))
    def keep_house(self, hours: int) -> None:
        self.now_ms += hours * 3600 * 1000
        self.manager.run_background_work(self.now_ms)
        assert self.log.start_offset >= self.model.start
        dropped = [event for event in self.model.events if event.next_offset <= self.log.start_offset]
        fresh = [event for event in dropped if self.now_ms - event.at <= DAY]
        assert all(event.next_offset <= self.model.start for event in fresh)
        self.model.start = self.log.start_offset
        self.synced = max(self.synced, self.log.recovery_point)

    @rule()
    def sync(self) -> None:
        self.manager.sync([self.log])
        self.synced = self.model.end

    @rule()
    def restart_cleanly(self) -> None:
        self.manager.close()
        self.synced = self.model.end
        self.open()

    @rule()
    def die(self) -> None:
        self.disk.restart()
        self.open()

    @precondition(lambda self: self.model.events)
    @rule(seed=st.none() | st.integers(0, 2**32))
    def lose_power(self, seed: int | None) -> None:
        self.disk.power_cycle(None if seed is None else random.Random(seed))
        self.open()
        assert max(self.synced, self.model.start) <= self.log.end_offset <= self.model.end
        self.model.cut(self.log.end_offset)

    @invariant()
    def both_tell_the_same(self) -> None:
        assert (self.log.start_offset, self.log.end_offset) == (self.model.start, self.model.end)
        assert self.log.stable_offset == self.model.stable()
        for committed in (False, True):
            for max_bytes in (1, 150, 10_000):
                found = values_of(self.log, committed=committed, max_bytes=max_bytes)
                assert found == self.model.values(committed=committed)


TestLogMachine = LogMachine.TestCase
TestLogMachine.settings = settings(max_examples=60, stateful_step_count=30)


def test_reads_of_any_size_from_any_offset_give_the_same_records() -> None:
    manager = LogManager(MemoryDisk(), now_ms=NOW)
    log = manager.open_log("orders", 0, CONFIG, TOPIC_ID)
    sizes = random.Random(1)
    for number in range(60):
        log.append(batch(*[f"{number}"] * sizes.randint(1, 5)), now_ms=NOW)
    whole = b"".join(log.reader.batches())
    for _ in range(300):
        offset, max_bytes = sizes.randrange(log.end_offset), sizes.randint(1, 1000)
        read = log.reader.read(offset, max_bytes=max_bytes)
        assert read.data in whole
        assert log.reader.read(offset, max_bytes=max_bytes) == read
