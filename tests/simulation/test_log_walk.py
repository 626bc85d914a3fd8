"""The random walk over the log, for a bounded number of seeds; and that it finds defects that the log once had."""

import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

from headrace.log import recovery
from headrace.log.checkpoint import Checkpoint
from headrace.log.files import LogFiles
from headrace.log.layout import MERGED, parse_range_name
from headrace.log.manager import LogManager, PendingRemoval
from headrace.log.partition_log import PartitionLog
from headrace.log.segment import Segment
from tests.simulation.log_walk import run_seed

FAILED_ONCE = (93, 356, 793, 794, 984, 987, 1067, 1264, 1648, 3221, 3950, 4902, 102648, 112950)
"""Seeds that have shown a defect of the log, as the walk was then; each has a test of its own in tests/unit/log."""
SEEDS_MAX = 400
"""Within which a planted defect must be found. Each of them is found by one life in a hundred or more."""


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("first", range(0, 400, 50))
def test_no_promise_is_broken_in_fifty_lives(first: int) -> None:
    for seed in range(first, first + 50):
        failure = run_seed(seed)
        assert failure is None, failure


@pytest.mark.parametrize("seed", FAILED_ONCE)
def test_no_promise_is_broken_where_one_was(seed: int) -> None:
    failure = run_seed(seed)
    assert failure is None, failure


def test_the_same_seed_gives_the_same_life(monkeypatch: pytest.MonkeyPatch) -> None:
    plant_early_trust(monkeypatch)
    failures = [next(filter(None, map(run_seed, range(SEEDS_MAX)))) for _ in range(2)]
    assert failures[0] == failures[1]


def plant_removal_by_path(patch: pytest.MonkeyPatch) -> None:
    """D2: old segments are removed by their names, whoever has these by then."""

    def remove(manager: LogManager, doomed: Iterable[PendingRemoval]) -> list[PendingRemoval]:
        for one in doomed:
            if one.segment is None or one.log is None:
                manager.disk.remove_directory(one.directory)
                continue
            if not one.log.is_deleted:
                manager.sync([one.log])
            one.segment.remove_files()
        return []

    patch.setattr(LogManager, "_remove", remove)


def plant_checkpoints_by_name(patch: pytest.MonkeyPatch) -> None:
    """D3: offsets are kept by topic name, and those of a deleted topic stay in the file."""
    patch.setattr(PartitionLog, "key", property(lambda log: (log.topic.encode().ljust(16), log.partition)))
    patch.setattr(Checkpoint, "forget", lambda checkpoint, keys: None)


def plant_early_trust(patch: pytest.MonkeyPatch) -> None:
    """D4: a sync also vouches for a segment that closed while it ran."""
    sync = LogFiles.sync

    def sync_and_look(files: LogFiles) -> int | None:
        sync(files)
        return files.bases[-1] if files.bases else None

    patch.setattr(LogFiles, "sync", sync_and_look)


def plant_half_made_directories(patch: pytest.MonkeyPatch) -> None:
    """D10: a directory counts as made before it says whose it is."""
    adopt = LogFiles.adopt

    def adopt_first(files: LogFiles, *, is_synced: bool) -> None:
        files.is_made = True
        adopt(files, is_synced=is_synced)

    patch.setattr(LogFiles, "adopt", adopt_first)


def plant_early_pruning(patch: pytest.MonkeyPatch) -> None:
    """D12: snapshots go by what is synced, not by what is saved."""

    roll = PartitionLog.roll

    def roll_and_forget(log: PartitionLog, now_ms: int) -> Segment:
        segment = roll(log, now_ms)
        log.files.forget_snapshots(log.recovery_point)
        return segment

    patch.setattr(PartitionLog, "roll", roll_and_forget)


def plant_compaction_of_undecided(patch: pytest.MonkeyPatch) -> None:
    """Compaction relies on markers that a power cut can take away."""
    patch.setattr(PartitionLog, "decided_offset", property(lambda log: log.stable_offset))


def plant_forgotten_sources(patch: pytest.MonkeyPatch) -> None:
    """After a crash, segments stay that a compacted one has replaced."""
    patch.setattr(
        recovery, "parse_range_name", lambda name: None if name.endswith(MERGED) else parse_range_name(name)
    )


PLANTED: list[Callable[[Any], None]] = [
    plant_removal_by_path,
    plant_checkpoints_by_name,
    plant_early_trust,
    plant_half_made_directories,
    plant_early_pruning,
    plant_compaction_of_undecided,
    plant_forgotten_sources,
]


@pytest.mark.parametrize("plant", PLANTED, ids=[plant.__name__ for plant in PLANTED])
def test_a_planted_defect_is_found(plant: Callable[[Any], None], monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    assert any(run_seed(seed) is not None for seed in range(SEEDS_MAX))
