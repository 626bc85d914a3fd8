"""Sentences of docs/concepts/spark-guarantees.md that no other file shows: Spark's calls, the journal, the small print.

Spark's calls are made by hand, but where the sentence is about Spark itself.
"""

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadLimit

from headrace import Broker
from headrace.client.delivery import AcknowledgeType
from headrace.spark.driver import Driver
from headrace.spark.offset import AcquiredOffset
from headrace.spark.options import SourceOptions
from headrace.spark.outcomes import Outcome, OutcomeLog
from headrace.spark.reader import ShareStreamReader
from headrace.spark.runs import RunSet
from headrace.spark.source import KafkaShareSource
from tests.spark.conftest import GROUP_SETTINGS, Effects, Queue, drain, make_queue, wait_for
from tests.spark.test_driver import Open, drained, initial, kill, opened, records, write_log
from tests.spark.test_kept_locks import holding_all, paused
from tests.spark.test_lost_locks import open_driver
from tests.spark.test_members import own_consumer
from tests.spark.test_outcomes_on_spark import make_letters, read_letters

__all__ = ["opened"]
pytestmark = pytest.mark.timeout(180)
MODES = pytest.mark.parametrize("acknowledge", ["commit", "handoff"])


def on(*brokers: str) -> pytest.MarkDecorator:
    """Where the queue is: `broker` is ours; with `/1` the topic has one partition instead of two."""
    given = [
        pytest.param(each, marks=pytest.mark.needs_kafka if each.startswith("apache") else ())
        for each in brokers
    ]
    return pytest.mark.parametrize("queue", given, indirect=True)


BOTH = on("broker", "apache")
BOTH_NARROW = on("broker/1", "apache/1")
"""Of one partition every member has a part at once, also while the group has not missed a dead member yet."""


@pytest.fixture
def queue(request: pytest.FixtureRequest, unique: str, tmp_path: Path) -> Queue:
    """On our broker, unless the test names others."""
    name, _, partitions = getattr(request, "param", "broker").partition("/")
    servers = request.getfixturevalue(name).bootstrap_servers
    return make_queue(servers, unique, tmp_path / "queue", partitions=int(partitions or 2))


@pytest.fixture
def quick_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.spark.group_watch.POLL_S", 0.2)


def unconfirmed(driver: Driver) -> int:
    report = driver.report()
    assert report is not None
    return int(report["unconfirmed"])


# Spark's calls


def logged_offsets(checkpoint: str) -> dict[int, AcquiredOffset]:
    files = [path for path in (Path(checkpoint) / "offsets").iterdir() if path.name.isdigit()]
    return {
        int(path.name): AcquiredOffset.from_json(json.loads(path.read_text().splitlines()[2]))
        for path in files
    }


@MODES
def test_sparks_offset_log_holds_exactly_the_records_of_each_micro_batch(
    spark: SparkSession, queue: Queue, effects: Effects, acknowledge: str
) -> None:
    queue.send(1_000)
    drain(queue.stream(spark, acknowledge=acknowledge, maxRecordsPerTrigger=300), effects, queue)
    offsets = logged_offsets(queue.checkpoint)
    assert offsets.keys() == effects.batches.keys()
    for batch_id, offset in offsets.items():
        planned = {(place[1], at) for place, run in offset.batch for at in range(run.first, run.last + 1)}
        assert planned == {(row["partition"], row["offset"]) for row in effects.batches[batch_id]}
        before = offsets[batch_id - 1].batch if batch_id else RunSet()
        assert not offset.processed.minus(before), (
            "with all well, the journal has the last micro-batch at most"
        )


def test_spark_calls_when_its_logs_hold_what_the_source_relies_on(
    spark: SparkSession, queue: Queue, effects: Effects
) -> None:
    calls = queue.folder / "calls"
    checkpoint = Path(queue.checkpoint)

    def note(call: str, sequence: int) -> None:
        newest = {
            log: max((int(path.name) for path in (checkpoint / log).glob("[0-9]*")), default=-1)
            for log in ("offsets", "commits")
        }
        with calls.open("a") as file:
            file.write(json.dumps([call, sequence, newest["offsets"] + 1, newest["commits"] + 1]) + "\n")

    class Reader(ShareStreamReader):
        def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
            note("latestOffset", start["seq"])
            return super().latestOffset(start, limit)

        def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
            note("partitions", end["seq"])
            return super().partitions(start, end)

        def commit(self, end: dict[str, Any]) -> None:
            note("commit", end["seq"])
            super().commit(end)

    class Source(KafkaShareSource):
        @classmethod
        def name(cls) -> str:
            return "kafka-share-noting"

        def streamReader(self, schema: object) -> Reader:  # noqa: N802
            return Reader(SourceOptions.parse(self.options))

    spark.dataSource.register(Source)
    queue.send(100)
    options = {
        "kafka.bootstrap.servers": queue.bootstrap_servers,
        "subscribe": queue.topic,
        "kafka.group.id": queue.group,
        "startingOffsets": "earliest",
        "maxRecordsPerTrigger": "50",
        "checkpointLocation": queue.checkpoint,
    }
    drain(spark.readStream.format("kafka-share-noting").options(**options).load(), effects, queue)
    noted = [json.loads(line) for line in calls.read_text().splitlines()]
    assert {call for call, *_ in noted} == {"latestOffset", "partitions", "commit"}
    for call, sequence, logged, committed in noted:
        assert logged >= sequence, "what Spark speaks of is in its offset log"
        if call != "partitions":
            assert committed >= sequence, "and, but for what is to run now, in its commit log"
    assert noted[-1][0] == "latestOffset", "the last micro-batch is settled there: no commit comes for it"


