"""A query that comes back with other options or other sources, or whose surroundings have changed: nothing is lost."""

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from headrace.client.cluster import Cluster
from headrace.client.delivery import AcknowledgeType
from headrace.spark.acquirer import Acquirer
from headrace.spark.driver import Driver
from headrace.spark.errors import CheckpointError, OutcomeError
from headrace.spark.offset import AcquiredOffset
from headrace.spark.outcomes import Outcome, OutcomeLog
from headrace.spark.settle import BatchLimits
from headrace.wire.enums import OffsetSpec
from headrace.wire.errors import ErrorCode
from tests.spark.conftest import Queue, make_queue, wait_for
from tests.spark.test_driver import Open, drained, initial, kill, opened, records, write_log
from tests.spark.test_outcomes_on_spark import make_letters, read_letters

__all__ = ["opened"]
AHEAD = {"acknowledge": "handoff", "maxRecordsAhead": 1_000}


def accept_ahead(driver: Driver, queue: Queue) -> None:
    """All records of the queue are accepted, and no micro-batch has any."""
    acquirer = driver._open(driver._read(initial(queue)))
    driver._run(acquirer.wait(BatchLimits(), 20, queue.sent))
    wait_for(lambda: driver._ledger.taken.record_count == queue.sent)


def one_micro_batch(driver: Driver, start: dict[str, Any], folder: Path, count: int) -> dict[str, Any]:
    end = driver.latest(start, count)
    write_log(folder, "offsets", end["seq"], end)
    driver.log(end)
    write_log(folder, "commits", end["seq"], end)
    return end


def half_done(opened: Open, queue: Queue, folder: Path) -> dict[str, Any]:
    """A query that was stopped when it had accepted 100 records ahead and processed 50; returns its offset."""
    queue.send(100)
    driver = opened(**AHEAD, checkpointLocation=folder)
    accept_ahead(driver, queue)
    end = one_micro_batch(driver, initial(queue), folder, 50)
    driver.close()
    return end


def release(queue: Queue, offset: int) -> Outcome:
    return Outcome(queue.topic, 0, offset, offset, 1, AcknowledgeType.RELEASE, "later")


# what was accepted ahead


@pytest.mark.parametrize("subscribe", ["{other},{topic}", "{topic}", "{topic},{other},{third}"])
def test_what_was_accepted_ahead_stays_when_the_topics_change(
    opened: Open, queue: Queue, tmp_path: Path, subscribe: str
) -> None:
    names = {"topic": queue.topic, "other": f"{queue.topic}-2", "third": f"{queue.topic}-3"}
    with queue.admin() as admin:
        for name in ("other", "third"):
            admin.create_topic(names[name], partitions=1)
    queue.send(300)
    first = opened(**AHEAD, checkpointLocation=tmp_path, subscribe="{topic},{other}".format(**names))
    accept_ahead(first, queue)
    end = one_micro_batch(first, initial(queue), tmp_path, 50)
    first.close()
    second = opened(**AHEAD, checkpointLocation=tmp_path, subscribe=subscribe.format(**names), drain=True)
    assert sum(map(records, drained(second, end, checkpoint=tmp_path))) == 250


def test_topics_that_change_before_the_first_micro_batch_leave_nothing_behind_unsaid(
    opened: Open, queue: Queue, tmp_path: Path
) -> None:
    other = make_queue(queue.bootstrap_servers, f"{queue.topic}-2", tmp_path / "other")
    for each in (queue, other):
        each.send(100)
    first = opened(**AHEAD, checkpointLocation=tmp_path)
    accept_ahead(first, queue)
    first.close()
    second = opened(**AHEAD, checkpointLocation=tmp_path, subscribe=other.topic)
    with pytest.raises(CheckpointError, match=rf"100 records of {queue.topic} .*the `subscribe` that it had"):
        one_micro_batch(second, initial(queue), tmp_path, 50)


def test_without_its_checkpoint_in_read_stream_a_query_that_accepted_ahead_is_refused(
    opened: Open, queue: Queue, tmp_path: Path
) -> None:
    end = half_done(opened, queue, tmp_path)
    with pytest.raises(CheckpointError, match="Give readStream the checkpointLocation"):
        opened(acknowledge="handoff").latest(end, None)


