"""Power fails at every operation of a share group's life, in turn, on the real core and log over a simulated disk.

Goal: what a member was told and a group commit has covered stays so; what was not covered may come back, and nothing
is ever lost. Method: members fetch, accept, release, reject and let locks run out, over snapshots, pruning and dead
letters, until the disk fails at operation 1, 2, 3 ... A ledger keeps what each record was promised. After the power
comes back new records are produced, a new member works everything off, and the ledger is compared with what it got.
"""

import itertools
import logging
import random
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from headrace.broker.call import Call
from headrace.broker.core import BrokerCore
from headrace.broker.handlers import error_response, handler_of
from headrace.broker.later import Later
from headrace.broker.settings import Settings
from headrace.broker.topics import Topic
from headrace.log.disk import PowerLost
from headrace.log.memory_disk import MemoryDisk
from headrace.wire.errors import KafkaError
from headrace.wire.message import Message
from headrace.wire.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from headrace.wire.messages.produce_response import ProduceResponse
from headrace.wire.messages.share_group_heartbeat_request import ShareGroupHeartbeatRequest
from headrace.wire.messages.share_group_heartbeat_response import ShareGroupHeartbeatResponse
from headrace.wire.records import NewRecord, build_batch, read_records
from headrace.wire.share_state import STATE_TOPIC
from tests.unit.broker.share.bench import ACCEPT, GROUP, REJECT, RELEASE, Bench, Member, WhenTold

TOPIC, LETTERS = "orders", "dlq.orders"
DELIVERIES_MAX = 2
LOCK_S = 30
SEGMENT_BYTES = 1000
"""Of the share coordinator's log: small, so that pruning removes files."""
ALL, LEADER = -1, 1
SETTINGS = {
    "share.coordinator.state.topic.num.partitions": 1,
    "offsets.topic.num.partitions": 1,
    "share.coordinator.snapshot.update.records.per.snapshot": 2,
}
GROUP_CONFIGS = {
    "share_delivery_count_limit": str(DELIVERIES_MAX),
    "errors_deadletterqueue_topic_name": LETTERS,
    "errors_deadletterqueue_copy_record_enable": "true",
}


class Core(BrokerCore):
    """Lets a power cut through, which a broker would answer as it answers any bug."""

    def handle(self, request: Message, call: Call) -> Message | Later[Message] | None:
        handler = handler_of(request.API_KEY)
        try:
            result: Message | Later[Message] | None = handler.handle(self, request, call)
        except KafkaError as error:
            result = error_response(request, error.code, error.message, call)
        return result