def test_a_sink_that_is_not_repeatable_sees_a_micro_batch_again(spark: SparkSession, queue: Queue) -> None:
    queue.send(50)
    seen: list[int] = []

    def append(batch: DataFrame, batch_id: int) -> None:
        seen.extend(int(row["value"]) for row in batch.collect())
        if len(seen) == 50:
            raise RuntimeError("after the effect, before Spark's commit")

    with pytest.raises(Exception, match="after the effect"):
        drain(queue.stream(spark), append, queue)
    drain(queue.stream(spark), append, queue)
    assert sorted(seen) == sorted([*range(50)] * 2)


# When it dies


@BOTH_NARROW
@pytest.mark.parametrize(("acknowledge", "left"), [("commit", 100), ("handoff", 40)])
def test_a_dead_querys_records_go_to_others_unless_they_were_handed_off(
    opened: Open, queue: Queue, acknowledge: str, left: int
) -> None:
    queue.send(100)
    dying = holding_all(opened(acknowledge=acknowledge), queue)
    end = dying.latest(initial(queue), 60)
    assert records(end) == 60
    dying.log(end)
    if acknowledge == "handoff":
        wait_for(lambda: (dying.report() or {})["confirmed"] == 60)
    kill(dying)
    with own_consumer(queue) as other:
        wait_for(lambda: other.take() >= left)
        began = time.monotonic()
        while time.monotonic() - began < 1:  # that nothing more comes cannot be waited for
            assert other.take() == left


@MODES
def test_locks_of_a_query_whose_connections_stay_end_in_time_and_then_its_records_go_to_others(
    unique: str, tmp_path: Path, acknowledge: str
) -> None:
    with Broker(settings=GROUP_SETTINGS) as own_broker:
        queue = make_queue(own_broker.bootstrap_servers, unique, tmp_path, partitions=1)
        queue.send(100)
        dying = holding_all(open_driver(queue, acknowledge=acknowledge, pollTimeoutMs=50), queue)
        end = dying.latest(initial(queue), 60)
        dying.log(end)
        if acknowledge == "handoff":
            wait_for(lambda: (dying.report() or {})["confirmed"] == 60)
        with own_consumer(queue) as other, paused(dying):
            began = time.monotonic()
            while time.monotonic() - began < 1:  # that nothing comes cannot be waited for
                assert other.take() == 0
            own_broker.advance(31)
            wait_for(lambda: other.take() == (100 if acknowledge == "commit" else 40))
        dying.close()


# What is not promised


@BOTH_NARROW
def test_with_handoff_records_that_were_logged_and_not_yet_accepted_may_be_processed_by_two_members(
    opened: Open, queue: Queue
) -> None:
    queue.send(100)
    dying = holding_all(opened(acknowledge="handoff"), queue)
    end = dying.latest(initial(queue), 60)
    kill(dying)  # Spark has logged the micro-batch, and has not said so yet
    with own_consumer(queue) as other:
        wait_for(lambda: other.take() == 100)
    back = opened(acknowledge="handoff", pollTimeoutMs=50)
    assert back.log(end).batch.record_count == 60, "its own replay is whole"
    assert back.latest(end, None) == end, "and nothing comes to it as new"


@BOTH
def test_a_crash_before_the_offset_log_costs_a_delivery_and_the_limit_archives_the_record_unseen(
    opened: Open, queue: Queue, tmp_path: Path
) -> None:
    queue.send(10)
    with queue.admin() as admin:
        admin.set_group_config(queue.group, {"share.delivery.count.limit": 2})
    for count in (1, 2):
        driver = opened(checkpointLocation=tmp_path)
        end = driver.latest(initial(queue), None)
        assert {run.delivery_count for _, run in AcquiredOffset.from_json(end).batch} == {count}
        wait_for(lambda: driver._ledger.fresh.record_count + records(end) == 10)  # noqa: B023
        kill(driver)
    last = opened(checkpointLocation=tmp_path, drain=True)
    assert drained(last, initial(queue)) == []
    assert queue.lag() == 0


@BOTH
def test_a_record_in_sparks_offset_log_is_safe_from_the_delivery_limit(
    opened: Open, queue: Queue, tmp_path: Path
) -> None:
    queue.send(10)
    with queue.admin() as admin:
        admin.set_group_config(queue.group, {"share.delivery.count.limit": 2})
    driver = holding_all(opened(checkpointLocation=tmp_path), queue)
    end = driver.latest(initial(queue), None)
    write_log(tmp_path, "offsets", 0, end)
    for _ in range(3):
        assert driver.log(end).batch.record_count == 10, "replayed whole, however often"
        kill(driver)
        driver = opened(checkpointLocation=tmp_path, drain=True)
    driver.log(end)
    write_log(tmp_path, "commits", 0, end)
    assert drained(driver, end) == []
    assert queue.lag() == 0


