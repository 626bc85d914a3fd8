"""DeleteRecords: no sync on the loop, no answer before the start offset is safe, and a full disk is told."""

import errno
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.broker.later import Later
from headrace.log.memory_disk import SYNCS, WRITE
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.delete_records_request import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from headrace.wire.messages.delete_records_response import DeleteRecordsPartitionResult, DeleteRecordsResponse
from tests.unit.broker.test_metadata_durability import Machine


@pytest.fixture(params=["fsync", "os"])
def machine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Machine]:
    made = Machine(tmp_path, flush=request.param)
    made.create("t")
    for _ in range(5):
        made.produce("t", b"x")
    made.finish()
    made.core.logs.sync(made.core.logs.logs.values())
    made.core.metadata.sync()
    yield made
    made.close()


def delete_before(machine: Machine, offset: int) -> Later[DeleteRecordsResponse]:
    partition = DeleteRecordsPartition(partition_index=0, offset=offset)
    topics = [DeleteRecordsTopic(name="t", partitions=[partition])]
    return machine.ask(DeleteRecordsRequest(topics=topics), 2, DeleteRecordsResponse)


def result(answer: Later[DeleteRecordsResponse]) -> DeleteRecordsPartitionResult:
    found: DeleteRecordsPartitionResult = answer.value.topics[0].partitions[0]
    return found


def start_offset(machine: Machine) -> int:
    topic = machine.core.topics.get("t")
    assert topic is not None
    return topic.partitions[0].log.start_offset


def test_the_answer_waits_for_a_worker_that_saves_the_start(machine: Machine) -> None:
    machine.disk.fail_at(1, OSError(errno.EIO, "a sync on the loop"), kinds=SYNCS)
    answer = delete_before(machine, 3)
    machine.disk.stop_failing()
    assert not answer.is_done
    assert start_offset(machine) == 3  # readers see it at once
    machine.finish()
    assert (result(answer).low_watermark, result(answer).error_code) == (3, 0)
    machine.cut_power()
    assert start_offset(machine) == 3


def test_a_power_cut_before_the_answer_may_undo_it(machine: Machine) -> None:
    answer = delete_before(machine, 3)
    machine.cut_power()
    assert not answer.is_done
    assert start_offset(machine) == 0


def test_one_save_serves_all_who_wait(machine: Machine) -> None:
    answers = [delete_before(machine, offset) for offset in (1, 2, 3)]
    before = machine.disk.operations
    machine.finish()
    assert [result(answer).low_watermark for answer in answers] == [1, 2, 3]
    assert machine.disk.operations - before <= 2 * 5  # create, write, sync, rename, sync the directory


def test_a_disk_without_room_for_it_is_told_and_the_next_attempt_may_work(machine: Machine) -> None:
    machine.core.logs.store.reserve.give_up()
    machine.disk.fail_at(1, OSError(errno.ENOSPC, "No space left on device"), kinds={WRITE})
    answer = delete_before(machine, 3)
    machine.finish()
    assert result(answer).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    again = delete_before(machine, 3)
    machine.finish()
    assert (result(again).low_watermark, result(again).error_code) == (3, 0)
    machine.cut_power()
    assert start_offset(machine) == 3


def test_the_reserve_makes_room_for_it(machine: Machine) -> None:
    machine.disk.fail_at(1, OSError(errno.ENOSPC, "No space left on device"), kinds={WRITE})
    answer = delete_before(machine, 3)
    machine.finish()
    assert result(answer).error_code == 0
    assert machine.core.logs.store.reserve.is_out