def test_a_log_of_what_was_accepted_ahead_that_is_gone_is_missed(
    opened: Open, queue: Queue, tmp_path: Path
) -> None:
    end = half_done(opened, queue, tmp_path)
    (path,) = (tmp_path / "share-outcomes").glob("ahead-*.json")
    path.unlink()
    with pytest.raises(CheckpointError, match=r"is missing.*failOnDataLoss=false"):
        opened(**AHEAD, checkpointLocation=tmp_path).latest(end, None)
    last = opened(**AHEAD, checkpointLocation=tmp_path, failOnDataLoss=False, drain=True)
    assert last.latest(end, None) == end


def test_what_was_accepted_ahead_is_processed_once_when_the_mode_changes(
    opened: Open, queue: Queue, tmp_path: Path
) -> None:
    queue.send(300)
    first = opened(**AHEAD, checkpointLocation=tmp_path)
    accept_ahead(first, queue)
    first.close()
    second = opened(acknowledge="commit", checkpointLocation=tmp_path)
    end = one_micro_batch(second, initial(queue), tmp_path, 100)
    logged = second.latest(end, 100)
    write_log(tmp_path, "offsets", logged["seq"], logged)
    kill(second)
    third = opened(acknowledge="commit", checkpointLocation=tmp_path, drain=True)
    third.log(logged)
    write_log(tmp_path, "commits", logged["seq"], logged)
    assert sum(map(records, [end, logged, *drained(third, logged, 100, checkpoint=tmp_path)])) == 300


def test_what_was_accepted_ahead_after_a_reset_is_not_taken_for_what_spark_has_logged(
    opened: Open, queue: Queue, tmp_path: Path
) -> None:
    """It comes again with the delivery count that it had in the last micro-batch."""
    options = {**AHEAD, "checkpointLocation": tmp_path}
    queue.send(100)
    first = opened(**options)
    accept_ahead(first, queue)
    end = one_micro_batch(first, initial(queue), tmp_path, 100)
    first.close()
    with queue.admin() as admin:
        admin.alter_share_group_offsets(queue.group, to=OffsetSpec.EARLIEST)
    second = opened(**options)
    assert records(second.latest(end, None)) == 100
    wait_for(lambda: queue.lag() == 0)
    kill(second)  # Spark has not logged it
    third = opened(**options, drain=True)
    assert sum(map(records, drained(third, end, checkpoint=tmp_path))) == 100


def test_a_query_that_is_killed_when_spark_has_logged_its_first_micro_batch_processes_nothing_twice(
    opened: Open, queue: Queue, tmp_path: Path
) -> None:
    """The life before was killed in the same moment, so its note is older than Spark's log."""
    options = {**AHEAD, "checkpointLocation": tmp_path}
    queue.send(100)
    first = opened(**options)
    accept_ahead(first, queue)
    (note,) = (tmp_path / "share-outcomes").glob("ahead-*.json")
    older = note.read_text()
    end = one_micro_batch(first, initial(queue), tmp_path, 50)
    kill(first)
    note.write_text(older)
    second = opened(**options)
    logged = second.latest(end, 25)
    write_log(tmp_path, "offsets", logged["seq"], logged)
    kill(second)
    third = opened(**options, drain=True)
    third.log(logged)
    write_log(tmp_path, "commits", logged["seq"], logged)
    rest = drained(third, logged, checkpoint=tmp_path)
    assert [records(each) for each in (end, logged)] == [50, 25]
    assert sum(map(records, rest)) == 25


def made_again(queue: Queue, count: int) -> None:
    """Its topic is another one now, with so many records."""
    with queue.admin() as admin:
        admin.delete_topics([queue.topic])
        admin.create_topic(queue.topic, partitions=queue.partitions)
    queue.sent = 0
    queue.send(count)


