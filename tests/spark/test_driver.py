"""The driver's half of the source, with Spark's calls made by hand: restarts, lost locks, wrong checkpoints."""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace import ShareConsumer
from headrace.client.delivery import AcknowledgeType
from headrace.client.errors import KafkaError, error_for
from headrace.client.member import Arrival, AsyncShareMember, now_ms
from headrace.spark import locations
from headrace.spark.acquirer import IDLE_S, MORE_PART, MORE_S, Acquirer
from headrace.spark.driver import Driver
from headrace.spark.errors import CheckpointError
from headrace.spark.offset import AcquiredOffset
from headrace.spark.options import SourceOptions
from headrace.spark.outcomes import Outcome, OutcomeLog
from headrace.spark.runs import RunSet
from headrace.spark.settle import BatchLimits
from headrace.wire.enums import OffsetSpec
from headrace.wire.errors import ErrorCode
from tests.spark.conftest import WAIT_S, Queue, make_queue, wait_for
from tests.spark.test_outcomes_on_spark import read_letters

Open = Callable[..., Driver]
JOIN_MS = 20_000
"""Longer than a new group of Apache Kafka's waits for its first partitions."""
pytestmark = pytest.mark.timeout(180)


@pytest.fixture(params=["broker", pytest.param("apache", marks=pytest.mark.needs_kafka)])
def queue(request: pytest.FixtureRequest, unique: str, tmp_path: Path) -> Queue:
    """On our broker, then on Apache Kafka."""
    return make_queue(request.getfixturevalue(request.param).bootstrap_servers, unique, tmp_path / "queue")


@pytest.fixture
def opened(queue: Queue) -> Iterator[Open]:
    """Makes drivers, and closes them at the end."""
    drivers: list[Driver] = []

    def make(*, drain: bool = False, **options: object) -> Driver:
        given = {
            "kafka.bootstrap.servers": queue.bootstrap_servers,
            "subscribe": queue.topic,
            "kafka.group.id": queue.group,
            "startingOffsets": "earliest",
            "pollTimeoutMs": str(JOIN_MS),
            "kafka.default.api.timeout.ms": "5000",
            **{name: str(value) for name, value in options.items()},
        }
        drivers.append(Driver(SourceOptions.parse(given), drain=drain))
        return drivers[-1]

    yield make
    for driver in drivers:
        driver.close()


def initial(queue: Queue) -> dict[str, Any]:
    return AcquiredOffset(0, queue.group).to_json()


def records(offset: dict[str, Any]) -> int:
    return AcquiredOffset.from_json(offset).batch.record_count


def drained(
    driver: Driver, start: dict[str, Any], records_max: int | None = None, checkpoint: Path | None = None
) -> list[dict[str, Any]]:
    """Runs micro-batches until there are no more; returns their offsets."""
    offsets = []
    while (end := driver.latest(start, records_max)) != start:
        if checkpoint is not None:
            write_log(checkpoint, "offsets", end["seq"], end)
        driver.log(end)
        offsets.append(end)
        if checkpoint is not None:
            write_log(checkpoint, "commits", end["seq"], end)
        start = end
    return offsets


def hold_all(driver: Driver, queue: Queue) -> None:
    """The member has acquired everything, and no micro-batch has any of it."""
    acquirer = driver._open(driver._read(initial(queue)))
    driver._run(acquirer.wait(BatchLimits(), JOIN_MS / 1000, queue.sent))
    wait_for(lambda: driver._ledger.fresh.record_count == queue.sent)


def kill(driver: Driver) -> None:
    """What a killed process leaves: its connections end, and nothing is sent."""

    async def cut() -> None:
        acquirer = driver._acquirer
        assert acquirer is not None
        for task in acquirer._tasks:
            task.cancel()
        await acquirer._member.cluster.close()
        for task in (driver._commit_watch, driver._taking):
            if task is not None:
                task.cancel()

    driver._run(cut())
    driver._acquirer = None
    for file in (driver._claim, driver._ahead._notes):
        if file is not None:
            file.close()