class Machine(Bench):
    def __init__(self, folder: Path, template: Path | None = None) -> None:
        self.worker = WhenTold()
        metadata = folder / "metadata.sqlite"
        if template is not None:
            shutil.copy(template, metadata)
        super().__init__(MemoryDisk(is_simulated=True), metadata, self.worker, **SETTINGS)

    def _open(self) -> BrokerCore:
        core = Core(
            Settings(self.given),
            disk=self.disk,
            metadata_path=self.metadata,
            clock=self.clock,
            runner=self.worker,
            on_failure=lambda error: None,
        )
        topic = core.topics.get(STATE_TOPIC)
        if topic is not None:
            (partition,) = topic.partitions
            partition.log.config = replace(
                partition.log.config, segment_bytes=SEGMENT_BYTES, file_delete_delay_ms=0
            )
        return core

    def power_cycle(self, survival: random.Random | None) -> None:
        self.core.metadata.close()
        self.disk.power_cycle(survival)
        self.worker.waiting.clear()
        self.core = self._open()

    def require_power(self) -> None:
        """What happens in a timer or after a sync fails by itself: a broker logs it and goes on."""
        if self.disk._is_off:
            raise PowerLost("the power is off")

    @property
    def orders(self) -> Topic:
        return self._topic(TOPIC)

    @property
    def letters(self) -> list[bytes | None]:
        (partition,) = self._topic(LETTERS).partitions
        return [record.value for batch in partition.log.reader.batches() for record in read_records(batch)]

    def _topic(self, name: str) -> Topic:
        topic = self.core.topics.get(name)
        assert topic is not None
        return topic

    def when_synced(self, callback: Callable[[], None]) -> None:
        """After the group commit that covers all that the share coordinator has written by now."""
        (partition,) = self.core.topics.internal(STATE_TOPIC).partitions
        self.core.durable([partition.log]).then(lambda _: callback())

    def send(self, *values: bytes, acks: int = ALL) -> int:
        """Produces one batch; returns its first offset. With acks=all it is durable then."""
        batch = build_batch([NewRecord(None, value, (), self.clock.wall_ms()) for value in values])
        data = PartitionProduceData(index=0, records=batch)
        request = ProduceRequest(acks=acks, topic_data=[TopicProduceData(name=TOPIC, partition_data=[data])])
        answer = self.core.handle(request, Call(api_version=12))
        if isinstance(answer, Later):
            while not answer.is_done:
                self.worker.step()
            answer = answer.value
        assert isinstance(answer, ProduceResponse)
        self.core.settle()
        (result,) = answer.responses[0].partition_responses
        assert result.error_code == 0
        return int(result.base_offset)

    def join(self, name: str) -> Member:
        request = ShareGroupHeartbeatRequest(
            group_id=GROUP, member_id=name, member_epoch=0, subscribed_topic_names=[TOPIC]
        )
        answer = self.core.handle(request, Call(api_version=1))
        assert isinstance(answer, ShareGroupHeartbeatResponse)
        assert answer.error_code == 0
        return Member(self, name, connection_id=hash(name))

    def contents(self) -> dict[int, bytes]:
        log = self.orders.partitions[0].log
        return {
            record.offset: record.value or b""
            for batch in log.reader.batches()
            for record in read_records(batch)
        }


@dataclass
class Fate:
    """What is known of one record, and what was promised."""

    offset: int
    is_produced: bool = False
    """Its producer was told that it is durable."""
    seen: int = 0
    """The delivery count that a member saw last."""
    kept: int = 0
    """The delivery count that a group commit has covered."""
    is_accepted: bool = False
    is_given_up: bool = False
    is_ending_synced: bool = False
    may_be_accepted: bool = False
    """Somebody has tried."""
    may_be_given_up: bool = False


class Ledger(dict[bytes, Fate]):
    """By value: an offset may get another record after a power cut."""

    def at(self, offset: int) -> Fate:
        (fate,) = [fate for fate in self.values() if fate.offset == offset]
        return fate


