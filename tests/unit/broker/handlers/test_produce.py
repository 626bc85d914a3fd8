"""Produce to topics whose records have to be opened: nothing large is opened on the event loop."""

from collections.abc import Mapping
from typing import Any

import pytest

from headrace.broker.call import Call
from headrace.broker.handlers.produce import OPENED_AT_ONCE_MAX
from headrace.broker.later import Later
from headrace.broker.runner import Done, OneAtATime, Work
from headrace.log import validation
from headrace.log.times import at_once, offset_for_time, search_max_timestamp
from headrace.wire.batches import Compression, read_header
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from headrace.wire.messages.produce_response import PartitionProduceResponse, ProduceResponse
from headrace.wire.records import NewRecord, build_batch, read_records
from tests.unit.broker.share.bench import Bench, WhenTold

COMPACTED = {"cleanup.policy": "compact"}


@pytest.fixture
def runner() -> WhenTold:
    return WhenTold()


@pytest.fixture
def bench(runner: WhenTold) -> Bench:
    return Bench(runner=runner)


@pytest.fixture
def unpacked(monkeypatch: pytest.MonkeyPatch) -> list[int | None]:
    """The limits that batches were unpacked with."""
    limits: list[int | None] = []

    def unpack(batch: bytes, *, limit: int | None = None) -> bytes:
        limits.append(limit)
        return original(batch, limit=limit)

    original = validation.unpack
    monkeypatch.setattr(validation, "unpack", unpack)
    return limits


def make(bench: Bench, name: str, configs: Mapping[str, str]) -> None:
    bench.core.topics.create(name, partitions=1, configs=configs)


def batch(bench: Bench, *values: bytes, key: bytes | None = b"k", codec: int = Compression.ZSTD) -> bytes:
    return build_batch(
        [NewRecord(key, value, (), bench.clock.wall_ms()) for value in values], compression=codec
    )


def produce(bench: Bench, data: Mapping[str, bytes], *, acks: int = 1) -> Any:
    request = ProduceRequest(
        acks=acks,
        topic_data=[
            TopicProduceData(name=name, partition_data=[PartitionProduceData(index=0, records=records)])
            for name, records in data.items()
        ],
    )
    return bench.core.handle(request, Call(api_version=12, connection_id=1))


def results(answer: Any) -> list[PartitionProduceResponse]:
    response = answer.value if isinstance(answer, Later) else answer
    assert isinstance(response, ProduceResponse)
    return [partition for topic in response.responses for partition in topic.partition_responses]


def end_offset(bench: Bench, topic: str) -> int:
    return bench.core.topics.require(topic, 0).log.end_offset


def test_a_small_batch_for_a_compacted_topic_is_opened_at_once(bench: Bench, runner: WhenTold) -> None:
    make(bench, "c", COMPACTED)
    (result,) = results(produce(bench, {"c": batch(bench, b"x" * 1000)}))
    assert result.error_code == 0
    assert not runner.waiting


def test_a_few_bytes_that_unpack_to_much_are_refused_without_the_loop_unpacking_them(
    bench: Bench, runner: WhenTold, unpacked: list[int | None]
) -> None:
    make(bench, "c", COMPACTED)
    bomb = batch(bench, bytes(validation.OPENED_BYTES_MAX))
    assert len(bomb) < 10_000
    answer = produce(bench, {"c": bomb})
    assert unpacked == [validation.AT_ONCE_BYTES_MAX]
    assert not answer.is_done
    assert answer.is_exclusive
    runner.run_all()
    (result,) = results(answer)
    assert result.error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert "unpacks to more than 33554432 bytes" in (result.error_message or "")
    assert "send smaller batches" in (result.error_message or "")
    assert end_offset(bench, "c") == 0


def test_a_large_batch_is_opened_on_a_worker_and_then_written_with_the_rest_of_its_request(
    bench: Bench, runner: WhenTold
) -> None:
    make(bench, "c", COMPACTED)
    make(bench, "plain", {})
    large = batch(bench, bytes(3_000_000), b"small")
    answer = produce(bench, {"plain": batch(bench, b"x"), "c": large})
    assert end_offset(bench, "plain") == end_offset(bench, "c") == 0
    runner.run_all()
    assert [result.error_code for result in results(answer)] == [0, 0]
    assert (end_offset(bench, "plain"), end_offset(bench, "c")) == (1, 2)


def test_many_records_are_opened_on_a_worker_even_if_they_are_small(bench: Bench, runner: WhenTold) -> None:
    make(bench, "c", COMPACTED)
    values = [b""] * (validation.AT_ONCE_RECORDS_MAX + 1)
    answer = produce(bench, {"c": batch(bench, *values, codec=Compression.NONE)})
    assert not answer.is_done
    runner.run_all()
    assert results(answer)[0].error_code == 0


