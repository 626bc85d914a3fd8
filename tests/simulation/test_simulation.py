"""The simulator in `make test`: it is deterministic, and the seeds it is given break no promise.

Each run is a process of its own: a simulation replaces locks, ids and thread pools of its whole process.
"""

import hashlib
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.simulation import planting
from tests.simulation.scenario import GUARDED_FROM, WIDE_FROM

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.timeout(600)
"""Nothing here waits: the time is the processor's, and other tests may run beside."""


def simulate(
    *arguments: str, hash_seed: str = "random", sources: str = ""
) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "tests.simulation", *arguments],
        cwd=ROOT,
        env=os.environ | {"PYTHONHASHSEED": hash_seed} | ({"PYTHONPATH": sources} if sources else {}),
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_same_seed_gives_the_same_trail_in_any_process() -> None:
    arguments = ["--seeds", "10", "--steps", "200", "--jobs", "1", "--digest", "--shrink-s", "0"]
    digests = [
        re.findall(r"^(\d+ [0-9a-f]{32})", simulate(*arguments, hash_seed=seed).stdout, re.MULTILINE)
        for seed in ("1", "2")
    ]
    assert len(digests[0]) == 10
    assert digests[0] == digests[1]


def test_the_same_seed_gives_the_same_trail_of_the_whole_path() -> None:
    arguments = [
        "--path",
        "client",
        "--seeds",
        "3",
        "--steps",
        "100",
        "--jobs",
        "1",
        "--digest",
        "--shrink-s",
        "0",
    ]
    digests = [
        re.findall(r"^(\d+ [0-9a-f]{32})", simulate(*arguments, hash_seed=seed).stdout, re.MULTILINE)
        for seed in ("1", "2")
    ]
    assert len(digests[0]) == 3
    assert digests[0] == digests[1]


def test_the_same_seed_gives_the_same_trail_of_task_queues() -> None:
    arguments = [
        "--path",
        "jobs",
        "--seeds",
        "3",
        "--steps",
        "60",
        "--jobs",
        "1",
        "--digest",
        "--shrink-s",
        "0",
    ]
    digests = [
        re.findall(r"^(\d+ [0-9a-f]{32})", simulate(*arguments, hash_seed=seed).stdout, re.MULTILINE)
        for seed in ("1", "2")
    ]
    assert len(digests[0]) == 3
    assert digests[0] == digests[1]


def test_the_same_seed_gives_the_same_trail_of_the_spark_path() -> None:
    arguments = [
        "--path",
        "spark",
        "--seeds",
        "3",
        "--steps",
        "80",
        "--jobs",
        "1",
        "--digest",
        "--shrink-s",
        "0",
    ]
    digests = [
        re.findall(r"^(\d+ [0-9a-f]{32})", simulate(*arguments, hash_seed=seed).stdout, re.MULTILINE)
        for seed in ("1", "2")
    ]
    assert len(digests[0]) == 3
    assert digests[0] == digests[1]


def parts_of(name: str, path: str, seeds: int) -> list[Any]:
    """The lines of a file of seeds, so many at a time: each test is short enough for the slowest machine."""
    lines = Path(__file__).with_name(name).read_text().splitlines()
    lines = [line for line in lines if line.strip() and not line.startswith("#")]
    parts = [lines[first : first + seeds] for first in range(0, len(lines), seeds)]
    return [pytest.param(path, part, id=f"{path}-{number}") for number, part in enumerate(parts)]


@pytest.mark.parametrize(
    ("path", "seeds"),
    [
        *parts_of("seeds.txt", "broker", 10),
        *parts_of("seeds-client.txt", "client", 10),
        *parts_of("seeds-jobs.txt", "jobs", 10),
        *parts_of("seeds-spark.txt", "spark", 2),
    ],
)
def test_seeds_that_once_failed_break_no_promise(path: str, seeds: list[str], tmp_path: Path) -> None:
    file = tmp_path / "seeds.txt"
    file.write_text("\n".join(seeds))
    done = simulate("--path", path, "--file", str(file), "--jobs", "1")
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr
    assert f"{len(seeds)} seeds, " in done.stdout


def fresh_seed() -> str:
    """Another one for each state of the sources, the same one for the same state: what fails, fails again."""
    digest = hashlib.sha256()
    for folder in ("src/headrace", "tests/simulation"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            digest.update(path.read_bytes())
    return str(int.from_bytes(digest.digest()[:4]))


def test_fresh_seeds_of_a_wide_topic_break_no_promise() -> None:
    first = str(WIDE_FROM + int(fresh_seed()) % (GUARDED_FROM - WIDE_FROM))
    done = simulate("--first", first, "--seeds", "3", "--steps", "120", "--jobs", "1", "--shrink-s", "20")
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr


def test_fresh_seeds_break_no_promise() -> None:
    """What fails here is a bug: keep its seed in seeds.txt. `make simulate FIRST=...` explores further."""
    first = fresh_seed()
    done = simulate("--first", first, "--seeds", "25", "--steps", "300", "--jobs", "1", "--shrink-s", "20")
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr


def test_fresh_seeds_break_no_promise_of_the_whole_path() -> None:
    """The same with real clients and workers: `make simulate-clients FIRST=...` explores further."""
    first = fresh_seed()
    arguments = ["--path", "client", "--first", first, "--seeds", "4", "--steps", "120", "--jobs", "1"]
    done = simulate(*arguments, "--shrink-s", "20")
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr


def test_fresh_seeds_break_no_promise_of_task_queues() -> None:
    """With schedules, tasks with `once=` and their database: `make simulate-jobs FIRST=...` explores further."""
    first = fresh_seed()
    arguments = ["--path", "jobs", "--first", first, "--seeds", "6", "--steps", "120", "--jobs", "1"]
    done = simulate(*arguments, "--shrink-s", "20")
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr


def test_fresh_seeds_break_no_promise_of_the_spark_path() -> None:
    """The same with queries of the Spark source: `make simulate-spark FIRST=...` explores further."""
    run_fresh_spark_seeds(int(fresh_seed()), 4)


@pytest.mark.parametrize("part", range(3))
def test_more_fresh_seeds_break_no_promise_of_the_spark_path(part: int) -> None:
    """For `make verify`: those that follow."""
    run_fresh_spark_seeds(int(fresh_seed()) + 4 + 12 * part, 12)


def run_fresh_spark_seeds(first: int, seeds: int) -> None:
    arguments = ["--path", "spark", "--first", str(first), "--seeds", str(seeds), "--steps", "100"]
    done = simulate(*arguments, "--jobs", "1", "--shrink-s", "20")
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr
    assert f"{seeds} seeds, " in done.stdout


def test_a_failure_is_shrunk_to_a_trail_that_fails_in_the_same_way() -> None:
    """With a bug that is planted: acks=all is answered before the sync."""
    with planting.planted("o02-acknowledged-before-sync") as sources:
        done = simulate("--seeds", "10", "--steps", "300", "--jobs", "1", "--shrink-s", "10", sources=sources)
        assert done.returncode == 1, done.stdout + done.stderr
        (kept, all_steps) = re.findall(r"shrunk to (\d+) of (\d+) steps", done.stdout)[0]
        ((seed, only),) = re.findall(r"--replay (\d+) .*--only ([\d,-]+)", done.stdout)
        again = simulate("--replay", seed, "--steps", "300", "--only", only, sources=sources)
    assert int(kept) < int(all_steps)
    assert re.findall(r"^VIOLATION ([^:]+)", done.stdout, re.MULTILINE) == re.findall(
        r"^VIOLATION ([^:]+)", again.stdout, re.MULTILINE
    )
