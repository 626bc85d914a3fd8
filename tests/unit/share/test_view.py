"""Goal: an onlooker sees runs of records, not the engine's book-keeping. Method: a real share-partition, looked at."""

from headrace.share.changes import AckBatch, AcknowledgeType, StateBatch
from headrace.share.limits import Limits
from headrace.share.partition import SharePartition
from headrace.share.states import RecordState
from headrace.share.view import SharePartitionState, StateRun, live_runs, written_runs

ACQUIRED, AVAILABLE, ACKNOWLEDGED = RecordState.ACQUIRED, RecordState.AVAILABLE, RecordState.ACKNOWLEDGED
LIMITS = Limits(lock_ms=30_000)


def take(partition: SharePartition, member: str, *batches: tuple[int, int], now_ms: int = 0) -> None:
    acquisition = partition.acquire(
        member,
        batch_size=1,
        records_max=100,
        fetch_offset=partition.next_fetch_offset(),
        batches=batches,
        limits=LIMITS,
        now_ms=now_ms,
    )
    partition.apply(acquisition.changes)


def answer(partition: SharePartition, member: str, first: int, last: int, kind: AcknowledgeType) -> None:
    changes = partition.acknowledge(member, [AckBatch(first, last, [kind])], limits=LIMITS, now_ms=0)
    partition.apply(changes)


def view(**changed: object) -> SharePartitionState:
    fields: dict[str, object] = {
        "group_id": "g",
        "topic": "t",
        "topic_id": "A" * 22,
        "partition": 0,
        "start_offset": 5,
        "next_offset": 12,
        "state_epoch": 1,
        "leader_epoch": 0,
        "snapshot_epoch": 0,
        "delivery_complete_count": 2,
        "runs": (
            StateRun(6, 7, ACKNOWLEDGED, 1),
            StateRun(8, 8, AVAILABLE, 1),
            StateRun(9, 9, ACKNOWLEDGED, 2),
        ),
        "log_start_offset": 0,
        "log_end_offset": 20,
        "is_live": True,
    }
    return SharePartitionState(**{**fields, **changed})  # type: ignore[arg-type]


def test_batches_that_one_member_took_at_once_are_one_run() -> None:
    partition = SharePartition(0)
    take(partition, "m1", (0, 4), (5, 9))
    runs = live_runs(partition.snapshot().ranges, now_ms=10_000)
    assert runs == (StateRun(0, 9, ACQUIRED, 1, "m1", 20_000),)
    assert runs[0].count == 10


def test_another_holder_another_lock_or_another_state_begins_another_run() -> None:
    partition = SharePartition(0)
    take(partition, "m1", (0, 4))
    take(partition, "m1", (5, 6), now_ms=1_000)
    take(partition, "m2", (7, 9), now_ms=1_000)
    answer(partition, "m1", 1, 2, AcknowledgeType.RELEASE)
    assert live_runs(partition.snapshot().ranges, now_ms=1_000) == (
        StateRun(0, 0, ACQUIRED, 1, "m1", 29_000),
        StateRun(1, 2, AVAILABLE, 1),
        StateRun(3, 4, ACQUIRED, 1, "m1", 29_000),
        StateRun(5, 6, ACQUIRED, 1, "m1", 30_000),
        StateRun(7, 9, ACQUIRED, 1, "m2", 30_000),
    )


def test_a_hole_between_alike_runs_keeps_them_apart() -> None:
    partition = SharePartition.recover(0, [StateBatch(0, 1, AVAILABLE, 1), StateBatch(4, 5, AVAILABLE, 1)])
    runs = live_runs(partition.snapshot().ranges, now_ms=0)
    assert runs == (StateRun(0, 1, AVAILABLE, 1), StateRun(4, 5, AVAILABLE, 1))
    assert runs == written_runs([StateBatch(0, 1, AVAILABLE, 1), StateBatch(4, 5, AVAILABLE, 1)])


def test_a_lock_that_is_over_and_not_collected_yet_has_no_time_left() -> None:
    partition = SharePartition(0)
    take(partition, "m1", (0, 0))
    (run,) = live_runs(partition.snapshot().ranges, now_ms=31_000)
    assert run.lock_ms_left == 0


def test_an_empty_window_has_no_runs() -> None:
    assert live_runs(SharePartition(7).snapshot().ranges, now_ms=0) == ()


def test_the_size_of_a_window_is_its_distance_and_counts_are_of_records() -> None:
    assert view().in_flight == 7
    assert view().count_of(ACKNOWLEDGED) == 3
    assert view().count_of(ACQUIRED) == 0


def test_a_window_that_nobody_has_decided_on_is_empty() -> None:
    assert view(start_offset=None, next_offset=None).in_flight == 0
