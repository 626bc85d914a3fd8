"""Reading Spark's logs: committed or not, whatever their layout."""

import errno
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from headrace.spark import checkpoint, locations
from headrace.spark.ahead_notes import notes_of
from headrace.spark.checkpoint import (
    MEMBER_ID_LENGTH,
    LogSync,
    is_committed,
    require_committed,
    require_logged,
    require_own,
)
from headrace.spark.errors import CheckpointError
from headrace.spark.offset import AcquiredOffset
from headrace.spark.outcomes import OutcomeLog
from headrace.spark.settle import Acknowledge

OFFSET = AcquiredOffset(3, "g").to_json()


class Refused:
    """What a file system refuses to sync, and what was synced."""

    def __init__(self) -> None:
        self.folders: set[Path] = set()
        self.synced: list[Path] = []

    def sync(self, fsync: Callable[[int], None]) -> Callable[[int], None]:
        def told(file: int) -> None:
            found = os.fstat(file)
            for each in self.folders:
                if each.exists() and os.path.samestat(each.stat(), found):
                    raise OSError(errno.EINVAL, "Invalid argument")
            fsync(file)
            self.synced.append(Path(os.readlink(f"/proc/self/fd/{file}")))

        return told


@pytest.fixture(autouse=True)
def _not_mounted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder here is this machine's own: what it does not show now will not come."""
    monkeypatch.setattr(checkpoint, "MOUNT_S", 0.1)


def write(
    folder: Path,
    batch: int,
    *lines: str,
    committed: bool,
    version: str = "v1",
    numbers: Mapping[str, object] | None = None,
) -> None:
    (folder / "offsets").mkdir(exist_ok=True)
    (folder / "commits").mkdir(exist_ok=True)
    (folder / "offsets" / str(batch)).write_text(
        "\n".join([version, json.dumps(numbers or {"batchWatermarkMs": 0}), *lines])
    )
    if committed:
        (folder / "commits" / str(batch)).write_text("v1\n{}")


def test_the_newest_micro_batch_counts(tmp_path: Path) -> None:
    write(tmp_path, 9, json.dumps(AcquiredOffset(2, "g").to_json()), committed=True)
    write(tmp_path, 10, json.dumps(OFFSET), committed=True)
    (tmp_path / "offsets" / ".11.tmp").write_text("")
    assert is_committed(tmp_path, OFFSET)
    assert not is_committed(tmp_path, AcquiredOffset(2, "g").to_json())


def test_logged_is_not_committed(tmp_path: Path) -> None:
    write(tmp_path, 0, json.dumps(OFFSET), committed=False)
    assert not is_committed(tmp_path, OFFSET)


def test_several_sources_and_other_layouts_are_understood(tmp_path: Path) -> None:
    write(tmp_path, 0, "-", "5", json.dumps({"topic": {"0": 1}}), json.dumps(OFFSET), committed=True)
    assert is_committed(tmp_path, OFFSET)
    named = ["-", 'a:{"topic": {"0": 1}}', "0:-", f"orders_source:{json.dumps(OFFSET)}"]
    write(tmp_path, 1, *named, committed=True, version="v2")
    assert is_committed(tmp_path, OFFSET)


def test_a_query_may_get_a_source_where_spark_allows_it(tmp_path: Path) -> None:
    added = AcquiredOffset(0, "g").to_json()
    write(tmp_path, 0, f"a:{json.dumps(OFFSET)}", committed=True, version="v2")
    with pytest.raises(CheckpointError, match="belongs to another query"):
        require_own(tmp_path, added)
    numbers = {"conf": {"spark.sql.streaming.queryEvolution.enableSourceEvolution": "true"}}
    write(tmp_path, 1, f"a:{json.dumps(OFFSET)}", committed=True, version="v2", numbers=numbers)
    require_own(tmp_path, added)


def test_another_folder_is_refused_with_the_cure(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="same checkpointLocation"):
        require_committed(tmp_path, OFFSET)


def test_running_ahead_of_the_commit_log_is_refused_with_the_cure(tmp_path: Path) -> None:
    write(tmp_path, 0, json.dumps(AcquiredOffset(1, "g").to_json()), committed=True)
    with pytest.raises(CheckpointError, match=r"micro-batch 3.*asyncProgressTrackingEnabled"):
        require_committed(tmp_path, OFFSET)


def test_a_micro_batch_that_is_committed_before_it_runs_is_refused(tmp_path: Path) -> None:
    """Spark runs the last one of the offset log again if the commit log has later ones."""
    write(tmp_path, 0, json.dumps(OFFSET), committed=True)
    write(tmp_path, 1, json.dumps(AcquiredOffset(4, "g").to_json()), committed=True)
    (tmp_path / "offsets" / "1").unlink()
    with pytest.raises(CheckpointError, match=r"micro-batch 0 as committed.*offset log have been lost"):
        require_logged(tmp_path, OFFSET)


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """What is synced, in order."""
    paths: list[Path] = []
    monkeypatch.setattr(locations, "sync_path", paths.append)
    return paths


