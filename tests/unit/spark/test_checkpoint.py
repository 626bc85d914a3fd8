"""Reading Spark's logs: committed or not, whatever their layout."""

import json
from pathlib import Path

import pytest

from headrace.spark import checkpoint
from headrace.spark.checkpoint import is_committed, require_committed
from headrace.spark.errors import CheckpointError
from headrace.spark.offset import AcquiredOffset

OFFSET = AcquiredOffset(3, "g").to_json()


@pytest.fixture(autouse=True)
def _not_mounted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder here is this machine's own: what it does not show now will not come."""
    monkeypatch.setattr(checkpoint, "MOUNT_S", 0.1)


def write(folder: Path, batch: int, *lines: str, committed: bool) -> None:
    (folder / "offsets").mkdir(exist_ok=True)
    (folder / "commits").mkdir(exist_ok=True)
    (folder / "offsets" / str(batch)).write_text("\n".join(["v1", '{"batchWatermarkMs":0}', *lines]))
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
    write(tmp_path, 0, "-", json.dumps({"topic": {"0": 1}}), json.dumps(OFFSET), committed=True)
    assert is_committed(tmp_path, OFFSET)
    write(tmp_path, 1, json.dumps({"a": {"x": 1}, "b": json.dumps(OFFSET)}), committed=True)
    assert is_committed(tmp_path, OFFSET)


def test_another_folder_is_refused_with_the_cure(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="same checkpointLocation"):
        require_committed(tmp_path, OFFSET)


def test_running_ahead_of_the_commit_log_is_refused_with_the_cure(tmp_path: Path) -> None:
    write(tmp_path, 0, json.dumps(AcquiredOffset(1, "g").to_json()), committed=True)
    with pytest.raises(CheckpointError, match=r"micro-batch 3.*asyncProgressTrackingEnabled"):
        require_committed(tmp_path, OFFSET)
