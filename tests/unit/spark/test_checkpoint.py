"""Reading Spark's logs: committed or not, whatever their layout."""

import errno
import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from headrace.spark import checkpoint, locations
from headrace.spark.checkpoint import LogSync, is_committed, require_committed, require_logged, require_own
from headrace.spark.errors import CheckpointError
from headrace.spark.offset import AcquiredOffset

OFFSET = AcquiredOffset(3, "g").to_json()


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
    for module in (checkpoint, locations):
        monkeypatch.setattr(module, "sync_path", paths.append)
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

    monkeypatch.setattr(checkpoint, "sync_path", fail)
    write(tmp_path, 0, json.dumps(OFFSET), committed=False)
    sync = LogSync()
    for _ in range(2):
        with pytest.raises(CheckpointError, match="not accepted"):
            sync.sync(tmp_path / "offsets" / "0")


def test_a_file_system_that_cannot_sync_is_told_of_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(path: Path) -> None:
        raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(checkpoint, "sync_path", refuse)
    sync = LogSync()
    for batch in range(3):
        write(tmp_path, batch, json.dumps(OFFSET), committed=False)
        sync.sync(tmp_path / "offsets" / str(batch))
    assert [record.message for record in caplog.records if "cannot sync" in record.message] == [
        f"The file system of {tmp_path} cannot sync files ([Errno 22] Invalid argument): a power cut may lose "
        "micro-batches that Spark has logged, with records that were accepted."
    ]
