"""The driver's half, step by step on our broker: what is settled when, what is not, and what the journal forgets.

Each test here was found by planting a bug that no other test of the driver's half saw.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace import Broker, ShareConsumer
from headrace.client.delivery import AcknowledgeType
from headrace.spark.acquirer import Acquirer
from headrace.spark.driver import Driver
from headrace.spark.outcomes import Outcome, OutcomeLog
from headrace.spark.runs import Run, RunSet
from headrace.wire.enums import OffsetSpec
from headrace.wire.ids import TopicAndPartition
from tests.spark.conftest import GROUP_SETTINGS, Queue, wait_for
from tests.spark.test_driver import Open, drained, hold_all, initial, opened, records, write_log

pytestmark = pytest.mark.timeout(120)
__all__ = ["opened"]


@pytest.fixture
def own_broker() -> Iterator[Broker]:
    """A broker whose clock this test alone turns."""
    with Broker(settings=GROUP_SETTINGS) as running:
        yield running


@pytest.fixture
def queue(own_broker: Broker, unique: str, tmp_path: Path) -> Queue:
    made = Queue(own_broker.bootstrap_servers, unique, unique, tmp_path / "queue", partitions=1)
    with made.admin() as admin:
        admin.create_topic(made.topic, partitions=1)
    made.send(100)
    return made


def begin(driver: Driver, queue: Queue, *, count: int | None = None, checkpoint: Path | None = None) -> Any:
    """All records are held, and so many of them are in a logged micro-batch."""
    hold_all(driver, queue)
    end = driver.latest(initial(queue), count)
    if checkpoint is not None:
        write_log(checkpoint, "offsets", 0, end)
    driver.log(end)
    return end


def told(driver: Driver, name: str) -> int:
    return int((driver.report() or {})[name])


def acquirer_of(driver: Driver) -> Acquirer:
    assert driver._acquirer is not None
    return driver._acquirer


def test_a_query_that_is_stopped_after_the_commit_settles_it(
    opened: Open, queue: Queue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.spark.driver.COMMIT_POLL_S", 60)
    driver = opened(checkpointLocation=tmp_path)
    write_log(tmp_path, "commits", 0, begin(driver, queue, checkpoint=tmp_path))
    driver.close()
    assert queue.lag() == 0


def test_an_accept_that_the_broker_refuses_settles_nothing(
    own_broker: Broker, opened: Open, queue: Queue
) -> None:
    with queue.admin() as admin:
        admin.set_group_config(queue.group, {"share.renew.acknowledge.enable": "false"})
    driver = opened(pollTimeoutMs=50)
    end = begin(driver, queue)
    member = acquirer_of(driver)._member
    driver._loop.call_soon(lambda: member.configure(is_paused=True))
    wait_for(lambda: not any(session.in_flight for session in member.core.sessions.values()))
    own_broker.advance(31)  # the locks end at the broker, and the member does not know

    async def settle() -> None:
        await driver._settle(acquirer_of(driver))

    driver._run(settle())
    wait_for(lambda: told(driver, "refused") == queue.sent)
    # The records may have come again by now: they count as processed until they are accepted, and are not planned anew.
    wait_for(lambda: driver.latest(end, None) == end and queue.lag() == 0)
    assert told(driver, "redelivered") == queue.sent


def test_available_now_does_not_wait_for_what_another_member_holds(opened: Open, queue: Queue) -> None:
    with queue.admin() as admin:
        admin.set_group_config(queue.group, {"share.auto.offset.reset": "earliest"})
    with ShareConsumer(
        bootstrap_servers=queue.bootstrap_servers,
        group_id=queue.group,
        share_acknowledgement_mode="explicit",
        share_acquire_mode="record_limit",
        max_poll_records=40,
    ) as other:
        other.subscribe([queue.topic])
        held: list[Any] = []
        while not held:
            held += other.poll(1.0)
        offsets = drained(opened(drain=True), initial(queue))
        assert 0 < len(held) <= 40
        assert sum(map(records, offsets)) == queue.sent - len(held)
        assert queue.lag() == len(held)


def test_partitions_asked_twice_leave_the_outcomes_alone(opened: Open, queue: Queue, tmp_path: Path) -> None:
    driver = opened(checkpointLocation=tmp_path)
    end = begin(driver, queue, checkpoint=tmp_path)
    log = OutcomeLog(tmp_path / "share-outcomes")
    log.write(0, [Outcome(queue.topic, 0, 3, 3, 1, AcknowledgeType.RELEASE)])
    driver.log(end)  # df.union(df), or a second action
    assert log.read()


def test_a_rejected_record_is_copied_once_though_the_query_restarts(
    opened: Open, queue: Queue, tmp_path: Path
) -> None:
    letters = f"{queue.topic}-letters"
    with queue.admin() as admin:
        admin.create_topic(letters, partitions=1)
    options = {"checkpointLocation": tmp_path, "deadLetterTopic": letters, "pollTimeoutMs": 200}
    driver = opened(**options)
    end = begin(driver, queue, checkpoint=tmp_path)
    rejected = Outcome(queue.topic, 0, 3, 3, 1, AcknowledgeType.REJECT, "bad")
    OutcomeLog(tmp_path / "share-outcomes").write(0, [rejected])
    write_log(tmp_path, "commits", 0, end)
    for _ in range(2):
        driver.latest(end, None)
        driver.close()
        driver = opened(**options)
    with queue.admin() as admin:
        assert admin.list_offsets({(letters, 0): OffsetSpec.LATEST})[letters, 0].offset == 1


def test_a_late_commit_of_the_micro_batch_before_settles_nothing_of_this_one(
    opened: Open, queue: Queue
) -> None:
    driver = opened()
    first = begin(driver, queue, count=50)
    second = driver.latest(first, 50)
    driver.commit(first)  # Spark's order: the offset log, commit of the one before, partitions
    driver.log(second)
    wait_for(lambda: told(driver, "confirmed") >= 50)
    driver.close()
    assert queue.lag() == 50


def test_a_drained_query_has_left_the_group_when_it_says_so(opened: Open, queue: Queue) -> None:
    drained(opened(drain=True), initial(queue))
    with queue.admin() as admin:
        assert not admin.describe_share_group(queue.group).members


def test_runs_bound_a_micro_batch_too(opened: Open, queue: Queue) -> None:
    driver = opened(maxRunsPerTrigger=2)
    hold_all(driver, queue)
    every_second = RunSet.of(((queue.topic, 0), Run(at, at, 1)) for at in range(0, 100, 2))
    driver._ledger.fresh = driver._ledger.fresh.within(every_second)
    assert records(driver.latest(initial(queue), None)) == 2


def test_an_outcome_of_another_delivery_is_ignored_and_said(
    opened: Open, queue: Queue, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    driver = opened(checkpointLocation=tmp_path)
    end = begin(driver, queue, checkpoint=tmp_path)
    wrong = Outcome(queue.topic, 0, 0, 9, 7, AcknowledgeType.RELEASE)
    OutcomeLog(tmp_path / "share-outcomes").write(0, [wrong])
    write_log(tmp_path, "commits", 0, end)
    wait_for(lambda: queue.lag() == 0)
    assert "Outcomes of 10 records say nothing about this micro-batch" in caplog.text


def test_the_journal_forgets_what_the_broker_has_settled_and_nothing_else(opened: Open, queue: Queue) -> None:
    place: TopicAndPartition = (queue.topic, 0)
    everything = RunSet.of([(place, Run(0, 99, 1))])
    driver = opened()
    begin(driver, queue)  # all are locked for us
    acquirer, ledger = acquirer_of(driver), driver._ledger

    async def settle(first: int, last: int) -> None:
        acquirer._send(RunSet.of([(place, Run(first, last, 1))]))

    async def look() -> tuple[RunSet, RunSet]:
        """What is left of it by the group's offsets, and by its state topic."""
        ledger.processed = everything
        await acquirer.group.refresh_offsets()
        by_offsets, ledger.processed = ledger.processed, everything
        await acquirer.group.refresh_state()
        return by_offsets, ledger.processed

    assert driver._run(look()) == (everything, everything)
    driver._run(settle(60, 69))
    wait_for(lambda: told(driver, "confirmed") == 10)
    by_offsets, by_state = driver._run(look())
    assert by_offsets == everything
    assert by_state == RunSet.of([(place, Run(0, 59, 1)), (place, Run(70, 99, 1))])
    for first, last, sum_of_confirmed in ((0, 49, 60), (50, 50, 61)):
        driver._run(settle(first, last))
        wait_for(lambda count=sum_of_confirmed: told(driver, "confirmed") == count)  # type: ignore[misc]
    by_offsets, _ = driver._run(look())
    # The start offset may be written down with the next acknowledgement.
    assert by_offsets.at(place)[0].first in (50, 51)
    driver._run(settle(51, 59))
    driver._run(settle(70, 99))
    wait_for(lambda: told(driver, "confirmed") == 100)
    by_offsets, _ = driver._run(look())
    assert not by_offsets
