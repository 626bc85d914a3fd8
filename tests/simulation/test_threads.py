"""`ShareConsumer` with real threads and signals keeps the promises of the whole path."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("lives", [1, 3])
def test_a_consumer_that_is_interrupted_woken_and_closed_at_any_moment_loses_nothing(lives: int) -> None:
    """In a process of its own: what the broker's engine does is watched, and signals need the main thread."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.simulation.path.threads", "--seeds", str(lives)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-10_000:] + done.stderr[-10_000:]
