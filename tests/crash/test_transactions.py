"""Power fails at every operation of three transactions, in turn, on the real core and log over a simulated disk.

Whatever survived of the unsynced bytes: what the client was told is true in every partition, a transaction that it was
not told about is all there or not at all, and nothing is left open that would hold back readers.
"""

import itertools
import logging
import random
from pathlib import Path

import pytest

from headrace.broker.call import Call
from headrace.broker.clock import ManualClock
from headrace.broker.core import BrokerCore
from headrace.broker.handlers import end_txn, init_producer_id, produce
from headrace.broker.later import Later
from headrace.broker.runner import Done, Work
from headrace.broker.settings import Settings
from headrace.log.disk import PowerLost
from headrace.log.memory_disk import MemoryDisk
from headrace.wire.batches import read_header
from headrace.wire.message import Message
from headrace.wire.messages.end_txn_request import EndTxnRequest
from headrace.wire.messages.end_txn_response import EndTxnResponse
from headrace.wire.messages.init_producer_id_request import InitProducerIdRequest
from headrace.wire.messages.init_producer_id_response import InitProducerIdResponse
from headrace.wire.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from headrace.wire.messages.produce_response import ProduceResponse
from headrace.wire.records import NewRecord, build_batch, read_marker, read_records

TIMEOUT_MS = 60_000
PARTITIONS = (0, 1)
PLAN = ((0, True), (1, False), (2, True))
Fates = dict[int, bool]
"""Number of a transaction to whether it is committed."""


class LateRunner:
    """Syncs when told to: between an append and its sync a real broker does other things too."""

    def __init__(self) -> None:
        self._waiting: list[tuple[Work, Done]] = []

    def run(self, work: Work, done: Done) -> None:
        self._waiting.append((work, done))

    run_slow = run

    def step(self) -> None:
        work, done = self._waiting.pop(0)
        work()
        done(None)

    def run_all(self) -> None:
        while self._waiting:
            self.step()


class Machine:
    def __init__(self, folder: Path) -> None:
        self.disk = MemoryDisk(is_simulated=True)
        self.clock = ManualClock()
        self._metadata = folder / "metadata.sqlite"
        self.start()

    def start(self) -> None:
        self._runner = LateRunner()
        self.core = BrokerCore(
            Settings({"transaction.state.log.num.partitions": 1}),
            disk=self.disk,
            metadata_path=self._metadata,
            clock=self.clock,
            runner=self._runner,
            on_failure=lambda error: None,
        )

    def power_cycle(self, survival: random.Random | None) -> None:
        self.core.metadata.close()
        self.disk.power_cycle(survival)
        self.start()

    def ask(self, handler: object, request: Message, version: int) -> Message:
        answer = handler.handle(self.core, request, Call(api_version=version))  # type: ignore[attr-defined]
        if isinstance(answer, Later):
            while not answer.is_done:
                self._runner.step()
            answer = answer.value
        assert isinstance(answer, Message)
        return answer

    def wait_for_timeouts(self) -> None:
        """Whoever does not come back is aborted."""
        self._runner.run_all()
        self.clock.advance(TIMEOUT_MS / 1000)
        self.core.settle()
        self._runner.run_all()


def write(machine: Machine, producer: tuple[int, int], number: int, partition: int) -> None:
    record = NewRecord(None, str(number).encode(), (), machine.clock.wall_ms())
    batch = build_batch(
        [record], producer_id=producer[0], producer_epoch=producer[1], base_sequence=0, is_transactional=True
    )
    data = PartitionProduceData(index=partition, records=bytes(batch))
    topic = TopicProduceData(name="orders", partition_data=[data])
    request = ProduceRequest(transactional_id="t", acks=-1, topic_data=[topic])
    response = machine.ask(produce, request, 12)
    assert isinstance(response, ProduceResponse)
    assert response.responses[0].partition_responses[0].error_code == 0


def scenario(machine: Machine, told: Fates) -> None:
    request = InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=TIMEOUT_MS)
    identity = machine.ask(init_producer_id, request, 5)
    assert isinstance(identity, InitProducerIdResponse)
    producer = identity.producer_id, identity.producer_epoch
    for number, commit in PLAN:
        for partition in PARTITIONS:
            write(machine, producer, number, partition)
        end = EndTxnRequest(
            transactional_id="t", producer_id=producer[0], producer_epoch=producer[1], committed=commit
        )
        ended = machine.ask(end_txn, end, 5)
        assert isinstance(ended, EndTxnResponse)
        assert ended.error_code == 0
        producer = ended.producer_id, ended.producer_epoch
        told[number] = commit


def fates(machine: Machine, partition: int) -> Fates:
    """Of each transaction's record in a partition, by the first marker after it."""
    found: Fates = {}
    waiting: list[int] = []
    for batch in machine.core.topics.require("orders", partition).log.reader.batches():
        if read_header(batch).is_control:
            marker = read_marker(batch)
            assert marker is not None
            found |= dict.fromkeys(waiting, marker.is_commit)
            waiting = []
        else:
            waiting += [int(record.value or b"") for record in read_records(batch)]
    assert not waiting, "an open transaction"
    return found


@pytest.mark.parametrize("seed", [None, 1, 2, 3])
def test_wherever_the_power_fails_the_partitions_agree(
    tmp_path: Path, seed: int | None, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "headrace")
    for operation in itertools.count(1):
        folder = tmp_path / str(operation)
        folder.mkdir()
        machine = Machine(folder)
        machine.core.topics.create("orders", partitions=len(PARTITIONS), configs={})
        machine.disk.fail_at(operation)
        told: Fates = {}
        try:
            scenario(machine, told)
        except PowerLost:
            pass
        else:
            assert operation > 20
            return
        machine.power_cycle(None if seed is None else random.Random(seed * 1000 + operation))
        machine.wait_for_timeouts()
        check(machine, told)
        machine.core.close()


def check(machine: Machine, told: Fates) -> None:
    first, second = (fates(machine, partition) for partition in PARTITIONS)
    assert told.items() <= first.items()
    assert told.items() <= second.items()
    assert {number for number, commit in first.items() if commit} == {
        number for number, commit in second.items() if commit
    }
    for partition in PARTITIONS:
        log = machine.core.topics.require("orders", partition).log
        assert log.stable_offset == log.end_offset