def test_what_was_accepted_ahead_of_a_topic_that_was_made_again_is_not_lost_in_a_crash(
    opened: Open, queue: Queue, tmp_path: Path
) -> None:
    """The last offset is about the old topic, the note about the new one."""
    end = half_done(opened, queue, tmp_path)
    made_again(queue, 30)
    options = {**AHEAD, "checkpointLocation": tmp_path, "failOnDataLoss": False}
    first = opened(**options)
    old = first.latest(end, None)
    write_log(tmp_path, "offsets", old["seq"], old)
    first.log(old)
    write_log(tmp_path, "commits", old["seq"], old)
    wait_for(lambda: first._ledger.taken.record_count == 30)
    kill(first)
    assert old["t"] == end["t"], "the rest of the old topic"
    rest = drained(opened(**options, drain=True), old, checkpoint=tmp_path)
    assert sum(map(records, rest)) == 30
    assert all(each["t"] != old["t"] for each in rest)
    assert queue.lag() == 0


def test_what_was_accepted_ahead_of_a_topic_that_is_gone_is_not_taken_for_the_new_topics(
    opened: Open, queue: Queue, tmp_path: Path
) -> None:
    """The last offset is about the new topic, and the note, which was to be written next, about the old one."""
    end = half_done(opened, queue, tmp_path)
    (path,) = (tmp_path / "share-outcomes").glob("ahead-*.json")
    note = path.read_text()
    made_again(queue, 10)
    options = {"checkpointLocation": tmp_path, "failOnDataLoss": False}
    first = opened(**options)
    acquirer = first._open(first._read(end))
    first._run(acquirer.wait(BatchLimits(), 20, 10))
    wait_for(lambda: first._ledger.fresh.record_count == 10)
    new = first.latest(end, None)
    rewritten = AcquiredOffset.from_json(json.loads(path.read_text()))
    assert not rewritten.batch, "the note is written anew before an offset of the new topic"
    assert not rewritten.later
    write_log(tmp_path, "offsets", new["seq"], new)
    kill(first)
    path.write_text(note)  # as a version would leave it that did not do that
    second = opened(**options, drain=True)
    second.log(new)
    assert (second.report() or {})["ahead"] == 0
    write_log(tmp_path, "commits", new["seq"], new)
    assert sum(map(records, [new, *drained(second, new, checkpoint=tmp_path)])) == 10
    assert queue.lag() == 0


def test_the_log_of_what_is_accepted_ahead_is_bounded_by_ranges_too(
    opened: Open, queue: Queue, tmp_path: Path
) -> None:
    queue.send(100)
    driver = opened(**AHEAD, maxRunsPerTrigger=1, checkpointLocation=tmp_path)
    acquirer = driver._open(driver._read(initial(queue)))
    driver._run(acquirer.wait(BatchLimits(), 20, 50))
    wait_for(lambda: driver._ledger.fresh.record_count == 50)
    assert driver._ledger.taken.run_count == 1


# outcomes


@pytest.mark.parametrize("has_letters", [True, False])
def test_a_release_of_what_was_handed_off_before_the_mode_changed_is_not_lost(
    opened: Open, queue: Queue, tmp_path: Path, has_letters: bool
) -> None:
    queue.partitions = 1
    queue.send(10)
    first = opened(acknowledge="handoff", checkpointLocation=tmp_path)
    end = first.latest(initial(queue), None)
    write_log(tmp_path, "offsets", 0, end)
    first.log(end)
    wait_for(lambda: (first.report() or {})["confirmed"] == 10)
    first.close()
    letters = f"{queue.topic}-letters"
    with queue.admin() as admin:
        admin.create_topic(letters, partitions=1)
    options = {"deadLetterTopic": letters} if has_letters else {}
    second = opened(acknowledge="commit", checkpointLocation=tmp_path, pollTimeoutMs=100, **options)
    second.log(end)
    OutcomeLog(tmp_path / "share-outcomes").write(0, [release(queue, 3)])
    write_log(tmp_path, "commits", 0, end)
    if has_letters:
        second.latest(end, None)
        assert [value for value, _ in read_letters(queue, letters)] == [b"3"]
    else:
        with pytest.raises(OutcomeError, match=r"@3 was accepted before.*set deadLetterTopic"):
            second.latest(end, None)


