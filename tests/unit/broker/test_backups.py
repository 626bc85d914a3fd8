"""A backup on a real core over a real directory, one piece of slow work at a time."""

import errno
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.broker.backups import BackupResult
from headrace.broker.clock import ManualClock
from headrace.broker.core import BrokerCore
from headrace.broker.runner import Done, Work
from headrace.broker.settings import Settings
from headrace.log import backup
from headrace.log.background import Work as Piece
from headrace.log.disk import OsDisk
from headrace.log.manager import UnknownFormat
from headrace.wire.records import NewRecord, build_batch, read_records
from tests.unit.broker.share.bench import WhenTold


class OneByOne(WhenTold):
    """Syncs at once; slow work when told, and its errors reach whoever started it."""

    def run(self, work: Work, done: Done) -> None:
        work()
        done(None)

    def step(self) -> None:
        work, done = self.waiting.pop(0)
        try:
            work()
        except Exception as error:
            done(error)
        else:
            done(None)

    def run_slow(self, work: Work, done: Done) -> None:
        self.waiting.append((work, done))


class Desk:
    def __init__(self, folder: Path) -> None:
        self.worker = OneByOne()
        self.folder = folder
        self.core = self.open("data")
        self.results: list[BackupResult | Exception] = []

    def open(self, name: str) -> BrokerCore:
        return BrokerCore(
            Settings({}),
            disk=OsDisk(self.folder / name),
            metadata_path=self.folder / name / "metadata.sqlite",
            clock=ManualClock(),
            runner=self.worker,
            on_failure=lambda error: None,
        )

    def append(self, value: bytes, count: int = 1) -> None:
        log = self.core.topics.require("orders", 0).log
        for _ in range(count):
            log.append(build_batch([NewRecord(None, value, (), 1)]), now_ms=1)

    def begin(self) -> None:
        self.core.backups.start(
            self.folder / "copy", progress=lambda done, of: None, done=self.results.append
        )

    def values_of_copy(self) -> set[bytes | None]:
        core = self.open("copy")
        assert core.logs.was_clean
        log = core.topics.require("orders", 0).log
        values = {record.value for batch in log.reader.batches() for record in read_records(batch)}
        core.close()
        return values


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    monkeypatch.setattr(backup, "SLICE_S", 0)  # one step of the copy at a time
    desk = Desk(tmp_path)
    desk.core.topics.create("orders", partitions=1, configs={})
    yield desk
    desk.worker.run_all()
    desk.core.close()


def test_what_is_written_while_it_is_copied_is_not_in_the_copy(desk: Desk) -> None:
    desk.append(b"before", 20)
    desk.begin()
    desk.append(b"after")
    desk.worker.step()
    desk.core.topics.require("orders", 0).log.roll(1)
    desk.append(b"after")
    desk.worker.run_all()
    assert isinstance(desk.results[0], BackupResult)
    assert desk.values_of_copy() == {b"before"}


def test_a_topic_that_is_deleted_and_made_again_meanwhile_is_copied_as_it_was(desk: Desk) -> None:
    desk.append(b"old", 20)
    desk.begin()
    desk.core.topics.delete("orders")
    desk.core.settle()
    desk.core.topics.create("orders", partitions=1, configs={})
    desk.append(b"new", 20)
    desk.worker.run_all()
    assert isinstance(desk.results[0], BackupResult)
    assert desk.values_of_copy() == {b"old"}


def test_nothing_is_removed_or_rewritten_while_it_runs(desk: Desk) -> None:
    desk.append(b"v")
    desk.begin()
    done: list[str] = []
    desk.core.housekeeping.start(Piece("compact", lambda: done.append("run"), lambda: done.append("end")))
    while not desk.results:
        assert not done
        desk.worker.step()
    desk.worker.run_all()
    assert done == ["run", "end"]


def test_it_waits_for_what_is_under_way(desk: Desk) -> None:
    done: list[str] = []
    desk.core.housekeeping.start(Piece("compact", lambda: done.append("run")))
    desk.begin()
    desk.append(b"before the cut")
    desk.worker.run_all()
    assert desk.values_of_copy() == {b"before the cut"}


def test_a_full_target_leaves_the_broker_alone_and_nothing_behind(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: object, name: str, content: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    desk.append(b"v", 20)
    with monkeypatch.context() as patch:
        patch.setattr(backup.Copying, "_write", refuse)
        desk.begin()
        desk.worker.run_all()
    (error,) = desk.results
    assert isinstance(error, OSError)
    assert not (desk.folder / "copy").exists()
    assert desk.core.failure is None
    desk.begin()
    desk.worker.run_all()
    assert desk.values_of_copy() == {b"v"}


def test_a_copy_is_private_in_a_directory_that_others_can_read(desk: Desk) -> None:
    (desk.folder / "copy").mkdir(0o755)
    desk.append(b"v", 20)
    desk.begin()
    desk.worker.run_all()
    assert isinstance(desk.results[0], BackupResult)
    copied = [*(desk.folder / "copy").rglob("*")]
    assert "metadata.sqlite" in {path.name for path in copied}
    assert [path for path in copied if path.stat().st_mode & 0o077] == []


def test_no_broker_starts_from_a_copy_that_is_not_whole(desk: Desk) -> None:
    desk.append(b"v", 20)
    desk.begin()
    desk.worker.step()
    with pytest.raises(UnknownFormat):
        desk.open("copy")


def test_a_broker_that_stops_gives_it_up_and_says_why(desk: Desk) -> None:
    desk.append(b"v", 20)
    desk.begin()
    desk.worker.step()
    desk.core.backups.stop()
    desk.worker.run_all()
    assert [str(result) for result in desk.results] == ["the broker is stopping"]
    assert not (desk.folder / "copy").exists()


def test_a_second_one_has_to_wait(desk: Desk) -> None:
    desk.append(b"v")
    desk.begin()
    with pytest.raises(ValueError, match="another backup is running"):
        desk.core.backups.start(
            desk.folder / "other", progress=lambda done, of: None, done=desk.results.append
        )