def test_the_rules_hold_on_a_worker_too(bench: Bench, runner: WhenTold) -> None:
    make(bench, "c", COMPACTED)
    answer = produce(bench, {"c": batch(bench, bytes(2_000_000), b"y", key=None)})
    runner.run_all()
    (result,) = results(answer)
    assert result.error_code == ErrorCode.INVALID_RECORD
    assert [error.batch_index for error in result.record_errors] == [0, 1]


def test_a_topic_that_goes_meanwhile_is_unknown(bench: Bench, runner: WhenTold) -> None:
    make(bench, "c", COMPACTED)
    answer = produce(bench, {"c": batch(bench, bytes(2_000_000))})
    bench.core.topics.delete("c")
    runner.run_all()
    assert results(answer)[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_topic_with_its_own_codec_packs_large_batches_on_a_worker(bench: Bench, runner: WhenTold) -> None:
    make(bench, "z", {"compression.type": "gzip"})
    small = produce(bench, {"z": batch(bench, b"small")})
    assert results(small)[0].error_code == 0
    large = produce(bench, {"z": batch(bench, bytes(2_000_000))})
    assert not large.is_done
    runner.run_all()
    assert results(large)[0].error_code == 0
    batches = list(bench.core.topics.require("z", 0).log.reader.batches())
    assert [read_header(one).compression for one in batches] == [Compression.GZIP] * 2
    assert [len(read_records(one)[0].value or b"") for one in batches] == [5, 2_000_000]


def test_without_acks_a_large_batch_is_written_and_nothing_is_answered(
    bench: Bench, runner: WhenTold
) -> None:
    make(bench, "c", COMPACTED)
    answer = produce(bench, {"c": batch(bench, bytes(2_000_000))}, acks=0)
    runner.run_all()
    assert answer.value is None
    assert end_offset(bench, "c") == 1


def test_a_batch_that_claims_a_later_time_is_refused_without_unpacking_much(
    bench: Bench, unpacked: list[int | None]
) -> None:
    make(bench, "t", {})
    late = bench.clock.wall_ms() + 10 * 24 * 3600 * 1000
    bomb = build_batch([NewRecord(b"k", bytes(20_000_000), (), late)], compression=Compression.ZSTD)
    (result,) = results(produce(bench, {"t": bomb}))
    assert result.error_code == ErrorCode.INVALID_TIMESTAMP
    assert unpacked == [validation.AT_ONCE_BYTES_MAX]


def test_one_request_is_prepared_at_a_time() -> None:
    waiting: list[tuple[Work, Done]] = []
    done: list[str] = []
    one = OneAtATime(lambda work, ended: waiting.append((work, ended)))
    for name in "ab":
        one.run(lambda: None, lambda _, name=name: done.append(name))  # type: ignore[misc]
    assert len(waiting) == 1
    waiting.pop()[1](None)
    assert done == ["a"]
    assert len(waiting) == 1
    waiting.pop()[1](None)
    assert done == ["a", "b"]
    assert not waiting


def test_a_search_by_time_answers_with_the_beginning_of_a_batch_that_is_too_large_to_open(
    bench: Bench,
) -> None:
    make(bench, "t", {})
    now_ms = bench.clock.wall_ms()
    log = bench.core.topics.require("t", 0).log
    log.append(build_batch([NewRecord(None, b"x", (), now_ms - 5)]), now_ms=now_ms)
    log.append(
        build_batch(
            [NewRecord(None, bytes(9_000_000), (), now_ms), NewRecord(None, b"", (), now_ms + 5)],
            compression=Compression.ZSTD,
        ),
        now_ms=now_ms,
    )
    assert offset_for_time(log, now_ms + 5) == (now_ms + 5, 1)
    assert at_once(search_max_timestamp(log)) == (now_ms + 5, 2)


def test_of_many_small_batches_only_a_few_are_opened_on_the_loop(
    bench: Bench, runner: WhenTold, unpacked: list[int | None]
) -> None:
    names = [f"c{number}" for number in range(OPENED_AT_ONCE_MAX + 3)]
    for name in names:
        make(bench, name, COMPACTED)
    answer = produce(bench, {name: batch(bench, b"x") for name in names})
    assert len(unpacked) == OPENED_AT_ONCE_MAX
    runner.run_all()
    assert [result.error_code for result in results(answer)] == [0] * len(names)


def test_a_partition_that_is_not_there_does_not_have_the_others_opened_on_the_loop(
    bench: Bench, runner: WhenTold, unpacked: list[int | None]
) -> None:
    make(bench, "c", COMPACTED)
    large = batch(bench, bytes(3_000_000))
    partitions = [PartitionProduceData(index=index, records=large) for index in (7, 0)]
    request = ProduceRequest(acks=1, topic_data=[TopicProduceData(name="c", partition_data=partitions)])
    answer = bench.core.handle(request, Call(api_version=12, connection_id=1))
    assert unpacked == [validation.AT_ONCE_BYTES_MAX]
    runner.run_all()
    assert [one.error_code for one in results(answer)] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0]