def test_what_was_released_comes_again_though_the_query_comes_back_with_handoff(
    opened: Open, queue: Queue, tmp_path: Path
) -> None:
    queue.send(10)
    first = opened(checkpointLocation=tmp_path)
    end = first.latest(initial(queue), None)
    write_log(tmp_path, "offsets", end["seq"], end)
    first.log(end)
    OutcomeLog(tmp_path / "share-outcomes").write(0, [release(queue, 3)])
    write_log(tmp_path, "commits", end["seq"], end)
    wait_for(lambda: first._ledger.is_settled)
    first.close()
    second = opened(acknowledge="handoff", checkpointLocation=tmp_path, drain=True)
    (again,) = drained(second, end, checkpoint=tmp_path)
    ((first_offset, last_offset, _),) = again["b"][queue.topic]["0"]  # the first reader may have had it again
    assert (first_offset, last_offset) == (3, 3)
    assert queue.lag() == 0


def test_a_checkpoint_whose_newest_offsets_are_gone_and_whose_commits_are_not_is_refused(
    opened: Open, queue: Queue, tmp_path: Path
) -> None:
    """Spark runs the micro-batch before again, and would say that several jobs write to the checkpoint."""
    queue.send(30)
    offsets = drained(
        opened(checkpointLocation=tmp_path, drain=True), initial(queue), 10, checkpoint=tmp_path
    )
    (tmp_path / "offsets" / str(offsets[-1]["seq"])).unlink()
    queue.send(10)
    driver = opened(checkpointLocation=tmp_path)
    with pytest.raises(
        CheckpointError, match=rf"micro-batch {offsets[-2]['seq']} as committed, and Spark runs it"
    ):
        driver.log(offsets[-2])
    driver.close()
    assert queue.lag() == 10


def test_a_release_that_was_only_in_notes_that_are_gone_is_missed(
    opened: Open, queue: Queue, tmp_path: Path
) -> None:
    queue.send(10)
    first = opened(checkpointLocation=tmp_path)
    end = first.latest(initial(queue), None)
    write_log(tmp_path, "offsets", 0, end)
    first.log(end)
    OutcomeLog(tmp_path / "share-outcomes").write(0, [release(queue, 3)])
    kill(first)
    write_log(tmp_path, "commits", 0, end)
    with pytest.raises(CheckpointError, match=r"released, rejected.*Give readStream the checkpointLocation"):
        opened().latest(end, None)
    shutil.move(tmp_path / "share-outcomes", tmp_path / "elsewhere")
    with pytest.raises(CheckpointError, match=r"is missing.*failOnDataLoss=false"):
        opened(checkpointLocation=tmp_path).latest(end, None)
    shutil.move(tmp_path / "elsewhere", tmp_path / "share-outcomes")
    (again,) = drained(opened(checkpointLocation=tmp_path, drain=True), end, checkpoint=tmp_path)
    assert list(again["b"][queue.topic]) == ["0"]
    assert records(again) == 1


