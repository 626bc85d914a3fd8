"""Planted bugs: each patch of `planted/` is applied to a copy of the sources, and the simulator must find it.

`planted/found.txt` says within how many seeds. `python -m tests.simulation.planting [NAME...]` measures that anew: it
looks for each bug, up to a limit, and writes down the seed that has found it and a number of seeds with a margin: any
change of the sources changes lives, and the next one that finds the bug may come later.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.simulation.scenario import GUARDED_FROM, WIDE_FROM

ROOT = Path(__file__).resolve().parents[2]
FOLDER = Path(__file__).with_name("planted")
TABLE = FOLDER / "found.txt"
WITHIN = (100, 300, 600, 1000)
MARGIN = 5


class Planted(NamedTuple):
    name: str
    seeds: int
    steps: int
    what: str
    """The promise that was broken when it was measured."""


class Found(NamedTuple):
    seed: int
    """Counted from the first one on; 0: not found."""
    what: str
    output: str


def patches() -> list[str]:
    return sorted(path.stem for path in FOLDER.glob("*.patch"))


def table() -> dict[str, Planted]:
    rows = {}
    for line in TABLE.read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            name, seeds, steps, what = line.split(None, 3)
            rows[name] = Planted(name, int(seeds), int(steps), what)
    return rows


def path_of(name: str) -> str:
    """Which simulation has to find it."""
    if name.startswith("spark-"):
        return "spark"
    if name.startswith("jobs-"):
        return "jobs"
    return "client" if name.startswith(("client-", "worker-")) else "broker"


def first_of(name: str) -> int:
    """The seed of the first life that could find it."""
    if name.startswith("wide-"):
        return WIDE_FROM
    return GUARDED_FROM if name.startswith("access-") else 1


@contextmanager
def planted(name: str) -> Iterator[str]:
    """Where the sources with this bug are: put it on PYTHONPATH."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(ROOT / "src", f"{folder}/src", ignore=shutil.ignore_patterns("__pycache__"))
        patch = subprocess.run(
            ["patch", "-p1", "-s", "-i", str(FOLDER / f"{name}.patch")],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
        if patch.returncode:
            raise RuntimeError(f"{name}.patch does not apply; make it anew: {patch.stdout}{patch.stderr}")
        yield f"{folder}/src"


def look_for(name: str, *, seeds: int, steps: int) -> Found:
    """Runs lives with this bug until one of them breaks a promise."""
    arguments = ["--path", path_of(name), "--until-found", "--jobs", "1"]
    first = first_of(name)
    arguments += ["--first", str(first), "--seeds", str(seeds), "--steps", str(steps)]
    with planted(name) as sources:
        done = subprocess.run(
            [sys.executable, "-m", "tests.simulation", *arguments],
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": sources},
            capture_output=True,
            text=True,
            check=False,
        )
    found = re.search(r"^seed (\d+): ([^:\n]+(?:: [^:\n]+)?)", done.stdout, re.MULTILINE)
    output = done.stdout + done.stderr
    return Found(int(found[1]) - first + 1, found[2][:60].strip(), output) if found else Found(0, "", output)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.planting", description=__doc__)
    parser.add_argument("names", nargs="*", help="patches; all if none is given")
    parser.add_argument("--seeds", type=int, default=300, help="look for each in so many lives")
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--check", action="store_true", help="only see that each is found as written down")
    given = parser.parse_args()
    names = [
        name for name in patches() if not given.names or any(name.startswith(one) for one in given.names)
    ]
    rows = table() if TABLE.exists() else {}

    def measure(name: str) -> tuple[str, Found]:
        known = rows.get(name)
        if given.check and known is not None:
            return name, look_for(name, seeds=known.seeds, steps=known.steps)
        return name, look_for(name, seeds=given.seeds, steps=given.steps)

    missing = 0
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        for name, found in pool.map(measure, names):
            print(f"{name}: {f'seed {found.seed}: {found.what}' if found.seed else 'NOT FOUND'}", flush=True)
            missing += not found.seed
            if found.seed and not given.check:
                within = next((one for one in WITHIN if one >= MARGIN * found.seed), WITHIN[-1])
                rows[name] = Planted(name, within, given.steps, f"seed {found.seed}: {found.what}")
    if not given.check:
        _write(rows)
    return 1 if missing else 0


def _write(rows: dict[str, Planted]) -> None:
    lines = [
        "# Each planted bug is found within so many seeds (from 1, 'access-' from GUARDED_FROM, 'wide-' from WIDE_FROM "
        "on) of so many steps, "
        "by this promise."
    ]
    lines += [f"{row.name:50} {row.seeds:5} {row.steps:5}  {row.what}" for _, row in sorted(rows.items())]
    TABLE.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    sys.exit(main())
