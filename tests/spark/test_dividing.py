"""A micro-batch that always fails because of a record (option maxBatchFailures): the record is found and rejected.

Whatever happens on the way, each record has one effect, or a dead letter, and not both.
"""

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming import StreamingQuery

from headrace.spark import process
from headrace.spark.checkpoint import sources_in
from headrace.spark.driver import Driver
from headrace.spark.errors import CheckpointError
from headrace.spark.offset import AcquiredOffset
from headrace.spark.outcomes import OutcomeLog
from headrace.spark.runs import RunSet
from headrace.testing import ApacheKafka
from tests.spark.conftest import WAIT_S, Effects, Queue, make_queue, wait_for
from tests.spark.test_driver import Open, initial, kill, opened, records, write_log
from tests.spark.test_outcomes_on_spark import make_letters, read_letters

__all__ = ["opened"]
pytestmark = pytest.mark.timeout(240)
STARTS_MAX = 200
FAILURES = 2
Places = set[tuple[int, int]]


class Crashed(Exception):
    pass


class Query:
    """Spark's calls in Spark's order, on a driver at a time, with a function and a sink that replaces."""

    def __init__(self, opened: Open, queue: Queue, folder: Path, is_bad: Callable[[int, int], bool]) -> None:
        self.opened = opened
        self.queue = queue
        self.folder = folder
        self.is_bad = is_bad
        self.chance = random.Random(0)
        self.crash_rate = self.trouble_rate = 0.0
        self.options: dict[str, object] = {}
        self.sink: dict[int, Places] = {}
        self.attempts: list[tuple[int, int]] = []
        """Batch id and number of records."""
        self.starts = 0

    @property
    def notes(self) -> OutcomeLog:
        return OutcomeLog(self.folder / "share-outcomes")

    def run(self, **options: object) -> None:
        """Starts it again and again until it has drained the queue."""
        self.options = {"checkpointLocation": self.folder, "maxBatchFailures": FAILURES, **options}
        while not self.start():
            assert self.starts < STARTS_MAX, f"it does not come to an end: {self.attempts[-20:]}"

    def start(self) -> bool:
        self.starts += 1
        driver = self.opened(drain=True, **self.options)
        try:
            self.live(driver)
        except Crashed:
            kill(driver)
            return False
        except ValueError:
            driver.close()
            return False
        driver.close()
        return True

    def live(self, driver: Driver) -> None:
        end, batch_id = self.newest()
        if end is not None and not (self.folder / "commits" / str(batch_id)).exists():
            self.micro_batch(driver, end, batch_id)
        start = end or initial(self.queue)
        while (end := driver.latest(start, 12)) != start:
            self.perhaps_crash()
            batch_id += 1
            write_log(self.folder, "offsets", batch_id, end)
            self.perhaps_crash()
            if start["seq"]:
                driver.commit(start)
            self.micro_batch(driver, end, batch_id)
            start = end

    def micro_batch(self, driver: Driver, end: dict[str, Any], batch_id: int) -> None:
        given = places(driver.log(end).batch)
        self.perhaps_crash()
        self.attempts.append((batch_id, len(given)))
        try:
            self.perhaps_fail()
            self.sink[batch_id] = set()  # it has begun to replace what is there
            if any(self.is_bad(*each) for each in given):
                raise ValueError("a bad record")
            self.sink[batch_id] = given
            self.perhaps_crash()
            self.perhaps_fail()
        except ValueError as error:
            self.notes.add_failure(batch_id, f"ValueError: {error}")
            raise
        self.notes.write(batch_id, [])
        self.perhaps_crash()
        write_log(self.folder, "commits", batch_id, end)
        self.perhaps_crash()

    def newest(self) -> tuple[dict[str, Any] | None, int]:
        logged = [int(path.name) for path in (self.folder / "offsets").glob("[0-9]*")]
        if not logged:
            return None, -1
        (found,) = sources_in(self.folder / "offsets" / str(max(logged)))
        return found, max(logged)

    def perhaps_crash(self) -> None:
        if self.chance.random() < self.crash_rate:
            raise Crashed

    def perhaps_fail(self) -> None:
        if self.chance.random() < self.trouble_rate:
            raise ValueError("the sink is away")

    @property
    def effects(self) -> list[tuple[int, int]]:
        return sorted(each for batch in self.sink.values() for each in batch)