def test_with_failondataloss_false_notes_that_are_gone_stop_nothing(
    opened: Open, queue: Queue, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    queue.send(10)
    first = opened(checkpointLocation=tmp_path)
    end = one_micro_batch(first, initial(queue), tmp_path, 10)
    first.close()
    shutil.rmtree(tmp_path / "share-outcomes")
    second = opened(checkpointLocation=tmp_path, failOnDataLoss=False, drain=True)
    assert second.latest(end, None) == end
    assert "where this query kept its notes, is missing" in caplog.text
    assert queue.lag() == 0


def restored(backup: Path, folder: Path) -> None:
    shutil.rmtree(folder)
    shutil.copytree(backup, folder)


def test_with_an_older_copy_of_its_checkpoint_new_records_come_under_a_number_that_the_sink_has_seen(
    opened: Open, queue: Queue, tmp_path: Path
) -> None:
    folder, backup = tmp_path / "checkpoint", tmp_path / "backup"
    queue.partitions = 1
    queue.send(10)
    driver = opened(checkpointLocation=folder)
    first = one_micro_batch(driver, initial(queue), folder, 10)
    driver.close()
    shutil.copytree(folder, backup)
    queue.send(10)
    driver = opened(checkpointLocation=folder)
    second = one_micro_batch(driver, first, folder, 10)
    driver.close()
    restored(backup, folder)
    queue.send(10)
    driver = opened(checkpointLocation=folder)
    other = driver.latest(first, 10)
    assert [each["seq"] for each in (first, second, other)] == [1, 2, 2]
    assert [each["b"][queue.topic]["0"] for each in (second, other)] == [[[10, 19, 1]], [[20, 29, 1]]]


def test_with_an_older_copy_of_its_checkpoint_what_was_accepted_ahead_is_processed_again(
    opened: Open, queue: Queue, tmp_path: Path
) -> None:
    folder, backup = tmp_path / "checkpoint", tmp_path / "backup"
    end = half_done(opened, queue, folder)
    shutil.copytree(folder, backup)
    for _ in range(2):
        driver = opened(**AHEAD, checkpointLocation=folder, drain=True)
        assert sum(map(records, drained(driver, end, checkpoint=folder))) == 50
        driver.close()
        restored(backup, folder)


def test_an_outcome_counts_though_its_topic_is_not_subscribed_to_any_more(
    opened: Open, queue: Queue, tmp_path: Path
) -> None:
    queue.partitions = 1
    queue.send(10)
    letters, other = f"{queue.topic}-letters", f"{queue.topic}-2"
    with queue.admin() as admin:
        for name in (letters, other):
            admin.create_topic(name, partitions=1)
    options = {"checkpointLocation": tmp_path, "deadLetterTopic": letters, "pollTimeoutMs": 5_000}
    first = opened(**options)
    end = first.latest(initial(queue), None)
    write_log(tmp_path, "offsets", 0, end)
    kill(first)
    second = opened(**options, subscribe=other)
    second.log(end)
    rejected = release(queue, 3)._replace(type=AcknowledgeType.REJECT)
    OutcomeLog(tmp_path / "share-outcomes").write(0, [rejected])
    write_log(tmp_path, "commits", 0, end)
    wait_for(lambda: second._ledger.is_settled)
    assert [value for value, _ in read_letters(queue, letters)] == [b"3"]


def test_outcomes_of_a_source_stay_when_another_source_of_the_query_goes_on(
    opened: Open, queue: Queue, tmp_path: Path
) -> None:
    other = make_queue(queue.bootstrap_servers, f"{queue.topic}-2", tmp_path / "other", partitions=1)
    queue.send(10)
    other.send(1)
    options = {"checkpointLocation": tmp_path, "pollTimeoutMs": 2_000}
    busy, idle = opened(**options), opened(**options, subscribe=other.topic)
    first, single = busy.latest(initial(queue), 5), idle.latest(initial(queue), 5)
    write_both(tmp_path, 0, first, single)
    busy.log(first)
    idle.log(single)
    OutcomeLog(tmp_path / "share-outcomes").write(0, [release(other, 0)])
    write_log(tmp_path, "commits", 0, {})
    wait_for(lambda: idle._ledger.is_settled)
    second = busy.latest(first, 5)
    write_both(tmp_path, 1, second, single)  # as if another member had the released record for now
    busy.log(second)
    write_log(tmp_path, "commits", 1, {})
    busy.close()
    idle.close()
    assert records(opened(**options, subscribe=other.topic).latest(single, 5)) == 1


def write_both(folder: Path, batch: int, *offsets: dict[str, Any]) -> None:
    path = folder / "offsets" / str(batch)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(["v1", "{}", *map(json.dumps, offsets)]))


# member ids


def test_queries_with_the_same_path_on_two_machines_are_two_members(
    opened: Open, queue: Queue, tmp_path: Path
) -> None:
    path = tmp_path / "checkpoint"
    ids = []
    for machine in ("one", "two"):
        driver = opened(checkpointLocation=path, pollTimeoutMs=10)
        driver.latest(initial(queue), None)
        ids.append((driver.report() or {})["member"])
        path.rename(tmp_path / machine)
    assert ids[0] != ids[1]


