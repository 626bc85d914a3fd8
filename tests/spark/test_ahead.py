"""Records that are accepted ahead of micro-batches: a small window, crashes, back-pressure, who may have the log."""

import json
from pathlib import Path
from typing import Any

import pytest

from headrace.spark import ahead, checkpoint
from headrace.spark.driver import Driver
from headrace.spark.errors import CheckpointError
from headrace.spark.offset import AcquiredOffset
from headrace.spark.options import SourceOptions
from headrace.spark.settle import BatchLimits
from tests.spark.conftest import Queue, wait_for
from tests.spark.test_driver import Open, drained, initial, kill, opened, queue, records, write_log

pytestmark = pytest.mark.timeout(180)
__all__ = ["opened", "queue"]
WINDOW = 100
"""The smallest that Kafka allows."""
BATCHES_OVER = 50
"""A broker gives whole record batches, so the last one of each partition may reach beyond the window."""


@pytest.fixture
def small(queue: Queue) -> Queue:
    """A queue whose group may lock few records at a time."""
    with queue.admin() as admin:
        admin.set_group_config(queue.group, {"share.partition.max.record.locks": WINDOW})
    for _ in range(20):
        queue.send(50)
    return queue


def begin(driver: Driver, queue: Queue, taken: int) -> None:
    """So many are accepted, and no micro-batch has any."""
    acquirer = driver._open(driver._read(initial(queue)))
    driver._run(acquirer.wait(BatchLimits(), 20, taken))
    wait_for(lambda: driver._ledger.taken.record_count == taken)


def ahead_of(checkpoint: Path) -> int:
    (path,) = (checkpoint / "share-outcomes").glob("ahead-*.json")
    found = AcquiredOffset.from_json(json.loads(path.read_text()))
    return found.batch.record_count + found.later.record_count


def test_a_micro_batch_is_larger_than_the_window(opened: Open, small: Queue, tmp_path: Path) -> None:
    driver = opened(acknowledge="handoff", maxRecordsAhead=5_000, checkpointLocation=tmp_path)
    begin(driver, small, 1_000)
    end = driver.latest(initial(small), None)
    assert records(end) == 1_000
    assert ahead_of(tmp_path) == 1_000, "Spark has not logged them yet"
    write_log(tmp_path, "offsets", 0, end)
    driver.log(end)
    assert ahead_of(tmp_path) == 0
    wait_for(lambda: (driver.report() or {})["confirmed"] == 1_000)


def test_no_more_is_accepted_ahead_than_asked(opened: Open, small: Queue, tmp_path: Path) -> None:
    driver = opened(acknowledge="handoff", maxRecordsAhead=300, checkpointLocation=tmp_path, drain=True)
    begin(driver, small, 300)
    offsets = drained(driver, initial(small), 250, checkpoint=tmp_path)
    assert sum(map(records, offsets)) == 1_000
    assert max(map(records, offsets)) <= 250
    assert small.lag() == 0


@pytest.mark.parametrize("is_killed", [True, False], ids=["killed", "stopped"])
def test_what_was_accepted_ahead_survives(
    opened: Open, small: Queue, tmp_path: Path, is_killed: bool
) -> None:
    options = {"acknowledge": "handoff", "maxRecordsAhead": 400, "checkpointLocation": tmp_path}
    first = opened(**options)
    begin(first, small, 400)
    end = first.latest(initial(small), 150)
    write_log(tmp_path, "offsets", 0, end)
    if is_killed:
        kill(first)  # Spark has logged the micro-batch, and our own log still has it too
    else:
        first.log(end)
        first.close()
    second = opened(**options, drain=True)
    assert second.log(end).batch.record_count == 150
    write_log(tmp_path, "commits", 0, end)
    offsets = drained(second, end, checkpoint=tmp_path)
    places = [tuple(place) for offset in [end, *offsets] for place in _places(offset)]
    assert len(places) == len(set(places)) == 1_000
    assert small.lag() == 0


def test_without_the_option_what_was_accepted_ahead_is_still_worked_off(
    opened: Open, small: Queue, tmp_path: Path
) -> None:
    first = opened(acknowledge="handoff", maxRecordsAhead=400, checkpointLocation=tmp_path)
    begin(first, small, 400)
    first.close()
    second = opened(acknowledge="handoff", checkpointLocation=tmp_path, drain=True)
    offsets = drained(second, initial(small), checkpoint=tmp_path)
    assert sum(map(records, offsets)) == 1_000
    assert ahead_of(tmp_path) == 0


def test_what_other_topics_have_left_is_missed_though_no_records_come(
    opened: Open, small: Queue, tmp_path: Path
) -> None:
    options = {"acknowledge": "handoff", "maxRecordsAhead": 1_000, "checkpointLocation": tmp_path}
    first = opened(**options)
    begin(first, small, 1_000)
    first.close()  # before its first micro-batch
    other = f"{small.topic}-other"
    with small.admin() as admin:
        admin.create_topic(other, partitions=1)
    second = opened(**options, subscribe=other, pollTimeoutMs=0)
    start = initial(small)
    assert second.latest(start, None) == start, "other sources of the query may not have begun yet"
    with pytest.raises(CheckpointError, match=r"has 1000 records .* no longer has that source"):
        second.latest(start, None)


