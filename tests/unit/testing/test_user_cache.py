"""The per-user cache: a folder is there whole or not at all, and made only when it is missing or stale."""

from pathlib import Path

import pytest

from headrace.testing.user_cache import cache_folder, filled


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def test_a_folder_is_filled_once_and_again_when_it_is_stale() -> None:
    calls = []

    def fill(folder: Path) -> None:
        calls.append(folder)
        (folder / "version").write_text(str(len(calls)))

    def at_least(version: int) -> Path:
        return filled(
            "thing", is_current=lambda folder: int((folder / "version").read_text()) >= version, fill=fill
        )

    assert at_least(1) == at_least(1) == cache_folder() / "thing"
    assert len(calls) == 1
    assert (at_least(2) / "version").read_text() == "2"


def test_a_failure_leaves_nothing_behind() -> None:
    def fail(folder: Path) -> None:
        (folder / "half").write_text("of it")
        raise OSError("the network is gone")

    with pytest.raises(OSError, match="the network is gone"):
        filled("thing", is_current=lambda folder: True, fill=fail)
    assert [path.name for path in cache_folder().iterdir()] == ["thing.lock"]