class Scenario:
    def __init__(self, machine: Machine, ledger: Ledger) -> None:
        self.machine = machine
        self.ledger = ledger
        self.number = itertools.count()

    def run(self) -> None:
        for life in (self._first_life, self._second_life):
            life()
            self.machine.worker.run_all()
            self.machine.require_power()
            self.machine.core.close()
            self.machine.core = self.machine._open()

    def _first_life(self) -> None:
        self._produce(3)
        self._produce(3)
        one, two = self.machine.join("one"), self.machine.join("two")
        self._take(one, 6)
        self._accept(one, 0, 1)
        self._release(one, 2)
        self._sync()
        self._take(two, 1)
        self._accept(one, 3)
        self._reject(one, 4)
        self._release(two, 2)  # its second delivery: to the dead letters
        self._sync()
        self._produce(2, acks=LEADER)  # may be lost while what is said of it stays
        self._take(two, 2)
        self._accept(two, 6, 7)
        self._let_locks_run_out(5)
        self._sync()
        self._take(two, 1)
        self._prune()
        self._produce(2)
        self._take(one, 2)
        self._disconnect(one, 8, 9)
        self._accept(two, 5)

    def _second_life(self) -> None:
        three = self.machine.join("three")
        self._take(three, 2)
        self._let_locks_run_out(8, 9)  # to the dead letters
        self._produce(4)
        self._prune()
        self._take(three, 4)
        for offset in range(10, 14):
            self._accept(three, offset)
            if offset % 2:
                self._sync()
        self._produce(2, acks=LEADER)
        self._take(three, 2)
        self._reject(three, 14)
        self._prune()
        self._release(three, 15)
        self._sync()

    def _produce(self, count: int, *, acks: int = ALL) -> None:
        values = [b"r%d" % next(self.number) for _ in range(count)]
        offset = self.machine.orders.partitions[0].log.end_offset
        for index, value in enumerate(values):
            self.ledger[value] = Fate(offset + index)
        assert self.machine.send(*values, acks=acks) == offset
        for value in values:
            self.ledger[value].is_produced = acks == ALL

    def _take(self, member: Member, count: int) -> None:
        taken = 0
        found = member.take(self.machine.orders)
        self.machine.require_power()
        for first, last, seen in found:
            for offset in range(first, last + 1):
                fate = self.ledger.at(offset)
                assert seen == fate.seen + 1
                fate.seen = seen
                taken += 1
        assert taken == count

    def _accept(self, member: Member, *offsets: int) -> None:
        fates = [self.ledger.at(offset) for offset in offsets]
        for fate in fates:
            fate.may_be_accepted = True
        acks = [(offset, offset, ACCEPT) for offset in offsets]
        code = member.settle(self.machine.orders, *acks)
        self.machine.require_power()
        assert code == 0
        for fate in fates:
            fate.is_accepted = True
        self.machine.when_synced(lambda: _mark_ended(fates))

    def _reject(self, member: Member, offset: int) -> None:
        fate = self.ledger.at(offset)
        fate.may_be_given_up = True
        code = member.settle(self.machine.orders, (offset, offset, REJECT))
        self.machine.require_power()
        assert code == 0
        fate.is_given_up = True
        self.machine.when_synced(lambda: _mark_ended([fate]))

    def _release(self, member: Member, offset: int) -> None:
        def release() -> None:
            code = member.settle(self.machine.orders, (offset, offset, RELEASE))
            self.machine.require_power()
            assert code == 0

        self._give_back([offset], release)

    def _let_locks_run_out(self, *offsets: int) -> None:
        self._give_back(offsets, lambda: self.machine.advance(LOCK_S + 1))

    def _disconnect(self, member: Member, *offsets: int) -> None:
        def disconnect() -> None:
            for told in self.machine.core.on_disconnect:
                told(member.connection_id)

        self._give_back(offsets, disconnect)

    def _give_back(self, offsets: Iterable[int], act: Callable[[], None]) -> None:
        fates = [self.ledger.at(offset) for offset in offsets]
        for fate in fates:
            fate.may_be_given_up |= fate.seen == DELIVERIES_MAX
        act()
        self.machine.require_power()
        for fate in fates:
            fate.is_given_up |= fate.seen == DELIVERIES_MAX
            count = fate.seen
            self.machine.when_synced(lambda fate=fate, count=count: _mark_kept(fate, count))  # type: ignore[misc]

    def _prune(self) -> None:
        self.machine.core.share_state.prune()
        self._sync()
        self.machine.core.logs.run_background_work(self.machine.clock.wall_ms())

    def _sync(self) -> None:
        """One group commit; what it caused to be written waits for the next."""
        if self.machine.worker.waiting:
            self.machine.worker.step()
        self.machine.require_power()


def _mark_ended(fates: Iterable[Fate]) -> None:
    for fate in fates:
        fate.is_ending_synced = True


def _mark_kept(fate: Fate, count: int) -> None:
    fate.kept = count
    fate.is_ending_synced |= fate.is_given_up


def work_off(machine: Machine) -> dict[bytes, int]:
    """Accepts everything there is; the delivery count of each record that came."""
    member = machine.join("last")
    got: dict[bytes, int] = {}
    while taken := member.take(machine.orders):
        machine.worker.run_all()
        contents = machine.contents()
        for first, last, count in taken:
            for offset in range(first, last + 1):
                assert contents[offset] not in got, "a record was delivered twice"
                got[contents[offset]] = count
            assert member.settle(machine.orders, (first, last, ACCEPT)) == 0
    machine.worker.run_all()
    return got