def test_two_readers_do_not_share_the_log(
    opened: Open, small: Queue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint, "OLD_READER_S", 0.1)
    options = {"acknowledge": "handoff", "maxRecordsAhead": 400, "checkpointLocation": tmp_path}
    begin(opened(**options), small, 400)
    with pytest.raises(CheckpointError, match="Another reader has used"):
        opened(**options).latest(initial(small), None)


def test_the_options_it_needs_are_named() -> None:
    given = {
        "kafka.bootstrap.servers": "x:1",
        "subscribe": "t",
        "kafka.group.id": "g",
        "maxRecordsAhead": "5",
    }
    with pytest.raises(ValueError, match="maxRecordsAhead=5 needs acknowledge=handoff"):
        SourceOptions.parse(given)
    with pytest.raises(ValueError, match="and checkpointLocation"):
        SourceOptions.parse({**given, "acknowledge": "handoff"})


# Without maxRecordsAhead


def run_one(driver: Driver, start: dict[str, Any], number: int, checkpoint: Path) -> dict[str, Any]:
    """One micro-batch, from Spark's question to its commit."""
    end = driver.latest(start, None)
    write_log(checkpoint, "offsets", number, end)
    driver.log(end)
    write_log(checkpoint, "commits", number, end)
    return end


def begun(driver: Driver, queue: Queue, checkpoint: Path) -> dict[str, Any]:
    """A query that is quick and bounded by the window, when it has begun to accept ahead. Its last offset."""
    first = run_one(driver, initial(queue), 0, checkpoint)
    assert records(first) <= WINDOW * queue.partitions + BATCHES_OVER
    assert not driver._ledger.takes_ahead
    second = run_one(driver, first, 1, checkpoint)
    wait_for(lambda: driver._ledger.taken.record_count == queue.sent - records(first) - records(second))
    return second


@pytest.fixture
def slow_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow this machine is, the query is quick."""
    monkeypatch.setattr(ahead, "AHEAD_S", 600.0)


@pytest.mark.usefixtures("slow_machine")
def test_a_quick_query_whose_micro_batches_the_window_bounds_begins_to_accept_ahead(
    opened: Open, small: Queue, tmp_path: Path
) -> None:
    driver = opened(acknowledge="handoff", checkpointLocation=tmp_path)
    second = begun(driver, small, tmp_path)
    third = run_one(driver, second, 2, tmp_path)
    assert records(third) > WINDOW * small.partitions
    driver.latest(third, None)
    wait_for(lambda: small.lag() == 0)


@pytest.mark.usefixtures("slow_machine")
@pytest.mark.parametrize("is_killed", [True, False], ids=["killed", "stopped"])
def test_what_it_accepted_ahead_without_the_option_survives(
    opened: Open, small: Queue, tmp_path: Path, is_killed: bool
) -> None:
    options = {"acknowledge": "handoff", "checkpointLocation": tmp_path}
    first = opened(**options)
    last = begun(first, small, tmp_path)
    ahead_count = first._ledger.taken.record_count
    assert ahead_of(tmp_path) == ahead_count > 0
    kill(first) if is_killed else first.close()
    second = opened(**options, drain=True)
    offsets = []
    start, number = last, 2
    while (end := second.latest(start, 100)) != start:
        write_log(tmp_path, "offsets", number, end)
        second.log(end)
        write_log(tmp_path, "commits", number, end)
        offsets.append(end)
        start, number = end, number + 1
    assert sum(map(records, offsets)) == ahead_count
    assert len({place for offset in offsets for place in _places(offset)}) == ahead_count
    assert small.lag() == 0


@pytest.mark.usefixtures("slow_machine")
def test_with_maxrecordsahead_0_nothing_is_accepted_ahead(opened: Open, small: Queue, tmp_path: Path) -> None:
    driver = opened(acknowledge="handoff", maxRecordsAhead=0, checkpointLocation=tmp_path, drain=True)
    offsets = drained(driver, initial(small), checkpoint=tmp_path)
    assert max(map(records, offsets)) <= WINDOW * small.partitions + BATCHES_OVER
    assert sum(map(records, offsets)) == 1_000
    assert not list((tmp_path / "share-outcomes").glob("ahead-*"))


def test_a_slow_query_accepts_nothing_ahead(
    opened: Open, small: Queue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The window is not what holds it up, and the other members of its group may have the records."""
    monkeypatch.setattr(ahead, "AHEAD_S", 0.0)
    driver = opened(acknowledge="handoff", checkpointLocation=tmp_path, drain=True)
    ran = driver._ahead.ran
    monkeypatch.setattr(
        driver._ahead, "ran", lambda count, took, between, window: ran(count, took + 600_000, between, window)
    )
    offsets = drained(driver, initial(small), checkpoint=tmp_path)
    assert max(map(records, offsets)) <= WINDOW * small.partitions + BATCHES_OVER
    assert sum(map(records, offsets)) == 1_000


def _places(offset: dict[str, Any]) -> list[tuple[str, str, int]]:
    return [
        (topic, partition, at)
        for topic, partitions in offset["b"].items()
        for partition, runs in partitions.items()
        for first, last, *_ in runs
        for at in range(first, last + 1)
    ]
