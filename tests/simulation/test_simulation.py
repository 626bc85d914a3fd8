"""The simulator in `make test`: it is deterministic, and the seeds it is given break no promise.

Each run is a process of its own: a simulation replaces locks, ids and thread pools of its whole process.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def simulate(*arguments: str, hash_seed: str = "random") -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "tests.simulation", *arguments],
        cwd=ROOT,
        env=os.environ | {"PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_same_seed_gives_the_same_trail_in_any_process() -> None:
    digests = [
        re.findall(
            r"^(\d+ [0-9a-f]{32})",
            simulate(
                "--seeds",
                "10",
                "--steps",
                "200",
                "--jobs",
                "1",
                "--digest",
                "--shrink-s",
                "0",
                hash_seed=seed,
            ).stdout,
            re.MULTILINE,
        )
        for seed in ("1", "2")
    ]
    assert len(digests[0]) == 10
    assert digests[0] == digests[1]
