"""What a task reads, without Spark: exactly its ranges, again and again; and what it does when they are gone."""

import logging
from collections.abc import Callable, Iterator

import pytest

from headrace import Broker
from headrace.client import plain_fetch
from headrace.client.cluster import Cluster
from headrace.client.errors import LeaderNotAvailableError, TopicAuthorizationError
from headrace.client.producing.sync import Producer
from headrace.spark import executor
from headrace.spark.errors import DataLossError
from headrace.spark.executor import Reading, _kept, read_pieces
from headrace.spark.options import SourceOptions
from headrace.spark.runs import Run
from headrace.spark.splitting import Piece
from headrace.wire.batches import BatchHeader
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.metadata_response import MetadataResponseTopic
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
        self.options: dict[str, str] = {}
        with queue.admin() as admin:
            self.topic_id = admin.describe_topics([queue.topic])[queue.topic].topic_id

    def offsets(
        self,
        *runs: Run,
        fails_on_data_loss: bool = True,
        partitions: tuple[int, ...] = (0,),
        timeout_ms: int = 10_000,
    ) -> list[int]:
        pieces = tuple(Piece(self.queue.topic, self.topic_id, partition, runs) for partition in partitions)
        given = {
            "kafka.bootstrap.servers": self.queue.bootstrap_servers,
            "subscribe": self.queue.topic,
            "kafka.group.id": "g",
            "kafka.default.api.timeout.ms": "2000",
            "kafka.retry.backoff.ms": "20",
            **self.options,
        }
        client = SourceOptions.parse(given).client
        reading = Reading(
            client, include_headers=True, fails_on_data_loss=fails_on_data_loss, timeout_ms=timeout_ms
        )
        return [at for batch in read_pieces(pieces, reading) for at in batch.column("offset").to_pylist()]


@pytest.fixture
def task(queue: Queue) -> Task:
    queue.send(200)
    return Task(queue)


