"""Power fails at every operation while the coordinators' journals are rolled, compacted and pruned.

Goal: what a start reads back is what was live. Method: the real core over a simulated disk, with limits so small that
every few appends compact or prune; each change is synced before the next. After a power cut at operation 1, 2, 3 ...
the coordinators hold what they held before the interrupted change, or after it.
"""

import random
import shutil
from copy import deepcopy
from pathlib import Path

import pytest

from headrace.broker import journals
from headrace.broker.groups import records
from headrace.broker.groups.offsets import OffsetAndMetadata
from headrace.broker.share import pruning
from headrace.log.disk import PowerLost
from headrace.log.memory_disk import MemoryDisk
from headrace.share.changes import StateBatch
from headrace.share.states import RecordState
from headrace.wire.records import NewRecord, build_batch
from headrace.wire.share_state import STATE_TOPIC, ShareKey
from tests.unit.broker.share.bench import Bench

SETTINGS = {
    "headrace.share.state.history.ms": 0,
    "share.coordinator.state.topic.num.partitions": 2,
    "offsets.topic.num.partitions": 2,
    "transaction.state.log.num.partitions": 1,
    "share.coordinator.snapshot.update.records.per.snapshot": 3,
    "log.cleaner.backoff.ms": 1000,
}
STEPS = 24


@pytest.fixture(autouse=True)
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journals, "SLACK_BYTES", 600)
    monkeypatch.setattr(journals, "STOP_SLACK_BYTES", 100)
    monkeypatch.setattr(journals, "LOOK_EVERY_BYTES", 150)
    monkeypatch.setattr(pruning, "SLACK_RECORDS", 4)
    monkeypatch.setattr(pruning, "STOP_SLACK_RECORDS", 1)
    monkeypatch.setattr(pruning, "ROLL_BYTES", 300)
    monkeypatch.setattr(pruning, "RENEWALS_MAX", 1)


class Life(Bench):
    """Changes of all three coordinators, one after the other."""

    def __init__(self, folder: Path, template: Path | None = None) -> None:
        metadata = folder / "metadata.sqlite"
        if template is not None:
            for left in folder.glob("metadata.sqlite*"):
                left.unlink()
            shutil.copy(template, metadata)
        super().__init__(MemoryDisk(is_simulated=True), metadata, None, **SETTINGS)
        self.trail: list[object] = []
        """The state before the first change and after each."""

    def prepare(self) -> None:
        self.core.topics.create("orders", partitions=1, configs={})
        for name in ("__consumer_offsets", "__transaction_state", STATE_TOPIC):
            self.core.topics.internal(name)

    def begin(self) -> None:
        topic = self.core.topics.get("orders")
        assert topic is not None
        batch = build_batch([NewRecord(None, b"v", (), 1)] * 1000)
        log = topic.partitions[0].log
        log.append(batch, now_ms=1)
        self.core.logs.sync([log])
        self.keys = [ShareKey(name, topic.id, 0) for name in ("a", "b", "c", "d")]

    def live(self) -> None:
        self.begin()
        self.trail.append(self.state())
        for number in range(STEPS):
            self._change(number)
            self.trail.append(self.state())
            self.advance(0.002)
        self.core.close()

    def _change(self, number: int) -> None:
        core = self.core
        match number % 3:
            case 0:
                group_id = f"group-{number % 4}"
                value = OffsetAndMetadata(offset=number).as_record()
                entries = [records.offset_commit(group_id, "orders", 0, value)]
                if number == STEPS // 2:  # the group is deleted
                    entries = [
                        records.offset_commit(group_id, "orders", 0, None),
                        records.group_metadata(group_id, None),
                    ]
                core.groups.journal(group_id, entries)
            case 1:
                core.transactions.initialize(f"tx-{number % 2}", timeout_ms=1000)
            case _:
                self._change_share_state(number)

    def _change_share_state(self, number: int) -> None:
        store, key = self.core.share_state, self.keys[0 if number % 2 else number % 4]
        if store.get(key) is None:
            store.initialize(key, state_epoch=1, start_offset=0)
            return
        batch = StateBatch(number, number, RecordState.ACKNOWLEDGED, 1)
        store.write(
            key, state_epoch=1, leader_epoch=0, start_offset=-1, complete_count=number, batches=[batch]
        )

    def state(self) -> object:
        store = self.core.share_state
        share = {}
        for key in [*store.keys()]:
            state = store.get(key)
            assert state is not None
            share[key] = (state.start_offset, state.complete_count, tuple(state.merged()))
        transactions = {
            each.transactional_id: (each.producer_id, each.producer_epoch, each.state)
            for each in self.core.transactions
        }
        return deepcopy(self.core.groups.state.snapshot()), transactions, share

    def power_cycle(self, survival: random.Random | None = None) -> None:
        self.core.metadata.close()
        self.disk.power_cycle(survival)
        self.core = self._open()


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Metadata is SQLite's to keep; the topics are there before anything is lost."""
    folder = tmp_path_factory.mktemp("template")
    life = Life(folder)
    life.prepare()
    life.core.metadata.close()
    return folder / "metadata.sqlite"


def lives(folder: Path, template: Path, *, survival: int | None = None) -> int:
    """Loses power at each operation in turn; how many there were."""
    whole = Life(folder, template)
    whole.live()
    operation = 0
    while True:
        operation += 1
        life = Life(folder, template)
        life.disk.fail_at(operation)
        try:
            life.live()
        except PowerLost:
            done = len(life.trail)
            if not done:
                continue  # nothing was promised yet
            life.power_cycle(random.Random(survival + operation) if survival is not None else None)
            allowed = whole.trail[done - 1 : done + 1]
            assert life.state() in allowed, f"after a power cut at operation {operation}"
            life.core.metadata.close()
        else:
            return operation


def test_what_is_read_back_is_what_was_live_wherever_power_fails(tmp_path: Path, template: Path) -> None:
    assert lives(tmp_path, template) > 300


@pytest.mark.parametrize("seed", range(3))
def test_so_it_is_when_part_of_what_was_not_synced_survives(
    tmp_path: Path, template: Path, seed: int
) -> None:
    lives(tmp_path, template, survival=seed * 100_000)


def test_a_life_compacts_and_prunes(tmp_path: Path, template: Path) -> None:
    """Else the others would show nothing."""
    life = Life(tmp_path, template)
    life.begin()
    for number in range(STEPS):
        life._change(number)
        life.advance(0.002)
    topics = life.core.topics
    offsets = [partition.log for partition in topics.internal("__consumer_offsets").partitions]
    assert any(sum(1 for _ in log.reader.batches()) < log.end_offset for log in offsets)
    assert any(partition.log.start_offset for partition in topics.internal(STATE_TOPIC).partitions)
    (transactions,) = [partition.log for partition in topics.internal("__transaction_state").partitions]
    assert sum(1 for _ in transactions.reader.batches()) < transactions.end_offset
    life.core.close()
