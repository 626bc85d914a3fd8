"""Random damage to a real data directory: it is found or harmless, a repair heals it, and loses only what it says.

A broker writes plain, idempotent, compacted and transactional records, offsets and share state, and stops cleanly or is
killed. Then bytes of one file are flipped, zeroed or cut off.
"""

import random
import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.broker.call import Call
from headrace.broker.clock import ManualClock
from headrace.broker.core import BrokerCore
from headrace.broker.later import Later
from headrace.broker.settings import Settings
from headrace.log.checking import Cure, Report, check
from headrace.log.disk import OsDisk
from headrace.log.repairing import losses, repair
from headrace.wire.errors import KafkaError
from headrace.wire.message import Message
from headrace.wire.messages.end_txn_request import EndTxnRequest
from headrace.wire.messages.init_producer_id_request import InitProducerIdRequest
from headrace.wire.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from headrace.wire.records import NewRecord, build_batch, read_records
from headrace.wire.share_state import ShareKey
from tests.unit.broker.share.bench import AtOnce

Contents = dict[str, dict[int, tuple[bytes | None, bytes | None]]]
SETTINGS = {
    "offsets.topic.num.partitions": 2,
    "transaction.state.log.num.partitions": 2,
    "share.coordinator.state.topic.num.partitions": 2,
    "headrace.flush": "os",
}


def start(folder: Path) -> BrokerCore:
    return BrokerCore(
        Settings(SETTINGS),
        disk=OsDisk(folder),
        metadata_path=folder / "metadata.sqlite",
        clock=ManualClock(),
        runner=AtOnce(),
        on_failure=lambda error: None,
    )


def ask(core: BrokerCore, request: Message, version: int) -> Message:
    answer = core.handle(request, Call(api_version=version, connection_id=1))
    core.settle()
    answer = answer.value if isinstance(answer, Later) else answer
    assert answer is not None
    return answer


def write(core: BrokerCore) -> None:
    topics = core.topics
    kept = {"segment.bytes": "1048576", "retention.ms": "-1"}  # its records are of 1970
    plain = topics.create("plain", partitions=2, configs=kept)
    table = topics.create("table", partitions=1, configs={"cleanup.policy": "compact"})
    topics.create("ledger", partitions=1, configs={})
    for number in range(12):
        for partition in plain.partitions:
            records = [NewRecord(None, b"%d %d" % (number, at), (), number) for at in range(5)]
            partition.log.append(build_batch(records), now_ms=number)
            if number % 4 == 3:
                partition.log.roll(number)
        log = table.partitions[0].log
        log.append(build_batch([NewRecord(b"k%d" % (number % 3), b"%d" % number, (), number)]), now_ms=number)
        if number in (4, 8):
            log.roll(number)
            core.logs.sync([log])
    core.logs.run_background_work(core.clock.wall_ms())
    for number in range(6):
        identity = ask(core, InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=60_000), 4)
        producer = {
            "producer_id": identity.producer_id,  # type: ignore[attr-defined]
            "producer_epoch": identity.producer_epoch,  # type: ignore[attr-defined]
        }
        batch = build_batch(
            [NewRecord(None, b"%d" % number, (), 1)], base_sequence=0, is_transactional=True, **producer
        )
        data = [
            TopicProduceData(name="ledger", partition_data=[PartitionProduceData(index=0, records=batch)])
        ]
        ask(core, ProduceRequest(acks=-1, transactional_id="tx", topic_data=data), 12)
        ask(core, EndTxnRequest(transactional_id="tx", committed=number % 2 == 0, **producer), 4)
        if number == 2:
            topics.require("ledger", 0).log.roll(1)
    key = ShareKey("g", plain.id, 0)
    core.share_state.initialize(key, state_epoch=1, start_offset=0)
    for number in range(5):
        core.share_state.write(
            key, state_epoch=1, leader_epoch=0, start_offset=number, complete_count=0, batches=[]
        )
    core.logs.sync(core.logs.logs.values())


def contents(core: BrokerCore) -> Contents:
    found: Contents = {}
    for topic in core.topics:
        for partition in topic.partitions:
            records = found.setdefault(partition.log.name, {})
            for batch in partition.log.reader.batches():
                for record in read_records(batch):
                    records[record.offset] = (record.key, record.value)
    return found