def check(machine: Machine, ledger: Ledger) -> None:
    survived = machine.contents()
    for value, fate in ledger.items():
        assert not fate.is_produced or survived.get(fate.offset) == value, f"{value!r} is lost"
    machine.send(b"new-0", b"new-1", b"new-2")
    got = work_off(machine)
    dead = machine.letters
    for value in machine.contents().values():
        if value in ledger:
            check_one(value, ledger[value], got.get(value), is_dead=value in dead)
        else:
            assert got.get(value) == 1, f"{value!r} came {got.get(value)} times"
    assert set(dead) <= {value for value, fate in ledger.items() if fate.may_be_given_up}
    check_rest(machine, dead)


def check_one(value: bytes, fate: Fate, count: int | None, *, is_dead: bool) -> None:
    if fate.is_ending_synced:
        assert count is None, f"{value!r} was settled, synced, and delivered again: {fate}"
        assert is_dead == fate.is_given_up, f"{value!r} has no dead letter: {fate}"
    elif count is None:
        assert fate.may_be_accepted or is_dead, f"{value!r} is lost: {fate}"
    else:
        assert fate.kept < count <= fate.seen + 1, f"{value!r} came with count {count}: {fate}"


def check_rest(machine: Machine, dead: list[bytes | None]) -> None:
    """All is settled now, and stays so over a clean restart."""
    machine.core.close()
    machine.core = machine._open()
    assert work_off(machine) == {}
    assert machine.letters == dead
    (loaded,) = machine.core.share_leader.loaded(GROUP)
    assert loaded.engine.start_offset == loaded.partition.log.end_offset
    machine.core.close()


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The metadata of a machine with the topics and the group's settings: made once, since SQLite syncs for real."""
    folder = tmp_path_factory.mktemp("template")
    machine = Machine(folder)
    for name in (TOPIC, LETTERS):
        machine.core.topics.create(
            name, partitions=1, configs={"errors.deadletterqueue.group.enable": "true"}
        )
    for name in (STATE_TOPIC, "__consumer_offsets"):
        machine.core.topics.internal(name)
    machine.configure(**GROUP_CONFIGS)
    machine.core.metadata.close()
    return folder / "metadata.sqlite"


Fail = Callable[[Machine, int], None]


def run_until_it_completes(folder: Path, template: Path, fail: Fail, *, first: int = 1, step: int = 1) -> int:
    for operation in itertools.count(first, step):
        machine = Machine(folder, template)
        ledger = Ledger()
        machine.disk.fail_at(operation)
        try:
            Scenario(machine, ledger).run()
        except PowerLost:
            fail(machine, operation)
            check(machine, ledger)
        else:
            machine.disk.restart()
            check(machine, ledger)
            break
    return operation


def test_nothing_settled_comes_back_and_nothing_is_lost_wherever_power_fails(
    tmp_path: Path, template: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "headrace")
    operations = run_until_it_completes(tmp_path, template, lambda machine, _: machine.power_cycle(None))
    assert operations > 100


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_so_it_is_when_part_of_what_was_not_synced_survives(
    tmp_path: Path, template: Path, seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Every operation in one of the seeds."""
    caplog.set_level(logging.CRITICAL, "headrace")

    def fail(machine: Machine, operation: int) -> None:
        machine.power_cycle(random.Random(operation))

    run_until_it_completes(tmp_path, template, fail, first=seed, step=3)


def test_so_it_is_when_power_fails_again_while_the_broker_recovers(
    tmp_path: Path, template: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "headrace")

    def fail_until_it_starts(machine: Machine, operation: int) -> None:
        for again_at in itertools.count(1):
            machine.core.metadata.close()
            machine.disk.power_cycle(random.Random(operation * 1009 + again_at))
            machine.worker.waiting.clear()
            machine.disk.fail_at(again_at)
            try:
                machine.core = machine._open()
            except PowerLost:
                continue
            machine.disk.restart()
            return

    run_until_it_completes(tmp_path, template, fail_until_it_starts, step=7)
