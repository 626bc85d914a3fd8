"""Notes of the source: whole or not at all, also when a reader that was replaced writes the same one late."""

import os
from pathlib import Path

import pytest

from headrace.spark.locations import write_durably


def test_two_writers_of_a_note_do_not_get_in_each_others_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    note = tmp_path / "note.json"
    sync = os.fsync

    def sync_after_another_writer(file: int) -> None:
        monkeypatch.setattr(os, "fsync", sync)
        write_durably(note, "from the other")
        sync(file)

    monkeypatch.setattr(os, "fsync", sync_after_another_writer)
    write_durably(note, "from this one")
    assert note.read_text() == "from this one"
    assert list(tmp_path.iterdir()) == [note]
