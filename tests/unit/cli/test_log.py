"""`headrace log`: on the data directory of a real broker."""

import errno
import json
import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headrace import Broker
from headrace.cli.app import app
from headrace.log.layout import INCOMPLETE, MERGED, range_name
from headrace.log.manager import UnknownFormat
from headrace.log.metadata import MetadataError
from headrace.wire.records import NewRecord, build_batch, read_records

SEGMENT = f"orders-0/{0:020d}.log"


def headrace(*arguments: object, status: int = 0) -> str:
    result = CliRunner().invoke(app, [str(one) for one in arguments])
    assert result.exit_code == status, result.output
    return result.output


def write(folder: Path, count: int) -> None:
    with Broker(data_dir=folder) as broker:

        def append() -> None:
            log = broker.core.topics.create("orders", partitions=1, configs={}).partitions[0].log
            for number in range(count):
                log.append(build_batch([NewRecord(None, b"%d" % number, (), 1)]), now_ms=1)

        broker.call(append)


def values(folder: Path) -> list[bytes | None]:
    with Broker(data_dir=folder) as broker:

        def read() -> list[bytes | None]:
            log = broker.core.topics.require("orders", 0).log
            return [record.value for batch in log.reader.batches() for record in read_records(batch)]

        return broker.call(read)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    write(tmp_path / "data", 10)
    return tmp_path / "data"


def flip(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


def test_a_sound_directory_is_called_sound(data: Path) -> None:
    assert "10 records" in headrace("log", "check", data)
    report = json.loads(headrace("log", "check", data, "--json"))
    assert (report["records"], report["was_clean"], report["is_damaged"]) == (10, True, False)


def test_damage_is_named_and_the_status_says_so(data: Path) -> None:
    flip(data / SEGMENT, 300)
    output = headrace("log", "check", data, status=1)
    assert SEGMENT in output
    assert "offsets 4 to 4 are lost" in output


def test_a_repair_is_a_dry_run_unless_told(data: Path) -> None:
    flip(data / SEGMENT, 300)
    before = (data / SEGMENT).read_bytes()
    output = headrace("log", "repair", data)
    assert "Lost: orders-0 offsets 4 to 4 (at most 1 record" in output
    assert "Dry run" in output
    assert (data / SEGMENT).read_bytes() == before
    assert not (data / "quarantine").exists()


def test_a_repair_keeps_what_it_takes_out_and_the_broker_serves_the_rest(data: Path) -> None:
    flip(data / SEGMENT, 300)
    before = (data / SEGMENT).read_bytes()
    headrace("log", "repair", data, "--execute")
    headrace("log", "check", data)
    (kept,) = (data / "quarantine").glob(f"*/{SEGMENT}")
    assert kept.read_bytes() == before
    assert values(data) == [b"%d" % number for number in range(10) if number != 4]
    headrace("log", "check", data)


def test_offsets_that_were_cut_off_at_the_end_are_not_used_again(data: Path) -> None:
    path = data / SEGMENT
    path.write_bytes(path.read_bytes()[:-100])
    assert "offsets 8 to 9" in headrace("log", "repair", data, "--execute")
    with Broker(data_dir=data) as broker:
        assert broker.call(lambda: broker.core.topics.require("orders", 0).log.end_offset) == 10


def test_a_missing_segment_is_lost_with_its_offsets_and_the_broker_goes_on_after_them(data: Path) -> None:
    (data / SEGMENT).unlink()
    assert "Lost: orders-0 offsets 0 to 9 (at most 10 records" in headrace("log", "repair", data, "--execute")
    headrace("log", "check", data)
    with Broker(data_dir=data) as broker:
        assert broker.call(lambda: broker.core.topics.require("orders", 0).log.end_offset) == 10


def test_a_repair_says_that_the_outcome_of_a_transaction_may_be_lost(data: Path) -> None:
    with Broker(data_dir=data) as broker:

        def append() -> None:
            log = broker.core.topics.require("orders", 0).log
            record = NewRecord(None, b"10", (), 1)
            producer = {"producer_id": 7, "producer_epoch": 0}
            log.append(build_batch([record], base_sequence=0, is_transactional=True, **producer), now_ms=1)
            log.append_marker(**producer, commit=True, coordinator_epoch=0, now_ms=1)

        broker.call(append)
    flip(data / SEGMENT, (data / SEGMENT).stat().st_size - 1)
    output = headrace("log", "repair", data)
    assert "offsets 11 to 11 are lost; a transaction that is open there (from offset 10 on)" in output


def test_rubbish_after_the_last_batch_costs_no_offsets(data: Path) -> None:
    path = data / SEGMENT
    path.write_bytes(path.read_bytes() + b"rubbish")
    output = headrace("log", "repair", data, "--execute")
    assert "no offsets are lost" in output
    assert "Lost:" not in output
    assert len(values(data)) == 10


def test_what_a_crash_has_left_of_a_compaction_is_no_damage(tmp_path: Path) -> None:
    """Of a compacted segment that has its name, while a part of its sources is still there."""
    data, kept = tmp_path / "data", f"orders-0/{3:020d}.log"
    with Broker(data_dir=data) as broker:

        def compact() -> bytes:
            configs = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}
            log = broker.core.topics.create("orders", partitions=1, configs=configs).partitions[0].log
            for number in range(9):
                log.append(build_batch([NewRecord(b"%d" % (number % 2), b"%d" % number, (), 1)]), now_ms=1)
                if number % 3 == 2:
                    log.roll(1)
            broker.core.logs.run_background_work(1)
            source = (data / kept).read_bytes()
            broker.core.logs.run_background_work(1)
            return source

        source = broker.call(compact)
    assert not (data / kept).exists()
    (data / "clean-shutdown").unlink()
    (data / kept).write_bytes(source)
    (data / "orders-0" / range_name(0, 9, MERGED)).touch()
    assert "a compacted segment has replaced it" in headrace("log", "check", data)
    assert values(data) == [b"7", b"8"]
    assert not (data / kept).exists()
    assert "replaced" not in headrace("log", "check", data)