def test_a_queue_is_drained_in_micro_batches_of_bounded_size(opened: Open, queue: Queue) -> None:
    queue.send(1_000)
    offsets = drained(opened(drain=True), initial(queue), 300)
    assert sum(map(records, offsets)) == 1_000
    assert max(map(records, offsets)) <= 300
    assert queue.lag() == 0


def test_draining_leaves_what_came_later(opened: Open, queue: Queue) -> None:
    queue.send(100)
    driver = opened(drain=True)
    end = driver.latest(initial(queue), 60)
    queue.send(100)
    driver.log(end)
    offsets = [end, *drained(driver, end, 60)]
    assert sum(map(records, offsets)) == 100
    assert queue.lag() == 100


def test_draining_tells_what_other_members_have_left_it_once(
    opened: Open, queue: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    queue.send(100)
    with queue.admin() as admin:
        admin.set_group_config(queue.group, {"share.auto.offset.reset": "earliest"})
    with ShareConsumer(
        bootstrap_servers=queue.bootstrap_servers,
        group_id=queue.group,
        client_id="another",
        share_acknowledgement_mode="explicit",
        share_acquire_mode="record_limit",
        max_poll_records=30,
    ) as other:
        other.subscribe([queue.topic])
        held: list[Any] = []
        while not held:
            held = list(other.poll(timeout=1))
        driver = opened(drain=True)
        end = driver.latest(initial(queue), None)
        queue.send(10)  # it has nothing to do with those
        driver.log(end)
        offsets = [end, *drained(driver, end)]
        driver.latest(offsets[-1], None)
    processed = sum(map(records, offsets))
    assert processed <= 100 - len(held)
    told = [each.getMessage() for each in caplog.records if "AvailableNow ends" in each.getMessage()]
    assert len(told) == 1
    assert f"and {100 - processed} records of group {queue.group} that were there when it started" in told[0]
    assert "other members (another)" in told[0]
    caplog.clear()
    assert sum(map(records, drained(opened(drain=True), offsets[-1]))) == 110 - processed
    assert not [each for each in caplog.records if "AvailableNow ends" in each.getMessage()]


def test_draining_goes_on_when_records_come_while_the_broker_is_asked_for_the_lag(
    opened: Open, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Apache Kafka may take two seconds to answer that question: long enough to look idle since they came."""
    queue.send(10)
    driver = opened(drain=True)
    acquirer = driver._open(driver._read(initial(queue)))
    refresh = acquirer.group.refresh_offsets

    async def refresh_slowly() -> Any:
        found = await refresh()
        while acquirer._member.idle_ms(acquirer._arrived_ms) <= 1000 * IDLE_S:
            await acquirer._member.changes.wait(now_ms() + 1000)
        return found

    monkeypatch.setattr(acquirer.group, "refresh_offsets", refresh_slowly)
    assert sum(map(records, drained(driver, initial(queue)))) == 10


def test_an_empty_queue_gives_the_same_offset_back(opened: Open, queue: Queue) -> None:
    start = initial(queue)
    end = opened(pollTimeoutMs=50).latest(start, None)
    assert json.dumps(end) == json.dumps(start)


def test_partitions_that_are_added_are_read_from_their_beginning_though_the_group_starts_at_latest(
    opened: Open, queue: Queue
) -> None:
    queue.send(10)
    driver = opened(startingOffsets="latest", pollTimeoutMs=100)
    start = initial(queue)
    assert driver.latest(start, None) == start
    with queue.admin() as admin:
        admin.create_partitions(queue.topic, 4)
    queue.partitions = 4
    queue.send(40)  # before the group can have seen the new partitions
    found: list[int] = []
    deadline = time.monotonic() + WAIT_S
    while len(found) < 40 and time.monotonic() < deadline:
        end = driver.latest(start, None)
        if end != start:
            driver.log(end)
            found += [at for _, run in AcquiredOffset.from_json(end).batch for at in range(run.size)]
        start = end
    assert len(found) == 40


def test_what_latest_means_is_decided_once_for_each_topic(opened: Open, queue: Queue, tmp_path: Path) -> None:
    """Records from before are passed over, also of a topic that a later start adds; none that come after."""
    other = make_queue(queue.bootstrap_servers, f"{queue.topic}-2", tmp_path / "other")
    queue.send(10)
    first = opened(startingOffsets="latest", pollTimeoutMs=100)
    assert first.latest(initial(queue), None) == initial(queue)
    queue.send(4)  # while the query is down, or before its first micro-batch
    first.close()
    second = opened(startingOffsets="latest", drain=True)
    offsets = drained(second, initial(queue))
    assert sum(map(records, offsets)) == 4
    end = offsets[-1]
    second.close()
    other.send(10)
    third = opened(startingOffsets="latest", subscribe=f"{queue.topic},{other.topic}", pollTimeoutMs=100)
    assert third.latest(end, None) == end
    other.send(6)
    third.close()
    fourth = opened(startingOffsets="latest", subscribe=f"{queue.topic},{other.topic}", drain=True)
    assert sum(map(records, drained(fourth, end))) == 6


@pytest.fixture
def done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is synced in the checkpoint, and that records are acknowledged, in order."""
    done: list[str] = []
    sync_path, acknowledge = locations.sync_path, Acquirer.acknowledge

    def note_sync(path: Path) -> None:
        sync_path(path)
        done.append(str(path.relative_to(tmp_path)) if path.is_relative_to(tmp_path) else "above")

    def note_acknowledge(self: Acquirer, owed: RunSet) -> None:
        acknowledge(self, owed)
        done.extend(["accepted"] if owed else [])

    monkeypatch.setattr(locations, "sync_path", note_sync)
    monkeypatch.setattr(Acquirer, "acknowledge", note_acknowledge)
    return done


def test_a_commit_is_on_disk_before_what_was_decided_is_carried_out(
    opened: Open, queue: Queue, tmp_path: Path, done: list[str]
) -> None:
    """Spark repeats a micro-batch whose commit is lost, and the function may decide in another way."""
    queue.send(10)
    driver = opened(checkpointLocation=tmp_path)
    end = driver.latest(initial(queue), None)
    write_log(tmp_path, "offsets", 0, end)
    driver.log(end)
    OutcomeLog(tmp_path / "share-outcomes").write(0, [])
    write_log(tmp_path, "commits", 0, end)
    wait_for(lambda: driver._ledger.is_settled and "accepted" in done)
    synced = done[: done.index("accepted")]
    assert synced.index("offsets/0") < synced.index("commits/0") < synced.index("commits")


@pytest.mark.parametrize("mode", ["commit", "handoff"])
def test_what_spark_has_logged_is_on_disk_before_its_records_are_accepted(
    opened: Open, queue: Queue, tmp_path: Path, done: list[str], mode: str
) -> None:
    queue.send(10)
    driver = opened(acknowledge=mode, checkpointLocation=tmp_path)
    end = driver.latest(initial(queue), None)
    write_log(tmp_path, "offsets", 0, end)
    driver.log(end)
    assert ("accepted" in done) == (mode == "handoff")
    write_log(tmp_path, "commits", 0, end)
    wait_for(lambda: driver._ledger.is_settled and "accepted" in done)
    assert done.count("accepted") == 1
    synced = done[: done.index("accepted")]
    assert synced.index("offsets/0") < synced.index("offsets")
    assert "." in synced[synced.index("offsets") :]


def test_the_offset_log_is_synced_while_the_micro_batch_runs(
    opened: Open, queue: Queue, tmp_path: Path, done: list[str]
) -> None:
    """Nobody waits for it when the micro-batch is committed."""
    queue.send(10)
    driver = opened(checkpointLocation=tmp_path)
    end = driver.latest(initial(queue), None)
    write_log(tmp_path, "offsets", 0, end)
    driver.log(end)
    wait_for(lambda: "offsets/0" in done)
    assert "accepted" not in done


def test_a_micro_batch_waits_for_more_only_for_a_part_of_the_time_that_the_last_one_took(
    opened: Open, queue: Queue
) -> None:
    """Else a slow one makes the next wait for as many records, and so on."""
    queue.send(10)
    driver = opened()
    end = driver.latest(initial(queue), None)
    began = time.monotonic()
    driver.log(end)
    queue.send(10)
    later = driver.latest(end, None)
    took_s = time.monotonic() - began
    assert later != end
    assert driver._acquirer is not None
    assert driver._acquirer.more_s <= max(MORE_S, MORE_PART * took_s)


def test_a_source_without_records_does_not_hold_up_the_others_of_its_query(
    opened: Open, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark commits an offset again for a source that has nothing in a micro-batch: another one has."""
    waits: list[float] = []
    wait = Acquirer.wait

    async def note_wait(self: Acquirer, limits: BatchLimits, wait_s: float, wanted: int | None) -> bool:
        waits.append(wait_s)
        return await wait(self, limits, wait_s, wanted)

    monkeypatch.setattr(Acquirer, "wait", note_wait)
    idle, start = opened(pollTimeoutMs=50), initial(queue)
    assert idle.latest(start, None) == start
    for _ in range(2):
        idle.commit(start)
        assert idle.latest(start, None) == start
    assert idle.latest(start, None) == start
    assert waits == [0.05, 0, 0, 0.05]
    queue.send(10)
    end = idle.latest(start, None)
    while end == start:  # what has come is found without waiting, too
        idle.commit(start)
        end = idle.latest(start, None)
    idle.log(end)
    idle.commit(start)
    idle.latest(end, None)
    assert waits[-1] == 0.05


def reset(queue: Queue) -> None:
    with queue.admin() as admin:
        admin.alter_share_group_offsets(queue.group, to=OffsetSpec.EARLIEST)


def delete(queue: Queue) -> None:
    with queue.admin() as admin:
        admin.delete_groups([queue.group])


def delete_and_make_again(queue: Queue) -> None:
    """By another member, which gives back what it gets. The new state may have the epochs of the old one."""
    delete(queue)
    settings = {"bootstrap_servers": queue.bootstrap_servers, "group_id": queue.group}
    with ShareConsumer(**settings, share_acknowledgement_mode="explicit") as consumer:
        consumer.subscribe([queue.topic])
        while not consumer.poll(timeout=1):
            pass


@pytest.mark.parametrize("begin_anew", [reset, delete, delete_and_make_again])
def test_a_group_that_begins_anew_has_its_records_processed_again(
    opened: Open, queue: Queue, begin_anew: Callable[[Queue], None]
) -> None:
    queue.send(100)
    driver = opened()
    end = driver.latest(initial(queue), None)
    driver.log(end)
    driver.close()
    assert drained(opened(drain=True), end) == []
    begin_anew(queue)
    assert sum(map(records, drained(opened(drain=True), end))) == 100
    assert queue.lag() == 0


def test_asked_again_before_it_was_logged_it_gives_the_same_records(opened: Open, queue: Queue) -> None:
    queue.send(100)
    driver = opened()
    end = driver.latest(initial(queue), 50)
    assert driver.latest(initial(queue), 50) == end


def test_a_start_that_was_never_given_is_refused(opened: Open, queue: Queue) -> None:
    queue.send(10)
    driver = opened()
    driver.latest(initial(queue), None)
    with pytest.raises(CheckpointError, match="after offset 9, but the last offset that it got is 1"):
        driver.latest(AcquiredOffset(9, queue.group).to_json(), None)


@pytest.mark.parametrize("acknowledge", ["commit", "handoff"])
def test_a_logged_micro_batch_is_replayed_and_its_records_are_not_taken_twice(
    opened: Open, queue: Queue, acknowledge: str
) -> None:
    queue.send(100)
    first = opened(acknowledge=acknowledge)
    end = first.latest(initial(queue), 60)
    kill(first)
    second = opened(acknowledge=acknowledge, drain=True)
    assert second.log(end).batch == AcquiredOffset.from_json(end).batch
    offsets = drained(second, end)
    assert records(end) + sum(map(records, offsets)) == 100
    report = second.report()
    assert report is not None
    assert report["member"] == end["m"], "the old member id is taken back"
    assert queue.lag() == 0


def test_a_micro_batch_that_was_not_given_to_spark_is_refused(opened: Open, queue: Queue) -> None:
    queue.send(10)
    driver = opened()
    end = driver.latest(initial(queue), None)
    with pytest.raises(CheckpointError, match="runs the micro-batch of offset 2, but 1 was given to it last"):
        driver.log({**end, "seq": 2})


def test_records_that_were_not_logged_come_again(opened: Open, queue: Queue, tmp_path: Path) -> None:
    queue.send(100)
    first = opened(checkpointLocation=tmp_path)
    first.latest(initial(queue), None)
    kill(first)
    second = opened(checkpointLocation=tmp_path, drain=True)
    offsets = drained(second, initial(queue), checkpoint=tmp_path)
    assert sum(map(records, offsets)) == 100
    assert queue.lag() == 0


def test_a_committed_micro_batch_whose_locks_were_lost_is_accepted_when_it_comes_again(
    opened: Open, queue: Queue
) -> None:
    queue.send(100)
    first = opened()
    end = first.latest(initial(queue), None)
    first.log(end)
    kill(first)  # after Spark's commit, before anything was acknowledged
    second = opened(drain=True)
    assert records(end) + sum(map(records, drained(second, end))) == 100
    assert queue.lag() == 0


def test_with_handoff_records_are_accepted_when_they_are_logged(opened: Open, queue: Queue) -> None:
    queue.send(100)
    driver = opened(acknowledge="handoff")
    end = driver.latest(initial(queue), 50)
    driver.log(end)
    driver.latest(end, 50)  # the second micro-batch is planned, not logged
    wait_for(lambda: (driver.report() or {})["confirmed"] == 50)


def test_what_no_micro_batch_has_goes_to_others_when_the_reader_closes(opened: Open, queue: Queue) -> None:
    queue.send(100)
    first = opened()
    first.latest(initial(queue), 10)
    first.close()
    offsets = drained(opened(drain=True), initial(queue))
    assert sum(map(records, offsets)) == 100


def test_outcomes_decide_and_are_cleared_when_the_next_micro_batch_is_logged(
    opened: Open, queue: Queue, tmp_path: Path
) -> None:
    queue.partitions = 1
    queue.send(4)
    driver = opened(checkpointLocation=tmp_path)
    end = driver.latest(initial(queue), None)
    assert end["b"][queue.topic]["0"][0][0] == 0
    write_log(tmp_path, "offsets", 0, end)
    driver.log(end)
    log = OutcomeLog(tmp_path / "share-outcomes")
    log.write(0, [Outcome(queue.topic, 0, 0, 0, 1, AcknowledgeType.RELEASE)])
    write_log(tmp_path, "commits", 0, end)
    again = driver.latest(end, None)
    assert again["b"][queue.topic]["0"][0] == [0, 0, 2], (
        "the released record comes again, for the second time"
    )
    assert log.read()
    write_log(tmp_path, "offsets", 1, again)
    driver.log(again)
    assert not log.read()


def write_log(checkpoint: Path, folder: str, batch: int, offset: dict[str, Any]) -> None:
    """As Spark does it: before partitions() is called, and when the micro-batch is done."""
    (checkpoint / folder).mkdir(exist_ok=True, parents=True)
    (checkpoint / folder / str(batch)).write_text("\n".join(["v1", "{}", json.dumps(offset)]))


def test_asynchronous_progress_tracking_is_noticed(opened: Open, queue: Queue, tmp_path: Path) -> None:
    queue.send(20)
    driver = opened(checkpointLocation=tmp_path)
    first = driver.latest(initial(queue), 5)
    write_log(tmp_path, "offsets", 0, first)
    driver.log(first)
    with pytest.raises(CheckpointError, match="asyncProgressTrackingEnabled"):
        driver.latest(first, 5)  # before the commit
    write_log(tmp_path, "commits", 0, first)
    second = driver.latest(first, 5)
    with pytest.raises(CheckpointError, match="asyncProgressTrackingEnabled"):
        driver.log(second)  # before it is in the offset log


def test_the_checkpoint_of_another_group_is_refused(opened: Open) -> None:
    with pytest.raises(CheckpointError, match="belongs to share group 'another'"):
        opened().latest(AcquiredOffset(0, "another").to_json(), None)


def test_a_topic_that_is_not_there_is_named(opened: Open, queue: Queue) -> None:
    with pytest.raises(KafkaError, match="no-such-topic"):
        opened(subscribe="no-such-topic").latest(initial(queue), None)


def test_a_topic_that_was_made_again_has_no_processed_records(opened: Open, queue: Queue) -> None:
    queue.send(100)
    first = opened()
    end = first.latest(initial(queue), None)
    first.log(end)
    kill(first)
    with queue.admin() as admin:
        admin.delete_topics([queue.topic])
        admin.create_topic(queue.topic, partitions=queue.partitions)
    queue.send(50)
    offsets = drained(opened(drain=True), end)
    assert sum(map(records, offsets)) == 50


def test_bytes_bound_a_micro_batch_too(opened: Open, queue: Queue) -> None:
    queue.send(200, lambda _: b"x" * 1_000)
    offsets = drained(opened(drain=True, maxBytesPerTrigger=20_000), initial(queue))
    assert sum(map(records, offsets)) == 200
    assert max(map(records, offsets)) <= 25


def test_headraces_broker_sends_no_records_to_the_driver(
    opened: Open, queue: Queue, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tasks read them. Other brokers know nothing of this, and send them."""
    sent: list[Arrival] = []
    arrived = Acquirer._arrived

    def note_arrival(self: Acquirer, arrival: Arrival) -> None:
        sent.append(arrival)
        arrived(self, arrival)

    monkeypatch.setattr(Acquirer, "_arrived", note_arrival)
    queue.send(200, lambda _: b"x" * 1_000)
    assert sum(map(records, drained(opened(drain=True), initial(queue)))) == 200
    assert any(arrival.records for arrival in sent) == (request.node.callspec.params["queue"] == "apache")
    assert sum(arrival.size for arrival in sent) > 200 * 1_000


def test_starting_offsets_become_a_setting_of_the_group(opened: Open, queue: Queue) -> None:
    queue.send(10)
    with queue.admin() as admin:
        assert admin.group_config(queue.group)["share.auto.offset.reset"].value == "latest"
    opened().latest(initial(queue), None)
    with queue.admin() as admin:
        assert admin.group_config(queue.group)["share.auto.offset.reset"].value == "earliest"


# What a look with fresh eyes found


@pytest.mark.parametrize("acknowledge", ["commit", "handoff"])
def test_a_query_that_is_stopped_before_the_offset_log_accepts_nothing_of_the_micro_batch(
    opened: Open, queue: Queue, tmp_path: Path, acknowledge: str
) -> None:
    queue.send(100)
    driver = opened(checkpointLocation=tmp_path, acknowledge=acknowledge)
    hold_all(driver, queue)
    first = driver.latest(initial(queue), 50)
    write_log(tmp_path, "offsets", 0, first)
    driver.log(first)
    write_log(tmp_path, "commits", 0, first)
    assert records(driver.latest(first, 50)) == 50
    driver.close()
    again = opened(checkpointLocation=tmp_path, drain=True, acknowledge=acknowledge)
    offsets = drained(again, first, checkpoint=tmp_path)
    assert sum(map(records, offsets)) == 50


def test_restarts_while_a_micro_batch_fails_cost_the_records_behind_it_nothing(
    opened: Open, queue: Queue
) -> None:
    queue.send(100)
    driver = opened()
    end = driver.latest(initial(queue), 50)
    for _ in range(6):  # more often than a record may be delivered
        driver.log(end)
        kill(driver)
        driver = opened(drain=True)
    driver.log(end)
    assert records(end) + sum(map(records, drained(driver, end))) == 100


def test_draining_goes_on_where_records_behind_the_ends_fill_the_hands(opened: Open, queue: Queue) -> None:
    queue.send(20)
    driver = opened(drain=True, maxRecordsPerTrigger=10)
    acquirer = driver._open(driver._read(initial(queue)))
    queue.send(200)
    end = acquirer.ends
    assert end is not None
    assert sum(map(records, drained(driver, initial(queue), 10))) == sum(end.values()) == 20


def test_two_sources_of_one_query_are_two_members(opened: Open, queue: Queue, tmp_path: Path) -> None:
    queue.send(100)
    drivers = [opened(checkpointLocation=tmp_path, pollTimeoutMs=50) for _ in range(2)]
    for driver in drivers:
        driver.latest(initial(queue), 10)
    members = {(driver.report() or {})["member"] for driver in drivers}
    assert len(members) == 2


def test_an_error_that_passes_does_not_end_the_query(
    opened: Open, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.send(10)
    driver = opened(drain=True)
    take = AsyncShareMember.take
    troubles = [error_for(ErrorCode.COORDINATOR_NOT_AVAILABLE, about="partition 0")] * 3

    async def take_after_trouble(member: AsyncShareMember, count: int, *, timeout_s: float) -> list[Arrival]:
        if troubles:
            raise troubles.pop()
        return await take(member, count, timeout_s=timeout_s)

    monkeypatch.setattr(AsyncShareMember, "take", take_after_trouble)
    assert sum(map(records, drained(driver, initial(queue)))) == 10


def test_an_error_that_does_not_pass_ends_it_and_is_told(
    opened: Open, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refused(member: AsyncShareMember, count: int, *, timeout_s: float) -> list[Arrival]:
        raise error_for(ErrorCode.GROUP_AUTHORIZATION_FAILED, about="group x")

    monkeypatch.setattr(AsyncShareMember, "take", refused)
    with pytest.raises(KafkaError, match="group x"):
        opened().latest(initial(queue), None)


def test_the_first_trigger_waits_for_the_group_whatever_its_time_is(opened: Open, queue: Queue) -> None:
    queue.send(100)
    assert records(opened(pollTimeoutMs=1).latest(initial(queue), None)) > 0


def test_a_release_at_the_last_delivery_becomes_a_dead_letter(
    opened: Open, queue: Queue, tmp_path: Path
) -> None:
    queue.partitions = 1
    queue.send(1)
    with queue.admin() as admin:
        admin.set_group_config(queue.group, {"share.delivery.count.limit": 2})
        admin.create_topic(f"{queue.topic}-letters", partitions=1)
    driver = opened(checkpointLocation=tmp_path, deadLetterTopic=f"{queue.topic}-letters")
    start = initial(queue)
    for batch in range(2):
        end = driver.latest(start, None)
        write_log(tmp_path, "offsets", batch, end)
        driver.log(end)
        released = Outcome(queue.topic, 0, 0, 0, batch + 1, AcknowledgeType.RELEASE, "no answer")
        OutcomeLog(tmp_path / "share-outcomes").write(batch, [released])
        write_log(tmp_path, "commits", batch, end)
        start = end
    wait_for(lambda: (driver.report() or {})["confirmed"] == 1)
    ((_, headers),) = read_letters(queue, f"{queue.topic}-letters")
    assert headers["__dlq.errors.message"] == b"released at its last delivery. no answer"
    assert headers["headrace.dlq.cause"] == b"exhausted"
    report = driver.report() or {}
    assert (report["released"], report["rejected"]) == (1, 1)


def test_what_spark_has_committed_is_settled_without_another_trigger(
    opened: Open, queue: Queue, tmp_path: Path
) -> None:
    queue.send(100)
    driver = opened(checkpointLocation=tmp_path)
    hold_all(driver, queue)
    end = driver.latest(initial(queue), None)
    write_log(tmp_path, "offsets", 0, end)
    driver.log(end)
    assert (driver.report() or {})["confirmed"] == 0
    write_log(tmp_path, "commits", 0, end)
    wait_for(lambda: (driver.report() or {})["confirmed"] == 100)


def test_the_checkpoint_of_another_query_is_refused_before_anything_is_done(
    opened: Open, queue: Queue, tmp_path: Path
) -> None:
    queue.send(100)
    first = opened(checkpointLocation=tmp_path)
    end = first.latest(initial(queue), 10)
    write_log(tmp_path, "offsets", 0, end)
    first.log(end)
    with pytest.raises(CheckpointError, match="belongs to another query"):
        opened(checkpointLocation=tmp_path).latest(initial(queue), 10)
