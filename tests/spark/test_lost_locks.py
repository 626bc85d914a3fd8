"""Locks that end while a micro-batch runs, and a broker that restarts under it: Spark's calls are made by hand."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace import Broker
from headrace.spark.driver import Driver
from headrace.spark.errors import CheckpointError
from headrace.spark.offset import AcquiredOffset
from headrace.spark.options import SourceOptions
from tests.spark.conftest import GROUP_SETTINGS, Queue, make_queue, wait_for
from tests.spark.test_driver import hold_all, initial
from tests.spark.test_members import own_consumer
from tests.spark.test_stream import _members

SHORT_MS = 1_000
pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[Broker]:
    """A broker whose clock this test alone turns."""
    with Broker(settings=GROUP_SETTINGS) as running:
        yield running


@pytest.fixture
def queue(own_broker: Broker, unique: str, tmp_path: Path) -> Queue:
    made = make_queue(own_broker.bootstrap_servers, unique, tmp_path)
    made.send(100)
    return made


def open_driver(queue: Queue, *, drain: bool = False, **options: object) -> Driver:
    given = {
        "kafka.bootstrap.servers": queue.bootstrap_servers,
        "subscribe": queue.topic,
        "kafka.group.id": queue.group,
        "startingOffsets": "earliest",
        "pollTimeoutMs": "5000",
        **{name: str(value) for name, value in options.items()},
    }
    return Driver(SourceOptions.parse(given), drain=drain)


def begin(driver: Driver, queue: Queue) -> dict[str, Any]:
    """All records in one logged micro-batch."""
    start = AcquiredOffset(0, queue.group).to_json()
    hold_all(driver, queue)
    end = driver.latest(start, None)
    driver.log(end)
    return end


def numbers(driver: Driver) -> dict[str, int]:
    report = driver.report()
    assert report is not None
    return report


def test_locks_are_renewed_while_a_micro_batch_runs(own_broker: Broker, queue: Queue) -> None:
    with queue.admin() as admin:
        admin.set_group_config(queue.group, {"share.record.lock.duration.ms": SHORT_MS})
    driver = open_driver(queue, pollTimeoutMs=50)
    end = begin(driver, queue)

    began = time.monotonic()
    wait_for(
        lambda: time.monotonic() - began > 3 * SHORT_MS / 1000
    )  # that nothing happens cannot be waited for
    assert numbers(driver)["lost"] == 0
    assert driver.latest(end, None) == end
    wait_for(lambda: numbers(driver)["confirmed"] == queue.sent)
    assert numbers(driver)["delivered"] == queue.sent, "nobody got them again"
    driver.close()


def test_without_renewals_records_that_come_again_are_accepted_and_not_processed_again(
    own_broker: Broker, queue: Queue
) -> None:
    with queue.admin() as admin:
        admin.set_group_config(queue.group, {"share.renew.acknowledge.enable": "false"})
    driver = open_driver(queue, pollTimeoutMs=50)
    end = begin(driver, queue)
    own_broker.advance(31)  # the locks end; the member is given the records again
    wait_for(lambda: numbers(driver)["delivered"] >= 2 * queue.sent)
    assert driver.latest(end, None) == end, "no record is planned a second time"
    wait_for(lambda: queue.lag() == 0)
    driver.close()


def test_without_renewals_a_micro_batch_that_is_committed_late_in_its_locks_is_accepted(
    own_broker: Broker, queue: Queue
) -> None:
    settings = {"share.renew.acknowledge.enable": "false", "share.record.lock.duration.ms": 5 * SHORT_MS}
    with queue.admin() as admin:
        admin.set_group_config(queue.group, settings)
    driver = open_driver(queue, pollTimeoutMs=50)
    end = begin(driver, queue)
    began = time.monotonic()
    wait_for(
        lambda: time.monotonic() - began > 2.8 * SHORT_MS / 1000
    )  # past half time, when a renewal would be tried
    assert driver.latest(end, None) == end
    wait_for(lambda: numbers(driver)["confirmed"] == queue.sent)
    assert (numbers(driver)["lost"], numbers(driver)["delivered"]) == (0, queue.sent)
    driver.close()


def test_without_renewals_others_get_the_records_of_a_long_micro_batch_too(
    own_broker: Broker, queue: Queue
) -> None:
    with queue.admin() as admin:
        admin.set_group_config(queue.group, {"share.renew.acknowledge.enable": "false"})
    driver = open_driver(queue, pollTimeoutMs=50)
    end = begin(driver, queue)
    with own_consumer(queue) as other:
        wait_for(lambda: _members(queue) == 2)
        assert other.take() == 0
        own_broker.advance(31)  # the locks end while the micro-batch runs
        wait_for(lambda: other.take() > 0)
    assert driver.latest(end, None) == end, "for the query itself each of them was there once"
    wait_for(lambda: queue.lag() == 0)
    driver.close()


def test_two_readers_of_one_checkpoint_are_told_instead_of_starving_both(
    own_broker: Broker, queue: Queue
) -> None:
    """The copy has the member id of the first one, from the offset."""
    options = {"pollTimeoutMs": 50, "kafka.default.api.timeout.ms": 1_000}
    first = open_driver(queue, **options)
    end = begin(first, queue)
    copy = open_driver(queue, **options)
    ends = {first: end, copy: end}

    def trigger() -> None:
        for driver in ends:
            ends[driver] = driver.latest(ends[driver], None)

    with pytest.raises(CheckpointError, match=r"has the same member ID .*Stop one of them"):
        wait_for(trigger)
    first.close()
    copy.close()


def test_another_member_may_take_over_when_the_locks_end(own_broker: Broker, queue: Queue) -> None:
    first = open_driver(queue, pollTimeoutMs=50)
    end = begin(first, queue)
    first.close()  # as when it dies: its session ends, and with it the locks
    second = open_driver(queue)
    other = begin(second, queue)
    assert AcquiredOffset.from_json(other).batch.record_count == queue.sent
    again = open_driver(
        queue, pollTimeoutMs=50
    )  # the first one, restarted from its checkpoint: replays, takes nothing
    assert again.log(end).batch.record_count == queue.sent
    assert again.latest(end, None) == end
    second.close()
    again.close()


def test_a_broker_that_restarts_under_a_micro_batch_loses_nothing(unique: str, tmp_path: Path) -> None:
    with Broker(settings=GROUP_SETTINGS, data_dir=tmp_path / "data") as broker:
        queue = make_queue(broker.bootstrap_servers, unique, tmp_path)
        queue.send(100)
        driver = open_driver(queue, pollTimeoutMs=50)
        end = begin(driver, queue)
        port = int(broker.bootstrap_servers.rpartition(":")[2])
    with Broker(settings=GROUP_SETTINGS, data_dir=tmp_path / "data", port=port):
        start = end
        wait_for(lambda: driver.latest(start, None) == start and queue.lag() == 0)
        assert numbers(driver)["member"] == end["m"]
        driver.close()


def test_a_broker_that_is_away_while_a_queue_is_drained_is_not_taken_for_an_empty_one(
    unique: str, tmp_path: Path
) -> None:
    settings = dict(GROUP_SETTINGS)
    with Broker(settings=settings, data_dir=tmp_path / "data") as broker:
        queue = make_queue(broker.bootstrap_servers, unique, tmp_path)
        queue.send(1_000)
        driver = open_driver(queue, drain=True, maxRecordsPerTrigger=100)
        end = driver.latest(initial(queue), 100)
        driver.log(end)
        port = int(broker.bootstrap_servers.rpartition(":")[2])
    offsets = [end]

    def drain() -> None:
        while (following := driver.latest(offsets[-1], 100)) != offsets[-1]:
            driver.log(following)
            offsets.append(following)

    draining = threading.Thread(target=drain)
    draining.start()
    time.sleep(
        3
    )  # longer than an empty queue is waited for; that nothing ends meanwhile cannot be waited for
    with Broker(settings=settings, data_dir=tmp_path / "data", port=port):
        draining.join(90)
        assert sum(AcquiredOffset.from_json(each).batch.record_count for each in offsets) == 1_000
        driver.close()