@pytest.mark.parametrize("acknowledge", ["commit", "handoff"])
def test_a_rejection_that_was_written_before_a_crash_is_copied_after_it(
    opened: Open, queue: Queue, tmp_path: Path, acknowledge: str
) -> None:
    queue.send(10)
    letters = make_letters(queue)
    options = {"acknowledge": acknowledge, "checkpointLocation": tmp_path, "deadLetterTopic": letters}
    first = holding_all(opened(**options), queue)
    end = first.latest(initial(queue), None)
    write_log(tmp_path, "offsets", 0, end)
    first.log(end)
    rejected = Outcome(queue.topic, 0, 3, 3, 1, AcknowledgeType.REJECT, "ends in 6")
    OutcomeLog(tmp_path / "share-outcomes").write(0, [rejected])
    kill(first)
    write_log(tmp_path, "commits", 0, end)
    assert drained(opened(**options, drain=True), end) == []
    ((value, headers),) = read_letters(queue, letters)
    assert (value, headers["__dlq.errors.message"]) == (b"6", b"ends in 6")
    assert queue.lag() == 0


# The journal


def settled_and_killed(opened: Open, queue: Queue, records_max: int, **options: object) -> dict[str, Any]:
    """A query that dies when the broker has confirmed all of a micro-batch and nobody has written that down."""
    driver = holding_all(opened(pollTimeoutMs=50, **options), queue)
    end = driver.latest(initial(queue), records_max)
    driver.log(end)
    driver.latest(end, records_max)
    wait_for(lambda: (driver.report() or {})["confirmed"] == records_max)
    kill(driver)
    return end


@BOTH
def test_the_journal_forgets_what_the_group_has_no_lag_for(
    opened: Open, queue: Queue, quick_looks: None
) -> None:
    queue.send(100)
    end = settled_and_killed(opened, queue, 100)
    driver = opened(pollTimeoutMs=50)
    assert driver.latest(end, None) == end
    assert unconfirmed(driver) in (0, 100), "all at once, or not yet"
    wait_for(lambda: unconfirmed(driver) == 0)


def test_the_journal_forgets_what_the_start_offset_has_passed(
    opened: Open, queue: Queue, quick_looks: None
) -> None:
    queue.send(100)
    end = settled_and_killed(opened, queue, 60)
    driver = opened(pollTimeoutMs=5_000)
    following = driver.latest(end, None)
    assert records(following) > 0, "there is lag"
    wait_for(lambda: unconfirmed(driver) == 0)
    assert queue.lag() == 40


@BOTH_NARROW
def test_the_journal_forgets_what_the_state_topic_shows_as_settled(
    opened: Open, queue: Queue, quick_looks: None
) -> None:
    """Records before them are held by somebody, so neither the start offset nor the lag can tell."""
    queue.send(10)
    driver = holding_all(opened(), queue)
    first = driver.latest(initial(queue), 4)
    driver.log(first)
    waiting = AcquiredOffset.from_json(first).batch
    rest = driver._ledger.fresh
    driver._run(accept(driver, rest))
    wait_for(lambda: (driver.report() or {})["confirmed"] == 6)
    kill(driver)
    with queue.admin() as admin:
        offsets = admin.share_group_offsets(queue.group, [queue.topic])
    assert offsets[queue.topic, 0].start_offset in (0, None)
    left = AcquiredOffset(2, queue.group, first["m"], first["t"], waiting, rest)
    back = opened(pollTimeoutMs=50)
    back.log(left.to_json())
    assert queue.lag() == 4
    wait_for(lambda: unconfirmed(back) == 0)


async def accept(driver: Driver, runs: RunSet) -> None:
    acquirer = driver._acquirer
    assert acquirer is not None
    acquirer.acknowledge(runs)


@BOTH
def test_the_journal_does_not_grow_from_crash_to_crash(opened: Open, queue: Queue) -> None:
    """Each life ends when the broker has confirmed all and Spark's log does not say so."""
    queue.send(600)
    with queue.admin() as admin:  # each life acquires more than its micro-batch takes
        admin.set_group_config(queue.group, {"share.delivery.count.limit": 10})
    start = initial(queue)
    sizes = []
    for _ in range(6):
        driver = opened()
        end = driver.latest(start, 100)
        driver.log(end)
        sizes.append(AcquiredOffset.from_json(end).processed.record_count)
        wait_for(lambda: driver._ledger.held.record_count == records(end))  # noqa: B023
        driver._run(driver._settle(driver._acquirer))
        wait_for(lambda: driver._ledger.processed.record_count == 0)  # noqa: B023
        kill(driver)
        start = end
    # On a busy Apache Kafka the start offset may trail by a life. A leak would be 100, 200, 300, 400, 500.
    assert max(sizes) <= 200, sizes
