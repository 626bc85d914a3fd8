"""Housekeeping on a real core in memory: turning the clock is enough for retention and compaction to happen."""

import errno
from collections.abc import Iterator
from typing import Any

import pytest

from headrace import Broker
from headrace.broker.housekeeping import LOGS_PER_STEP
from headrace.log.background import Work
from headrace.log.memory_disk import MemoryDisk
from headrace.log.partition_log import PartitionLog
from headrace.wire.records import NewRecord, build_batch, read_records
from tests.unit.broker.share.bench import Bench, WhenTold
from tests.unit.work import operations


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


def log_of(broker: Broker, **configs: str) -> PartitionLog:
    overrides = {name.replace("_", "."): value for name, value in configs.items()}
    return broker.call(
        lambda: broker.core.topics.create("orders", partitions=1, configs=overrides).partitions[0].log
    )


def append(broker: Broker, log: PartitionLog, key: bytes, value: bytes | None, count: int = 1) -> None:
    def run() -> None:
        now_ms = broker.core.clock.wall_ms()
        for _ in range(count):
            log.append(build_batch([NewRecord(key, value, timestamp=now_ms)]), now_ms=now_ms)

    broker.call(run)


def test_old_segments_go_when_their_time_has_passed(broker: Broker) -> None:
    log = log_of(broker, retention_ms="60000", segment_bytes="1048576")
    append(broker, log, b"k", bytes(300_000), count=10)
    assert broker.call(lambda: log.start_offset) == 0
    broker.advance(120)
    assert broker.call(lambda: (log.start_offset, log.end_offset)) == (10, 10)


def test_a_compacted_topic_keeps_the_last_value_of_each_key(broker: Broker) -> None:
    log = log_of(broker, cleanup_policy="compact", segment_bytes="1048576", min_cleanable_dirty_ratio="0.01")
    for turn in range(3):
        for key in (b"a", b"b"):
            append(broker, log, key, bytes([turn]) * 300_000)
    append(broker, log, b"filler", bytes(900_000))
    broker.advance(120)  # the closed segments are made durable,
    broker.advance(120)  # and only then rewritten
    kept = broker.call(lambda: [record for batch in log.reader.batches() for record in read_records(batch)])
    assert [
        (record.offset, record.key, (record.value or b"")[:1]) for record in kept if record.key != b"filler"
    ] == [
        (4, b"a", b"\x02"),
        (5, b"b", b"\x02"),
    ]
    assert broker.call(lambda: log.end_offset) == 7