def test_metadata_that_is_damaged_needs_a_backup_and_nothing_is_touched(data: Path) -> None:
    (data / "metadata.sqlite").write_bytes(b"no database")
    (data / "meta.properties").write_bytes(b"damaged, too")
    assert "metadata.sqlite" in headrace("log", "check", data, status=1)
    output = headrace("log", "repair", data, "--execute", status=1)
    assert "bring it back from a backup" in output
    assert "What was there before" not in output
    assert (data / "meta.properties").read_bytes() == b"damaged, too"
    assert not (data / "quarantine").exists()


def test_a_broker_does_not_start_without_the_metadata_of_its_records(data: Path) -> None:
    (data / "metadata.sqlite").rename(data / "elsewhere")
    with pytest.raises(MetadataError, match="is missing, and with it the topics of 1 partitions"):
        Broker(data_dir=data).start()
    (data / "elsewhere").rename(data / "metadata.sqlite")
    assert len(values(data)) == 10


def test_an_unfinished_backup_is_refused_and_left_as_it_is(data: Path) -> None:
    (data / "meta.properties").write_bytes(INCOMPLETE)
    (data / "metadata.sqlite").unlink()
    for command in (("log", "check", data), ("log", "repair", data, "--execute")):
        assert "is an incomplete backup; remove it" in headrace(*command, status=1)
    assert (data / "meta.properties").read_bytes() == INCOMPLETE
    with pytest.raises(UnknownFormat, match="is an incomplete backup; remove it"):
        Broker(data_dir=data).start()


def test_a_broker_that_runs_is_left_alone(data: Path) -> None:
    with Broker(data_dir=data):
        output = headrace("log", "check", data, status=1)
    assert "in use by a broker; stop it first" in output


def test_a_place_without_a_data_directory_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    assert "there is no directory" in headrace("log", "check", tmp_path / "none", status=1)
    assert "not a data directory" in headrace("log", "check", tmp_path, status=1)
    assert [*tmp_path.iterdir()] == []


def test_a_directory_that_cannot_be_locked_is_refused_with_the_cure(data: Path) -> None:
    (data / ".lock").unlink()
    (data / ".lock").mkdir()
    output = headrace("log", "repair", data, status=1)
    assert "cannot be locked" in output
    assert "run the command as the broker's user, or on a copy that can be written" in output


def test_a_path_that_is_too_long_for_the_control_socket_is_named(tmp_path: Path) -> None:
    data = tmp_path / ("x" * 110)
    data.mkdir()
    output = headrace("backup", tmp_path / "copy", "--data", data, status=1)
    assert "is too long for a socket" in output


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_check_changes_nothing_and_needs_no_directory_that_it_can_write_to(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (data / ".lock").unlink()
    before = contents(data)
    os_open = os.open

    def open_to_read(path: str, flags: int, *arguments: int, **named: int) -> int:
        if str(path).startswith(str(data)) and flags & (os.O_RDWR | os.O_WRONLY | os.O_CREAT):
            raise PermissionError(errno.EROFS, os.strerror(errno.EROFS), path)
        return os_open(path, flags, *arguments, **named)

    monkeypatch.setattr(os, "open", open_to_read)
    assert "10 records" in headrace("log", "check", data)
    assert contents(data) == before


def test_a_check_reads_what_is_in_the_write_ahead_log_of_the_metadata(data: Path) -> None:
    with closing(sqlite3.connect(data / "metadata.sqlite")) as database:
        database.execute("PRAGMA journal_mode=WAL")
        database.execute("UPDATE topics SET partitions = 2 WHERE name = 'orders'")
        database.commit()
        copy = data.parent / "copy"
        shutil.copytree(data, copy)
    (copy / "orders-1").mkdir()
    assert (copy / "metadata.sqlite-wal").stat().st_size
    assert "a directory of no topic" not in headrace("log", "check", copy)


def test_a_check_is_refused_while_a_broker_runs(data: Path) -> None:
    with Broker(data_dir=data):
        assert "in use by a broker" in headrace("log", "check", data, status=1)


def test_a_directory_with_the_name_of_a_segment_is_found_and_set_aside(data: Path) -> None:
    odd = data / "orders-0" / f"{77:020d}.log"
    odd.mkdir()
    (odd / "note").write_text("mine")
    assert "a directory with the name of a file" in headrace("log", "check", data, status=1)
    headrace("log", "repair", data, "--execute")
    assert not odd.exists()
    (kept,) = (data / "quarantine").rglob("note")
    assert kept.read_text() == "mine"
    assert len(values(data)) == 10


def test_a_damaged_checkpoint_of_start_offsets_says_what_comes_back_without_it(data: Path) -> None:
    (data / "log-start-offset-checkpoint").write_bytes(b"nonsense")
    assert "records that were deleted" in headrace("log", "check", data, status=1)
