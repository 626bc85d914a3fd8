"""What a query does when something it rests on is lost: records of a logged micro-batch, a topic, its checkpoint.

Goal: what is gone is named, nothing else is lost, and whoever says failOnDataLoss=false goes on. The log loses records
by retention (the broker's clock is turned) or by DeleteRecords, between a micro-batch's plan and its tasks, or between
a query's death and its replay.
"""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from headrace import Broker
from headrace.client.delivery import AcknowledgeType
from headrace.spark.outcomes import Outcome, OutcomeLog
from tests.spark.conftest import GROUP_SETTINGS, Effects, Queue, drain, make_queue, wait_for
from tests.spark.test_driver import Open, drained, hold_all, initial, kill, opened, records, write_log
from tests.spark.test_outcomes_on_spark import make_letters, read_letters

__all__ = ["opened"]
pytestmark = pytest.mark.timeout(180)
MODES = pytest.mark.parametrize("acknowledge", ["commit", "handoff"])
HOUR_S = 3_600


@pytest.fixture(scope="module")
def own_broker() -> Iterator[Broker]:
    """A broker whose clock these tests turn."""
    with Broker(settings=GROUP_SETTINGS) as running:
        yield running


@pytest.fixture
def queue(own_broker: Broker, unique: str, tmp_path: Path) -> Queue:
    return make_queue(own_broker.bootstrap_servers, unique, tmp_path / "queue")


class Stumbling(Effects):
    """Does something in one micro-batch before its records are read; then, if told so, fails as user code may."""

    def __init__(self, at: int, before: Callable[[], object], *, fails: bool = False) -> None:
        super().__init__()
        self.unfinished: list[int] = []
        self._at, self._before, self._fails = at, before, fails

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        if batch_id != self._at:
            super().__call__(batch, batch_id)
            return
        self._before()
        if self._fails:
            self.unfinished = sorted(int(row["value"]) for row in batch.collect())
            raise RuntimeError("the sink is away")
        super().__call__(batch, batch_id)


def fails(stream: DataFrame, effects: Effects, queue: Queue) -> str:
    """Runs a query that must fail; returns what the user reads."""
    with pytest.raises(StreamingQueryException) as caught:
        drain(stream, effects, queue)
    return str(caught.value)


def lose_by_deletion(queue: Queue, broker: Broker) -> None:
    with queue.admin() as admin:
        admin.delete_records({(queue.topic, 0): 25})


def lose_by_retention(queue: Queue, broker: Broker) -> None:
    """All that is there; then something new."""
    with queue.admin() as admin:
        admin.set_topic_config(queue.topic, {"retention.ms": 60_000})
    broker.advance(HOUR_S)
    with queue.admin() as admin:
        wait_for(
            lambda: (
                admin.describe_topics([queue.topic], offsets=True)[queue.topic].partitions[0].start_offset > 0
            )
        )


@pytest.mark.parametrize("lose", [lose_by_deletion, lose_by_retention])
def test_a_micro_batch_whose_records_the_log_loses_under_it_fails_and_names_the_offsets(
    spark: SparkSession, own_broker: Broker, queue: Queue, lose: Callable[[Queue, Broker], None]
) -> None:
    queue.send(100)
    effects = Stumbling(0, lambda: lose(queue, own_broker))
    text = fails(queue.stream(spark), effects, queue)
    assert f"Offsets 0 to 49 of {queue.topic}-0 belong to a micro-batch that Spark has logged" in text
    assert "failOnDataLoss=false" in text
    assert effects.rows == []


@MODES
def test_a_replay_whose_records_are_gone_fails_until_it_may_go_on_without_them(
    spark: SparkSession, own_broker: Broker, queue: Queue, acknowledge: str
) -> None:
    for _ in range(10):
        queue.send(10)  # in several batches, because the log gives a batch whole that it has lost half of
    first = Stumbling(0, lambda: None, fails=True)
    assert "the sink is away" in fails(queue.stream(spark, acknowledge=acknowledge), first, queue)
    lose_by_deletion(queue, own_broker)
    effects = Effects()
    text = fails(queue.stream(spark, acknowledge=acknowledge), effects, queue)
    assert f"Offsets 0 to 49 of {queue.topic}-0" in text
    assert effects.rows == []

    queue.send(20)
    drain(queue.stream(spark, acknowledge=acknowledge, failOnDataLoss="false"), effects, queue)
    lost = set(range(0, 50, 2))  # offsets 0 to 24 of partition 0
    assert effects.numbers == [number for number in range(120) if number not in lost]
    assert queue.lag() == 0