def places(runs: RunSet) -> Places:
    return {(place[1], offset) for place, run in runs for offset in range(run.first, run.last + 1)}


def letters_of(queue: Queue, letters: str) -> list[tuple[int, int]]:
    """Where the dead letters come from; each may be there twice."""
    found = {
        (int(headers["__dlq.errors.partition"]), int(headers["__dlq.errors.offset"]))
        for _, headers in read_letters(queue, letters)
    }
    return sorted(found)


def everything(queue: Queue) -> list[tuple[int, int]]:
    return sorted((number % 2, number // 2) for number in range(queue.sent))


MODES: list[dict[str, object]] = [
    {"acknowledge": "commit"},
    {"acknowledge": "handoff"},
    {"acknowledge": "handoff", "maxRecordsAhead": 1_000},
]


@pytest.mark.parametrize("options", MODES, ids=["commit", "handoff", "ahead"])
@pytest.mark.parametrize("seed", range(4))
def test_each_record_has_one_effect_or_a_dead_letter_whatever_happens_on_the_way(
    opened: Open, queue: Queue, tmp_path: Path, seed: int, options: dict[str, object]
) -> None:
    queue.send(40)
    chance = random.Random(seed)
    bad = set(chance.sample(everything(queue), 3))
    query = Query(opened, queue, tmp_path, lambda *place: place in bad)
    query.chance, query.crash_rate, query.trouble_rate = chance, 0.03, 0.05
    letters = make_letters(queue)
    query.run(deadLetterTopic=letters, **options)
    rejected = letters_of(queue, letters)
    assert bad <= set(rejected)
    assert sorted([*query.effects, *rejected]) == everything(queue)
    wait_for(lambda: queue.lag() == 0)


def poisoned(opened: Open, queue: Queue, folder: Path, *bad: int) -> tuple[Query, str]:
    """A query over 12 records, of which some are bad, by number."""
    queue.send(12)
    query = Query(opened, queue, folder, lambda partition, offset: 2 * offset + partition in bad)
    return query, make_letters(queue)


def test_a_micro_batch_is_divided_after_its_failures_and_each_part_after_one(
    opened: Open, queue: Queue, tmp_path: Path
) -> None:
    query, letters = poisoned(opened, queue, tmp_path, 1)
    query.run(deadLetterTopic=letters)
    rest = [(1, 1), (2, 2), (3, 4), (4, 4)]
    assert query.attempts == [(0, 12), (0, 12), (0, 6), (0, 3), (0, 1), (0, 1), (0, 0), *rest]
    assert letters_of(queue, letters) == [(1, 0)]
    assert read_letters(queue, letters)[0][1]["__dlq.errors.message"] == b"ValueError: a bad record"


def test_without_the_option_a_micro_batch_is_never_divided(
    opened: Open, queue: Queue, tmp_path: Path
) -> None:
    query, letters = poisoned(opened, queue, tmp_path, 0)
    query.options = {"checkpointLocation": tmp_path, "deadLetterTopic": letters}
    assert [query.start() for _ in range(5)] == 5 * [False]
    assert query.attempts == 5 * [(0, 12)]
    query.run(deadLetterTopic=letters)  # the option helps a query that fails already
    assert sorted([*query.effects, (0, 0)]) == everything(queue)


def test_what_is_left_of_a_divided_micro_batch_survives_a_change_of_options(
    opened: Open, queue: Queue, tmp_path: Path
) -> None:
    query, letters = poisoned(opened, queue, tmp_path, 11)
    query.options = {"checkpointLocation": tmp_path, "maxBatchFailures": 1, "deadLetterTopic": letters}
    assert not query.start()
    end, _ = query.newest()
    driver = opened(**query.options)
    assert len(places(driver.log(end).batch)) == 6
    query.sink[0] = places(driver.log(end).batch)
    write_log(tmp_path, "commits", 0, end)
    kill(driver)  # the part is committed, and not settled
    with pytest.raises(CheckpointError, match=r"maxBatchFailures.*Give readStream the checkpointLocation"):
        opened(drain=True).latest(end, None)
    query.is_bad = lambda *_: False
    query.options = {"checkpointLocation": tmp_path, "acknowledge": "handoff"}
    assert query.start()
    assert query.effects == everything(queue)
    wait_for(lambda: queue.lag() == 0)


def test_notes_that_are_gone_after_a_part_was_committed_are_missed(
    opened: Open, queue: Queue, tmp_path: Path
) -> None:
    """Or the part that was not run would count as processed."""
    query, letters = poisoned(opened, queue, tmp_path, 11)
    query.options = {"checkpointLocation": tmp_path, "maxBatchFailures": 1, "deadLetterTopic": letters}
    assert not query.start()
    end, _ = query.newest()
    assert end is not None
    driver = opened(**query.options)
    assert len(places(driver.log(end).batch)) == 6
    write_log(tmp_path, "commits", 0, end)
    kill(driver)  # the part is committed, and not settled
    shutil.move(tmp_path / "share-outcomes", tmp_path / "elsewhere")
    for _ in range(2):
        with pytest.raises(CheckpointError, match=r"share-outcomes.*is missing.*Restore it"):
            opened(**query.options).latest(end, None)
    assert queue.lag() == 12
    shutil.move(tmp_path / "elsewhere", tmp_path / "share-outcomes")
    assert records(opened(**query.options).latest(end, None)) == 6, "the other part"


def test_a_part_that_has_succeeded_is_not_divided_though_its_replay_fails(
    opened: Open, queue: Queue, tmp_path: Path
) -> None:
    query, letters = poisoned(opened, queue, tmp_path, 0)
    query.options = {"checkpointLocation": tmp_path, "maxBatchFailures": 1, "deadLetterTopic": letters}
    assert not query.start()
    query.notes.write(0, [])  # it has succeeded, and Spark was killed before its commit
    assert [query.start() for _ in range(3)] == 3 * [False]
    assert query.attempts == 4 * [(0, 12)]


def test_a_micro_batch_in_which_several_sources_have_records_is_not_divided(
    opened: Open, queue: Queue, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    query, letters = poisoned(opened, queue, tmp_path, 0)
    query.options = {"checkpointLocation": tmp_path, "maxBatchFailures": 1, "deadLetterTopic": letters}
    assert not query.start()
    with (tmp_path / "offsets" / "0").open("a") as log:
        log.write("\n17")  # Spark's rate source
    assert not query.start()
    assert query.attempts == 2 * [(0, 12)]
    assert "other sources of the query have records in it, too" in caplog.text


def test_a_sink_that_skips_batch_ids_doubles_what_is_left_of_a_divided_micro_batch(
    opened: Open, queue: Queue, tmp_path: Path
) -> None:
    """Why the sink must replace."""
    query, letters = poisoned(opened, queue, tmp_path, 1)
    skipping: dict[int, Places] = {}

    def skip_and_fail(partition: int, offset: int) -> bool:
        batch_id, _ = query.attempts[-1]
        if batch_id not in skipping:
            skipping[batch_id] = places(AcquiredOffset.from_json(query.newest()[0] or {}).batch)
        return (partition, offset) == (1, 0)

    query.is_bad = skip_and_fail
    query.run(deadLetterTopic=letters)
    doubled = sum(map(len, skipping.values())) - len(everything(queue))
    assert doubled == 11


# on Spark


def start_until_drained(make: Callable[[], Any], starts_max: int) -> list[str]:
    """Runs a query as its supervisor would; returns the errors that it ended with."""
    errors: list[str] = []
    for _ in range(starts_max):
        query: StreamingQuery = make().trigger(availableNow=True).start()
        try:
            assert query.awaitTermination(WAIT_S)
        except StreamingQueryException as error:
            errors.append(str(error))
        else:
            return errors
    raise AssertionError(f"{starts_max} starts were not enough: {errors[-1]}")


def send_with_a_bad_one(queue: Queue, bad: int) -> str:
    queue.send(10, lambda number: b"stone" if number == bad else b"%d" % number)
    return make_letters(queue)


def check_that_the_bad_one_is_found(
    spark: SparkSession, queue: Queue, effects: Effects, acknowledge: str
) -> None:
    letters = send_with_a_bad_one(queue, 3)
    options = {"acknowledge": acknowledge, "deadLetterTopic": letters, "maxBatchFailures": 1}

    def handle(batch: DataFrame, batch_id: int) -> None:
        parsed = F.udf(lambda value: int(value), "int")
        effects(batch.withColumn("number", parsed("value")), batch_id)

    errors = start_until_drained(lambda: process(queue.stream(spark, **options), handle), 9)
    assert 3 <= len(errors) <= 8, "it does not take more starts than halves"
    assert sorted(row["number"] for row in effects.rows) == [n for n in range(10) if n != 3]
    ((value, headers),) = read_letters(queue, letters)
    assert value == b"stone"
    assert headers["__dlq.errors.message"].startswith(b"ValueError: invalid literal for int()")
    wait_for(lambda: queue.lag() == 0)


@pytest.mark.parametrize("acknowledge", ["commit", "handoff"])
def test_a_record_that_a_task_fails_on_is_found_and_rejected_with_the_error(
    spark: SparkSession, queue: Queue, effects: Effects, acknowledge: str
) -> None:
    check_that_the_bad_one_is_found(spark, queue, effects, acknowledge)


@pytest.mark.needs_kafka
@pytest.mark.parametrize("acknowledge", ["commit", "handoff"])
def test_a_record_that_a_task_fails_on_is_found_and_rejected_on_apache_kafka(
    spark: SparkSession, apache: ApacheKafka, unique: str, tmp_path: Path, effects: Effects, acknowledge: str
) -> None:
    queue = make_queue(apache.bootstrap_servers, unique, tmp_path)
    check_that_the_bad_one_is_found(spark, queue, effects, acknowledge)


def test_a_query_that_is_stopped_or_cannot_read_its_records_has_not_failed_on_one(
    spark: SparkSession, queue: Queue
) -> None:
    letters = send_with_a_bad_one(queue, 3)
    options = {"deadLetterTopic": letters, "maxBatchFailures": 1, "kafka.default.api.timeout.ms": 2_000}
    notes = OutcomeLog(Path(queue.checkpoint) / "share-outcomes")
    started: list[int] = []

    def wait(batch: DataFrame, batch_id: int) -> None:
        started.append(batch_id)
        batch.select(F.udf(lambda _: Event().wait(WAIT_S), "boolean")("value")).collect()

    query = process(queue.stream(spark, **options), wait).start()
    wait_for(lambda: bool(started))
    query.stop()
    assert notes.failures(0).times == 0

    with queue.admin() as admin:
        admin.delete_records({(queue.topic, 0): 3, (queue.topic, 1): 3})

    def read(batch: DataFrame, batch_id: int) -> None:
        batch.collect()

    query = process(queue.stream(spark, **options), read).start()
    with pytest.raises(StreamingQueryException, match="DataLossError"):
        query.awaitTermination(WAIT_S)
    assert notes.failures(0).times == 0