def test_a_piece_of_work_that_fails_does_not_end_housekeeping(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = log_of(broker, retention_ms="60000", segment_bytes="1048576")
    append(broker, log, b"k", bytes(300_000), count=10)

    def broken() -> None:
        raise ValueError("broken")

    with monkeypatch.context() as patch:
        patch.setattr(broker.core.logs, "removal", lambda _: Work("break", broken))
        broker.advance(60)
    broker.advance(120)
    assert broker.call(lambda: log.start_offset) == 10


def test_a_wall_clock_that_jumps_ahead_for_a_moment_deletes_nothing(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = log_of(broker, retention_ms="60000", segment_bytes="1048576")
    append(broker, log, b"k", bytes(300_000), count=10)
    wall_ms = broker._clock.wall_ms
    monkeypatch.setattr(broker._clock, "wall_ms", lambda: wall_ms() + 365 * 86_400_000)
    broker.advance(30)
    monkeypatch.undo()
    broker.advance(20)
    assert broker.call(lambda: (log.start_offset, log.end_offset)) == (0, 10)


def test_a_producer_seen_while_the_wall_clock_was_behind_is_not_forgotten_when_it_is_right_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = Bench(**{"producer.id.expiration.ms": 600_000})
    log = bench.core.topics.create("orders", partitions=1, configs={}).partitions[0].log
    batch = build_batch([NewRecord(b"k", b"v")], producer_id=7, producer_epoch=0, base_sequence=0)
    wall_ms = bench.clock.wall_ms
    with monkeypatch.context() as patch:
        patch.setattr(bench.clock, "wall_ms", lambda: wall_ms() - 3_600_000)
        log.append(batch, now_ms=bench.core.clock.wall_ms())
    bench.advance(60)  # housekeeping has not looked at the clock in between
    again = log.append(batch, now_ms=bench.core.clock.wall_ms())
    assert again.is_duplicate
    assert log.end_offset == 1


def test_a_silent_producer_is_forgotten_at_the_interval_of_its_setting() -> None:
    settings = {"producer.id.expiration.ms": 200, "producer.id.expiration.check.interval.ms": 100}
    with Broker(settings=settings) as broker:
        log = log_of(broker)

        def produce() -> None:
            now_ms = broker.core.clock.wall_ms()
            batch = build_batch(
                [NewRecord(b"k", b"v", (), now_ms)], producer_id=7, producer_epoch=0, base_sequence=0
            )
            log.append(batch, now_ms=now_ms)

        broker.call(produce)
        assert broker.call(lambda: len(log.producer_states.views())) == 1
        broker.advance(1)  # far below the interval of housekeeping
        assert broker.call(lambda: log.producer_states.views()) == []


def test_logs_are_opened_a_few_a_turn_and_none_of_a_topic_that_goes_meanwhile() -> None:
    bench = Bench()
    topics = [bench.core.topics.create(name, partitions=2 * LOGS_PER_STEP, configs={}) for name in ("a", "b")]

    def opened() -> list[int]:
        return [sum(one.opened_log is not None for one in topic.partitions) for topic in topics]

    bench.core.slices.run(bench.core.housekeeping._open_logs())
    assert opened() == [LOGS_PER_STEP, 0]
    bench.core.topics.delete("b")
    while bench.core.slices.is_pending:
        bench.core.settle()
    assert opened() == [2 * LOGS_PER_STEP, 0]


def test_a_log_that_cannot_be_opened_keeps_no_other_from_growing_old(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    topic = bench.core.topics.create("a", partitions=3, configs={})
    open_log = bench.core.logs.open_log

    def open_or_fail(name: str, index: int, *rest: Any) -> PartitionLog:
        if index == 1:
            raise OSError(errno.EIO, "Input/output error")
        return open_log(name, index, *rest)

    monkeypatch.setattr(bench.core.logs, "open_log", open_or_fail)
    bench.core.slices.run(bench.core.housekeeping._open_logs())
    assert [one.opened_log is not None for one in topic.partitions] == [True, False, True]


def aged(bench: Bench, name: str, partitions: int, **configs: str) -> list[PartitionLog]:
    """Logs whose only record is older than their retention."""
    named = {key.replace("_", "."): value for key, value in configs.items()} | {"retention.ms": "1000"}
    topic = bench.core.topics.create(name, partitions=partitions, configs=named)
    batch = build_batch([NewRecord(b"k", b"v", (), bench.clock.wall_ms())])
    logs = [partition.log for partition in topic.partitions]
    for log in logs:
        log.append(batch, now_ms=bench.clock.wall_ms())
    return logs


def starts(logs: list[PartitionLog]) -> set[int]:
    return {log.start_offset for log in logs}


def settle(bench: Bench) -> list[int]:
    """The operations of each turn until nothing is left."""
    counts = []
    while bench.core.slices.is_pending:
        counts.append(operations(bench.core.settle))
    return counts


def test_turns_of_retention_do_not_grow_with_the_number_of_logs() -> None:
    longest = []
    for partitions in (100, 200):
        bench = Bench()
        logs = aged(bench, "orders", partitions)
        bench.clock.advance(40)
        first = operations(bench.core.settle)
        longest.append(max(first, *settle(bench)))
        assert starts(logs) == {1}
    assert longest[1] < 1.2 * longest[0]


def test_turns_of_a_round_without_work_do_not_grow_with_the_number_of_logs() -> None:
    longest = []
    for partitions in (1_500, 3_000):
        bench = Bench()
        topic = bench.core.topics.create("orders", partitions=partitions, configs={})
        for partition in topic.partitions:
            partition.open()
        rounds = bench.core.housekeeping
        counts = []
        for begin in (rounds._retain, rounds._clean, rounds._forget_producers):
            counts += [operations(begin), *settle(bench)]
        longest.append(max(counts))
    assert longest[1] < 1.2 * longest[0]


def test_retention_and_compaction_have_the_intervals_of_their_settings() -> None:
    bench = Bench(**{"log.retention.check.interval.ms": 100_000, "log.cleaner.backoff.ms": 20_000})
    both = aged(bench, "both", 1, cleanup_policy="compact,delete")
    bench.advance(21)
    assert starts(both) == {1}  # retention of compacted logs comes with compaction
    bench.advance(10)  # the first retention
    plain = aged(bench, "plain", 1)
    bench.advance(60)
    assert starts(plain) == {0}
    bench.advance(50)
    assert starts(plain) == {1}


def test_a_long_compaction_delays_neither_retention_nor_the_removal_of_files() -> None:
    long, short = WhenTold(), WhenTold()
    short.run_slow = long.run  # type: ignore[method-assign]
    bench = Bench(MemoryDisk(is_simulated=True), runner=short, **{"log.retention.check.interval.ms": 30_000})
    bench.core.housekeeping.start(Work("compact for hours", lambda: None))
    logs = aged(bench, "orders", 1, file_delete_delay_ms="0")
    bench.advance(31)
    assert starts(logs) == {1}
    assert len(long.waiting) == 1
    short.run_all()
    files = [name for name in bench.disk.list("orders-0") if name.endswith(".log")]
    assert files == ["00000000000000000001.log"]