@pytest.fixture(scope="module", params=[True, False], ids=["stopped", "killed"])
def template(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Contents]:
    folder = tmp_path_factory.mktemp("template")
    core = start(folder)
    write(core)
    written = contents(core)
    if request.param:
        core.close()
    else:
        core.metadata.close()
        core.logs.disk.unlock()
    return folder, written


def inspect(folder: Path, *, heal: bool = False) -> Report:
    disk = OsDisk(folder)
    disk.lock()
    try:
        report = check(disk)
        if heal:
            repair(disk, report, quarantine="quarantine/now")
    finally:
        disk.unlock()
    return report


def harm(folder: Path, chance: random.Random) -> str:
    files = sorted(
        path
        for path in folder.rglob("*")
        if path.is_file() and path.stat().st_size and path.name != "reserve"
    )
    path = chance.choice([path for path in files if not path.name.startswith("metadata.sqlite")])
    data = bytearray(path.read_bytes())
    at = chance.randrange(len(data))
    match chance.choice(["flip", "zero", "cut"]):
        case "flip":
            data[at] ^= 1 << chance.randrange(8)
        case "zero":
            end = min(len(data), at + chance.randint(1, 200))
            data[at:end] = bytes(end - at)
        case _:
            del data[at:]
    path.write_bytes(data)
    return f"{path.relative_to(folder)} at byte {at}"


def test_a_sound_directory_has_nothing_to_repair(template: tuple[Path, Contents], tmp_path: Path) -> None:
    folder = tmp_path / "data"
    shutil.copytree(template[0], folder)
    report = inspect(folder)
    assert report.damages == []
    assert report.records >= sum(map(len, template[1].values())) - 10  # markers are no records


@given(seed=st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_damage_is_found_or_harmless_and_a_repair_loses_only_what_it_says(
    template: tuple[Path, Contents], tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    source, written = template
    folder = tmp_path_factory.mktemp("life") / "data"
    shutil.copytree(source, folder)
    what = harm(folder, random.Random(seed))
    heal(folder, written, what)
    shutil.rmtree(folder.parent)


def test_a_missing_segment_or_directory_is_stood_in_for_and_nothing_else_is_lost(
    template: tuple[Path, Contents], tmp_path: Path
) -> None:
    """After a kill only a segment between two others is known to be missing."""
    source, written = template
    segments = {
        folder: sorted(path.relative_to(source) for path in folder.glob("*.log"))
        for folder in source.iterdir()
        if folder.is_dir()
    }
    is_clean = (source / "clean-shutdown").exists()
    missing = [path for paths in segments.values() for path in (paths if is_clean else paths[1:-1])]
    if is_clean:
        missing += [folder.relative_to(source) for folder in segments]
    assert len(missing) > 1
    for at, path in enumerate(missing):
        folder = tmp_path / str(at)
        shutil.copytree(source, folder)
        if (folder / path).is_dir():
            shutil.rmtree(folder / path)
        else:
            (folder / path).unlink()
        assert heal(folder, written, f"{path} removed").damages
        shutil.rmtree(folder)


def heal(folder: Path, written: Contents, what: str) -> Report:
    report = inspect(folder, heal=True)
    assert not [finding for finding in report.damages if finding.cure is Cure.BACKUP], what
    assert inspect(folder).damages == [], what
    core = start(folder)
    try:
        found = contents(core)
    except KafkaError as error:
        pytest.fail(f"{what}: {error}")
    finally:
        core.metadata.close()
        core.logs.disk.unlock()
    torn = [finding for finding in report.findings if not finding.is_damage]
    for name, records in written.items():
        gone = {
            offset
            for loss in losses(report)
            if loss.partition == name
            for offset in range(loss.first_offset, loss.last_offset + 1)
        }
        for offset, record in records.items():
            if offset in gone or any(finding.partition == name for finding in torn):
                assert found[name].get(offset, record) == record or name.startswith("__"), (
                    what,
                    name,
                    offset,
                )
            else:
                assert found[name].get(offset) == record, (what, name, offset, report.findings)
    return report