def remake(queue: Queue) -> None:
    with queue.admin() as admin:
        admin.delete_topics([queue.topic])
        admin.create_topic(queue.topic, partitions=queue.partitions)
    queue.sent = 1_000
    queue.send(30)


@MODES
def test_a_topic_that_is_deleted_under_a_micro_batch_is_named(
    spark: SparkSession, queue: Queue, acknowledge: str
) -> None:
    def delete() -> None:
        with queue.admin() as admin:
            admin.delete_topics([queue.topic])

    queue.send(100)
    queue.options["kafka.default.api.timeout.ms"] = "3000"  # how long a topic may be away before it is gone
    text = fails(queue.stream(spark, acknowledge=acknowledge), Stumbling(0, delete), queue)
    assert f"topic {queue.topic} is not there" in text


@MODES
def test_a_topic_that_was_made_again_is_another_topic_for_the_replay_and_for_what_follows(
    spark: SparkSession, queue: Queue, acknowledge: str
) -> None:
    queue.send(100)
    fails(queue.stream(spark, acknowledge=acknowledge), Stumbling(0, lambda: None, fails=True), queue)
    remake(queue)
    effects = Effects()
    text = fails(queue.stream(spark, acknowledge=acknowledge), effects, queue)
    assert f"topic {queue.topic} was deleted and created again" in text

    drain(queue.stream(spark, acknowledge=acknowledge, failOnDataLoss="false"), effects, queue)
    assert effects.numbers == list(range(1_000, 1_030)), "none of the new topic's records counts as processed"
    assert queue.lag() == 0


def test_a_running_query_goes_on_with_a_topic_that_was_made_again(
    spark: SparkSession, queue: Queue, effects: Effects
) -> None:
    queue.send(100)
    writer = queue.stream(spark).writeStream.foreachBatch(effects)
    query = writer.option("checkpointLocation", queue.checkpoint).start()
    try:
        wait_for(lambda: len(effects.rows) == 100)
        remake(queue)
        wait_for(lambda: len(effects.rows) >= 130 or not query.isActive)
        wait_for(lambda: queue.lag() == 0)
        assert query.isActive, query.exception()
    finally:
        query.stop()
    assert effects.numbers == [*range(100), *range(1_000, 1_030)]


@MODES
def test_with_the_checkpoint_goes_what_was_handed_off_and_not_finished_and_nothing_else(
    spark: SparkSession, queue: Queue, acknowledge: str
) -> None:
    queue.send(100)
    first = Stumbling(1, lambda: None, fails=True)
    fails(queue.stream(spark, acknowledge=acknowledge, maxRecordsPerTrigger=30), first, queue)
    assert first.unfinished, "Spark had logged a micro-batch that it did not finish"
    shutil.rmtree(queue.checkpoint)
    second = Effects()
    drain(queue.stream(spark, acknowledge=acknowledge), second, queue)
    lost = first.unfinished if acknowledge == "handoff" else []
    assert sorted(first.numbers + second.numbers) == [each for each in range(100) if each not in lost]
    assert queue.lag() == 0


def test_without_the_checkpoint_records_that_were_not_confirmed_come_again_as_new_ones(
    own_broker: Broker, opened: Open, queue: Queue
) -> None:
    queue.send(100)
    first = opened()
    hold_all(first, queue)
    end = first.latest(initial(queue), None)
    first.log(end)
    kill(first)  # Spark has committed the micro-batch; nothing is acknowledged
    own_broker.advance(60)  # the dead member's session ends: without a checkpoint nobody takes its id back
    assert records(opened().latest(initial(queue), None)) == records(end) == 100


def test_a_rejected_record_that_the_log_has_lost_gets_no_copy_and_stops_nothing(
    opened: Open, queue: Queue, tmp_path: Path
) -> None:
    for _ in range(10):
        queue.send(10)
    letters = make_letters(queue)
    options = {"checkpointLocation": tmp_path, "deadLetterTopic": letters}
    first = opened(**options)
    hold_all(first, queue)
    end = first.latest(initial(queue), None)
    write_log(tmp_path, "offsets", 0, end)
    first.log(end)
    rejected = Outcome(queue.topic, 0, 24, 25, 1, AcknowledgeType.REJECT, "no customer")
    OutcomeLog(tmp_path / "share-outcomes").write(0, [rejected])
    kill(first)
    write_log(tmp_path, "commits", 0, end)
    with queue.admin() as admin:
        admin.delete_records({(queue.topic, 0): 25})
    assert drained(opened(**options, drain=True), end) == []
    ((value, _),) = read_letters(queue, letters)
    assert value == b"50", "the one that is still there"
    assert queue.lag() == 0
