"""An explorer that finds nothing proves nothing: bugs are planted, and the simulator finds each of them in time."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.simulation import planting

QUICK = ("d03", "o02", "o06", "o09")
"""Looked for in every `make test`; the others take `make simulate-planted`."""
TABLE = planting.table()


def test_every_planted_bug_has_its_number_of_seeds() -> None:
    assert sorted(TABLE) == planting.patches()


def test_every_planted_bug_fits_the_sources(tmp_path: Path) -> None:
    """A patch that does not apply any more plants nothing: make it anew."""
    shutil.copytree(planting.ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    for name in planting.patches():
        subprocess.run(
            ["patch", "-p1", "-s", "--dry-run", "-i", str(planting.FOLDER / f"{name}.patch")],
            cwd=tmp_path,
            check=True,
        )


@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name.startswith(QUICK) else pytest.mark.thorough)
        for name in sorted(TABLE)
    ],
)
def test_a_planted_bug_is_found(name: str) -> None:
    row = TABLE[name]
    found = planting.look_for(name, seeds=row.seeds, steps=row.steps)
    assert 0 < found.seed <= row.seeds, found.output[-2000:]
