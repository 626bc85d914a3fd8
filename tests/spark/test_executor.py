"""What a task reads, without Spark: exactly its ranges, again and again; and what it does when they are gone."""

from collections.abc import Iterator

import pytest

from headrace import Broker
from headrace.spark.errors import DataLossError
from headrace.spark.executor import Reading, _kept, read_pieces
from headrace.spark.options import SourceOptions
from headrace.spark.runs import Run
from headrace.spark.splitting import Piece
from tests.spark.conftest import Queue


@pytest.fixture(autouse=True)
def _no_connection_left() -> Iterator[None]:
    yield
    if getattr(_kept, "worker", None) is not None:
        _kept.worker.close()
        _kept.worker = None


class Task:
    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        with queue.admin() as admin:
            self.topic_id = admin.describe_topics([queue.topic])[queue.topic].topic_id

    def offsets(self, *runs: Run, fails_on_data_loss: bool = True, partition: int = 0) -> list[int]:
        piece = Piece(self.queue.topic, self.topic_id, partition, runs)
        given = {
            "kafka.bootstrap.servers": self.queue.bootstrap_servers,
            "subscribe": self.queue.topic,
            "kafka.group.id": "g",
            "kafka.default.api.timeout.ms": "2000",
        }
        client = SourceOptions.parse(given).client
        reading = Reading(
            client, include_headers=True, fails_on_data_loss=fails_on_data_loss, timeout_ms=10_000
        )
        return [at for batch in read_pieces((piece,), reading) for at in batch.column("offset").to_pylist()]


@pytest.fixture
def task(queue: Queue) -> Task:
    queue.send(200)
    return Task(queue)


def test_the_same_ranges_give_the_same_records_every_time(task: Task) -> None:
    for _ in range(2):
        assert task.offsets(Run(5, 9, 1), Run(20, 20, 2)) == [5, 6, 7, 8, 9, 20]


def test_ranges_far_apart_are_read_one_by_one(task: Task) -> None:
    task.queue.send(6_000)
    assert task.offsets(Run(0, 1, 1), Run(3_000, 3_001, 1)) == [0, 1, 3_000, 3_001]


def test_a_task_that_is_given_up_early_leaves_a_usable_connection(task: Task) -> None:
    piece = Piece(task.queue.topic, task.topic_id, 0, (Run(0, 99, 1),))
    task.offsets(Run(0, 0, 1))
    abandoned = read_pieces((piece,), Reading(_kept.worker.settings, True, True, 10_000))
    next(abandoned)
    abandoned.close()
    assert task.offsets(Run(0, 2, 1)) == [0, 1, 2]


def test_a_range_that_retention_removed_fails_loudly(task: Task) -> None:
    with task.queue.admin() as admin:
        admin.delete_records({(task.queue.topic, 0): 50})
    with pytest.raises(
        DataLossError, match=r"Offsets 40 to 60 of .*-0 belong to a micro-batch.*failOnDataLoss=false"
    ):
        task.offsets(Run(40, 60, 1))
    assert task.offsets(Run(50, 60, 1)) == list(range(50, 61))


def test_with_fail_on_data_loss_false_it_reads_what_is_left(task: Task) -> None:
    with task.queue.admin() as admin:
        admin.delete_records({(task.queue.topic, 0): 50})
    # Kafka gives whole batches: what was deleted may still be in the first one.
    assert set(task.offsets(Run(40, 60, 1), fails_on_data_loss=False)) >= set(range(50, 61))
    assert task.offsets(Run(10, 20, 1), fails_on_data_loss=False) == []


def test_a_topic_that_was_made_again_is_another_topic(task: Task) -> None:
    with task.queue.admin() as admin:
        admin.delete_topics([task.queue.topic])
        admin.create_topic(task.queue.topic, partitions=2)
    task.queue.send(200)
    with pytest.raises(DataLossError, match="deleted and made again"):
        task.offsets(Run(0, 5, 1))
    assert task.offsets(Run(0, 5, 1), fails_on_data_loss=False) == []


def test_a_connection_that_knew_the_topic_before_it_was_made_again_reads_nothing_of_the_new_one(
    task: Task,
) -> None:
    assert task.offsets(Run(0, 5, 1)) == list(range(6))
    with task.queue.admin() as admin:
        admin.delete_topics([task.queue.topic])
        admin.create_topic(task.queue.topic, partitions=2)
    task.queue.send(200)
    with pytest.raises(DataLossError, match="deleted and made again"):
        task.offsets(Run(0, 5, 1))
    assert task.offsets(Run(0, 5, 1), fails_on_data_loss=False) == []


def test_a_topic_that_is_not_there_is_named(task: Task) -> None:
    with task.queue.admin() as admin:
        admin.delete_topics([task.queue.topic])
    with pytest.raises(DataLossError, match=f"topic {task.queue.topic} is not there"):
        task.offsets(Run(0, 5, 1))


def test_a_range_beyond_the_end_of_the_log_was_cut_off(task: Task) -> None:
    with pytest.raises(DataLossError, match=r"up to 99.*failOnDataLoss"):
        task.offsets(Run(95, 105, 1))


def test_a_broker_that_is_away_is_named(broker: Broker, task: Task) -> None:
    task.queue.bootstrap_servers = "127.0.0.1:1"
    with pytest.raises(Exception, match=r"127\.0\.0\.1:1"):
        task.offsets(Run(0, 0, 1))