def test_a_worker_keeps_what_its_imports_made_out_of_the_garbage_collection_once(
    task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    frozen: list[int] = []
    monkeypatch.setattr(executor, "_frozen_pid", 0)
    monkeypatch.setattr(executor.gc, "freeze", lambda: frozen.append(1))
    for retry_ms in ("20", "20", "30"):
        task.options["kafka.retry.backoff.ms"] = retry_ms  # other settings need another connection
        assert task.offsets(Run(5, 9, 1)) == [5, 6, 7, 8, 9]
    assert frozen == [1]


def test_the_same_ranges_give_the_same_records_every_time(task: Task) -> None:
    for _ in range(2):
        assert task.offsets(Run(5, 9, 1), Run(20, 20, 2)) == [5, 6, 7, 8, 9, 20]


def test_ranges_far_apart_are_read_one_by_one(task: Task) -> None:
    task.queue.send(6_000)
    assert task.offsets(Run(0, 1, 1), Run(3_000, 3_001, 1)) == [0, 1, 3_000, 3_001]


def test_records_of_one_batch_that_lie_far_apart_come_once(task: Task) -> None:
    with Producer(bootstrap_servers=task.queue.bootstrap_servers, linger_ms=60_000) as producer:
        futures = [producer.send(task.queue.topic, b"x", partition=0, timestamp=1_000) for _ in range(3_000)]
        producer.flush()
    first = futures[0].result().offset
    wanted = [first, first + 2_000]
    assert task.offsets(*(Run(at, at, 1) for at in wanted)) == wanted


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
    with pytest.raises(DataLossError, match="deleted and created again"):
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
    with pytest.raises(DataLossError, match="deleted and created again"):
        task.offsets(Run(0, 5, 1))
    assert task.offsets(Run(0, 5, 1), fails_on_data_loss=False) == []


def test_a_topic_that_is_not_there_is_named(task: Task) -> None:
    with task.queue.admin() as admin:
        admin.delete_topics([task.queue.topic])
    with pytest.raises(DataLossError, match=f"topic {task.queue.topic} is not there"):
        task.offsets(Run(0, 5, 1))


def test_a_topic_that_is_gone_is_waited_for_once_in_a_task(
    task: Task, caplog: pytest.LogCaptureFixture
) -> None:
    with task.queue.admin() as admin:
        admin.delete_topics([task.queue.topic])
    far_apart = (Run(0, 0, 1), Run(5_000, 5_000, 1))
    with caplog.at_level(logging.WARNING, "headrace.spark"):
        assert task.offsets(*far_apart, fails_on_data_loss=False, partitions=(0, 1)) == []
    said = [record.getMessage() for record in caplog.records]
    assert ["is not there" in each for each in said] == [True, False, False, False]
    assert all("are lost, too" in each for each in said[1:])


def test_a_range_beyond_the_end_of_the_log_was_cut_off(task: Task) -> None:
    with pytest.raises(DataLossError, match=r"up to 99.*The log was cut off.*failOnDataLoss"):
        task.offsets(Run(95, 105, 1))


def test_a_log_that_was_cut_off_gives_what_it_still_has(task: Task) -> None:
    assert task.offsets(Run(95, 105, 1), fails_on_data_loss=False) == list(range(95, 100))


Lie = Callable[[ErrorCode, int], None]


@pytest.fixture
def lie(task: Task, monkeypatch: pytest.MonkeyPatch) -> Lie:
    """Makes the next so many metadata say an error of the topic."""
    left = 0
    said = ErrorCode.NONE
    take = Cluster._take_topic

    def taken(cluster: Cluster, answer: MetadataResponseTopic) -> None:
        nonlocal left
        if left and answer.name == task.queue.topic:
            left -= 1
            answer.error_code = said
        take(cluster, answer)

    def start(code: ErrorCode, times: int) -> None:
        nonlocal left, said
        left, said = times, code

    monkeypatch.setattr(Cluster, "_take_topic", taken)
    return start


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE])
@pytest.mark.parametrize("fails_on_data_loss", [True, False])
def test_a_topic_that_is_not_known_for_a_moment_is_no_loss(
    task: Task, lie: Lie, code: ErrorCode, fails_on_data_loss: bool
) -> None:
    lie(code, 10)
    assert task.offsets(Run(0, 9, 1), fails_on_data_loss=fails_on_data_loss) == list(range(10))


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, TopicAuthorizationError),
        (ErrorCode.LEADER_NOT_AVAILABLE, LeaderNotAvailableError),
    ],
)
@pytest.mark.parametrize("fails_on_data_loss", [True, False])
def test_what_only_hides_the_records_is_an_error_and_never_loss(
    task: Task, lie: Lie, code: ErrorCode, error: type[Exception], fails_on_data_loss: bool
) -> None:
    lie(code, 1_000_000)
    with pytest.raises(error):
        task.offsets(Run(0, 9, 1), fails_on_data_loss=fails_on_data_loss)


@pytest.mark.parametrize("checks", [True, False])
def test_checksums_are_looked_at_unless_the_user_says_otherwise(
    task: Task, monkeypatch: pytest.MonkeyPatch, checks: bool
) -> None:
    asked: list[int] = []
    is_intact = plain_fetch.is_intact

    def counted(batch: memoryview, position: int, header: BatchHeader) -> bool:
        asked.append(header.base_offset)
        return is_intact(batch, position, header)

    monkeypatch.setattr(plain_fetch, "is_intact", counted)
    task.options["kafka.check.crcs"] = str(checks)
    assert task.offsets(Run(0, 9, 1)) == list(range(10))
    assert bool(asked) is checks


def test_a_read_that_takes_too_long_says_what_it_waited_for(task: Task) -> None:
    """The log is asked for more than it has, for longer than a task may wait."""
    with pytest.raises(
        TimeoutError,
        match=r"Offsets 95 to 105 of .*-0 did not come from broker \d+ at .*:\d+ within 700 ms "
        r"\(kafkaConsumer.pollTimeoutMs\).*kafka.default.api.timeout.ms=2000",
    ):
        task.offsets(Run(95, 105, 1), timeout_ms=700)


def test_a_broker_that_is_away_is_named(broker: Broker, task: Task) -> None:
    task.queue.bootstrap_servers = "127.0.0.1:1"
    with pytest.raises(Exception, match=r"127\.0\.0\.1:1"):
        task.offsets(Run(0, 0, 1))