def test_an_entry_is_synced_with_all_that_leads_to_it(tmp_path: Path, synced: list[Path]) -> None:
    write(tmp_path, 0, json.dumps(OFFSET), committed=False)
    for name in ("metadata", ".metadata.crc", "offsets/.0.crc"):
        (tmp_path / name).write_text("")
    sync = LogSync()
    sync.sync(require_logged(tmp_path, OFFSET))
    offsets = tmp_path / "offsets"
    files = [offsets / "0", offsets / ".0.crc", tmp_path / "metadata", tmp_path / ".metadata.crc"]
    assert synced == [*files, offsets, tmp_path, *tmp_path.parents]
    synced.clear()
    sync.sync(offsets / "0")
    assert synced == []
    write(tmp_path, 1, json.dumps(OFFSET), committed=False)
    sync.sync(offsets / "1")
    assert synced == [offsets / "1", offsets]
    synced.clear()
    write(tmp_path, 1, json.dumps(OFFSET), committed=True)
    commits = tmp_path / "commits"
    sync.sync(commits / "1")
    assert synced[0] == commits / "1"
    assert commits in synced
    synced.clear()
    sync.sync(commits / "1")
    assert synced == []


def test_the_entry_before_is_synced_too_if_it_was_not(tmp_path: Path, synced: list[Path]) -> None:
    """Spark reads both when it starts. One without data brings no call that syncs it."""
    offsets = tmp_path / "offsets"
    sync = LogSync()
    for batch in range(4):
        write(tmp_path, batch, json.dumps(OFFSET), committed=False)
    sync.sync(offsets / "1")
    assert synced[:2] == [offsets / "0", offsets / "1"]
    synced.clear()
    sync.sync(offsets / "3")
    assert synced == [offsets / "2", offsets / "3", offsets]


def test_a_disk_that_fails_keeps_records_from_being_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(path: Path) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(locations, "sync_path", fail)
    write(tmp_path, 0, json.dumps(OFFSET), committed=False)
    sync = LogSync()
    for _ in range(2):
        with pytest.raises(CheckpointError, match="not accepted"):
            sync.sync(tmp_path / "offsets" / "0")


@pytest.fixture
def cannot_sync(monkeypatch: pytest.MonkeyPatch) -> Refused:
    """Directories that cannot be synced; none, to begin with."""
    refused = Refused()
    monkeypatch.setattr(locations, "_told_file_systems", set())
    monkeypatch.setattr(os, "fsync", refused.sync(os.fsync))
    return refused


def test_files_are_synced_where_directories_cannot_be_and_that_is_told_once(
    tmp_path: Path, cannot_sync: Refused, caplog: pytest.LogCaptureFixture
) -> None:
    """As on some CIFS and FUSE mounts."""
    cannot_sync.folders = {
        tmp_path,
        *tmp_path.parents,
        *map(tmp_path.__truediv__, ("offsets", "share-outcomes")),
    }
    notes = tmp_path / "share-outcomes"
    OutcomeLog(notes, reader="m").describe(Acknowledge.COMMIT, None)
    OutcomeLog(notes).write(0, [])
    ahead = notes_of(notes, "m" * MEMBER_ID_LENGTH)
    assert ahead.open() is None
    ahead.write({"seq": 3})
    ahead.close()
    sync = LogSync()
    for batch in range(2):
        write(tmp_path, batch, json.dumps(OFFSET), committed=False)
        sync.sync(tmp_path / "offsets" / str(batch))
    synced = {file.name for file in cannot_sync.synced if file.parent == tmp_path / "offsets"}
    assert synced == {"0", "1"}
    after = notes_of(notes, "m" * MEMBER_ID_LENGTH)
    assert after.open() == {"seq": 3}
    after.close()
    told = [record.message for record in caplog.records if "cannot" in record.message]
    here = [
        message
        for message in told
        if message.startswith(f"The file system of {notes} cannot sync directories")
    ]
    assert len(here) == 1
    above = {each.stat().st_dev for each in tmp_path.parents} - {tmp_path.stat().st_dev}
    assert len(told) == 1 + len(above)


def test_a_directory_above_that_cannot_be_synced_does_not_keep_the_others_from_it(
    tmp_path: Path, cannot_sync: Refused, caplog: pytest.LogCaptureFixture
) -> None:
    cannot_sync.folders = {tmp_path.parent}
    sync = LogSync()
    for batch in range(2):
        write(tmp_path, batch, json.dumps(OFFSET), committed=False)
        sync.sync(tmp_path / "offsets" / str(batch))
    offsets = tmp_path / "offsets"
    synced = [each for each in cannot_sync.synced if each.is_relative_to(tmp_path)]
    assert synced == [offsets / "0", offsets, tmp_path, offsets / "1", offsets]
    assert set(tmp_path.parent.parents) <= set(cannot_sync.synced)
    told = [record.message for record in caplog.records]
    assert told == [
        f"{tmp_path.parent} cannot be synced ([Errno 22] Invalid argument): if directories in it that lead to "
        f"{tmp_path} are new, a power failure may remove them."
    ]


def test_a_file_that_cannot_be_synced_is_not_taken_for_a_directory(
    tmp_path: Path, cannot_sync: Refused
) -> None:
    write(tmp_path, 0, json.dumps(OFFSET), committed=False)
    cannot_sync.folders = {tmp_path / "offsets" / "0"}
    with pytest.raises(CheckpointError, match="not accepted"):
        LogSync().sync(tmp_path / "offsets" / "0")