def test_a_query_that_has_no_offset_yet_keeps_its_member_id(
    opened: Open, queue: Queue, tmp_path: Path
) -> None:
    ids = set()
    for topics in (queue.topic, f"{queue.topic},{queue.topic}"):
        driver = opened(checkpointLocation=tmp_path, pollTimeoutMs=10, subscribe=topics)
        driver.latest(initial(queue), None)
        ids.add((driver.report() or {})["member"])
        driver.close()
    assert len(ids) == 1


def test_a_folder_without_locks_is_no_reason_to_fail(
    opened: Open,
    queue: Queue,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr("fcntl.flock", refuse)
    queue.send(10)
    offsets = drained(
        opened(**AHEAD, checkpointLocation=tmp_path, drain=True), initial(queue), checkpoint=tmp_path
    )
    assert sum(map(records, offsets)) == 10
    assert "No locks available" in caplog.text


# the group and its brokers


def test_a_state_topic_that_cannot_be_seen_for_a_moment_is_no_reset(
    opened: Open, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.send(100)
    first = opened()
    end = first.latest(initial(queue), None)
    first.log(end)
    assert end["e"], "the state's epochs are in the offset"
    kill(first)
    take = Cluster._take_topic

    def hide(self: Cluster, answer: Any) -> None:
        if answer.name == "__share_group_state":
            answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        take(self, answer)

    monkeypatch.setattr(Cluster, "_take_topic", hide)
    assert drained(opened(drain=True), end) == []


def test_draining_goes_on_when_a_connection_is_lost_before_a_micro_batch_is_planned(
    opened: Open, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.send(1_000)
    gather, cuts = Acquirer._gather, iter([True])

    async def cut(self: Acquirer, limits: BatchLimits, wanted: int | None) -> None:
        await gather(self, limits, wanted)
        if next(cuts, False):
            await asyncio.gather(*(each.close() for each in self._member._connections.values()))
            while self.ledger.fresh:  # noqa: ASYNC110 (it notices by itself)
                await asyncio.sleep(0.01)  # the pace of looking

    monkeypatch.setattr(Acquirer, "_gather", cut)
    assert sum(map(records, drained(opened(drain=True), initial(queue), 100))) == 1_000


@pytest.mark.parametrize("is_synchronous", [True, False])
def test_asynchronous_progress_tracking_is_told_of_without_the_checkpoint_too(
    opened: Open, queue: Queue, caplog: pytest.LogCaptureFixture, is_synchronous: bool
) -> None:
    queue.send(20)
    driver = opened()
    start = initial(queue)
    for _ in range(2):
        end = driver.latest(start, 10)
        if is_synchronous and start["seq"]:
            driver.commit(start)
        driver.log(end)
        start = end
    assert ("leave asyncProgressTrackingEnabled out" in caplog.text) is not is_synchronous


def test_outcomes_of_a_query_that_begins_anew_in_its_old_folder_count(
    opened: Open, queue: Queue, tmp_path: Path
) -> None:
    """Spark's logs were deleted, and the source's notes were left: the new offsets have the numbers of old ones."""
    letters = make_letters(queue)
    folder = tmp_path / "checkpoint"
    for value in (0, 1):
        queue.send(2)
        driver = opened(checkpointLocation=folder, deadLetterTopic=letters)
        end = driver.latest(initial(queue), None)
        write_log(folder, "offsets", 0, end)
        driver.log(end)
        rejected = Outcome(queue.topic, 0, value, value, 1, AcknowledgeType.REJECT, "no")
        OutcomeLog(folder / "share-outcomes").write(0, [rejected])
        write_log(folder, "commits", 0, end)
        wait_for(lambda: driver._ledger.is_settled)  # noqa: B023
        driver.close()
        for log in ("offsets", "commits"):
            (folder / log / "0").unlink()
    assert [headers["__dlq.errors.offset"] for _, headers in read_letters(queue, letters)] == [b"0", b"1"]
