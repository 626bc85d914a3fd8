"""Worker, broker and database are killed behind every step of tasks with `once=`: nothing is lost or doubled.

`python -m tests.chaos.once_chaos --kills 1000 --seed 1 --database postgres` does it for longer.
"""

from pathlib import Path

import pytest

from tests.chaos.once_chaos import Chaos

KILLS = 4
"""For each of the rounds."""


@pytest.mark.timeout(600)
@pytest.mark.parametrize("database", ["sqlite", pytest.param("postgres", marks=pytest.mark.needs_postgres)])
def test_nothing_is_lost_and_nothing_is_doubled(database: str, tmp_path: Path, rounds: int) -> None:
    account = Chaos(tmp_path, database, seed=1).run(KILLS * rounds)
    assert (account.lost, account.doubled) == ([], []), account


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("bug", "loses"), [("accept-first", True), ("row-outside", True), ("no-row", False)])
def test_planted_bugs_are_found(bug: str, loses: bool, tmp_path: Path) -> None:
    account = Chaos(tmp_path, "sqlite", seed=1, bug=bug, chance=0.05).run(40)
    assert account.lost if loses else account.doubled, account
