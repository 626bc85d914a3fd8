"""Many lives in several processes, their sum, and what a failure looks like on the screen."""

import argparse
import gc
import multiprocessing
import os
import time
import traceback
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from headrace.wire.apis import NAMES
from tests.simulation.path.world import PathWorld
from tests.simulation.violation import Violation
from tests.simulation.world import Stats, World

BROKER, CLIENT, JOBS, SPARK = "broker", "client", "jobs", "spark"
PATHS = (BROKER, CLIENT, JOBS, SPARK)
"""What is simulated: the broker, with clients that speak its protocol; real clients and workers; task queues with
schedules and a database; the Spark source."""
TRAIL_LINES = 400
"""Of a failure's trail, the last so many are printed."""


@dataclass
class Outcome:
    seed: int
    steps: int
    digest: str = ""
    what: str = ""
    """Empty: no promise was broken."""
    detail: str = ""
    at_step: int = -1
    stats: Stats = field(default_factory=Stats)
    lines: list[str] = field(default_factory=list)
    path: str = BROKER


def world_of(path: str) -> type[World]:
    if path == SPARK:  # imports pyspark
        from tests.simulation.spark.world import SparkWorld

        return SparkWorld
    if path == JOBS:
        from tests.simulation.jobs.world import JobsWorld

        return JobsWorld
    return PathWorld if path == CLIENT else World


def live(
    seed: int,
    steps: int,
    path: str = BROKER,
    *,
    kept: Collection[int] | None = None,
    is_recorded: bool = False,
) -> Outcome:
    """One life from its seed."""
    outcome = Outcome(seed, steps, path=path)
    world: World | None = None
    try:
        world = world_of(path)(seed, is_recorded=is_recorded)
        world.run(steps, kept)
    except Violation as violation:
        outcome.what, outcome.detail = violation.what, violation.detail
    except Exception as error:
        outcome.what, outcome.detail = f"{type(error).__name__}", traceback.format_exc()
    if world is not None:
        outcome.digest = world.trail.digest()
        outcome.stats = world.stats
        outcome.at_step = world.stats.steps
        outcome.lines = world.trail.lines
    return outcome


def _live(job: tuple[int, int, str]) -> Outcome:
    return live(*job)


def _prepare_worker() -> None:
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


def run(given: argparse.Namespace) -> int:
    if given.replay is not None:
        return _replay(given.replay, given.steps, given.path, _parse_steps(given.only))
    jobs = [(given.first + number, given.steps, given.path) for number in range(given.seeds)]
    if given.file:
        jobs = [(*job, given.path) for job in read_seeds(Path(given.file), given.steps)]
    total = Stats()
    failures: list[Outcome] = []
    began = time.monotonic()
    done = 0
    for outcome in _outcomes(jobs, given.jobs or os.cpu_count() or 1):
        done += 1
        total.add(outcome.stats)
        if given.digest:
            print(outcome.seed, outcome.digest, outcome.what)
        if outcome.what:
            failures.append(outcome)
            print(f"seed {outcome.seed}: {outcome.what}: {outcome.detail}", flush=True)
            if given.until_found:
                break
    if failures and not given.until_found:
        _explain(min(failures, key=lambda one: one.at_step), given.shrink_s)
    print_stats(done, total, failures, time.monotonic() - began)
    return 1 if failures else 0


def _outcomes(jobs: list[tuple[int, int, str]], processes: int) -> Iterator[Outcome]:
    if processes == 1:
        _prepare_worker()
        yield from map(_live, jobs)
        return
    context = multiprocessing.get_context("spawn")
    with context.Pool(processes, _prepare_worker) as pool:
        yield from pool.imap_unordered(_live, jobs, chunksize=1)


def read_seeds(path: Path, steps: int) -> Iterator[tuple[int, int]]:
    """Lines of `SEED [STEPS]`, with comments after a #."""
    for line in path.read_text().splitlines():
        words = line.partition("#")[0].split()
        if words:
            yield int(words[0]), int(words[1]) if len(words) > 1 else steps


def _parse_steps(text: str | None) -> list[int] | None:
    if text is None:
        return None
    steps: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        steps += range(int(first), int(last or first) + 1)
    return steps


def print_steps(steps: Collection[int]) -> str:
    ranges: list[list[int]] = []
    for step in sorted(steps):
        if ranges and ranges[-1][1] == step - 1:
            ranges[-1][1] = step
        else:
            ranges.append([step, step])
    return ",".join(f"{first}-{last}" if last > first else f"{first}" for first, last in ranges)


def _replay(seed: int, steps: int, path: str, kept: list[int] | None) -> int:
    outcome = live(seed, steps, path, kept=kept, is_recorded=True)
    print("\n".join(outcome.lines))
    print(f"trail {outcome.digest}")
    if outcome.what:
        print(f"VIOLATION {outcome.what}: {outcome.detail}")
    return 1 if outcome.what else 0


def _explain(outcome: Outcome, shrink_s: float) -> None:
    from tests.simulation.shrinking import shrink

    kept = shrink(outcome, live, shrink_s)
    short = live(outcome.seed, outcome.steps, outcome.path, kept=kept, is_recorded=True)
    print(f"\nThe trail of seed {outcome.seed}, shrunk to {len(kept)} of {outcome.at_step} steps:")
    for line in short.lines[-TRAIL_LINES:]:
        print("   ", line[:400])
    print(f"VIOLATION {short.what}: {short.detail}")
    path = "" if outcome.path == BROKER else f" --path {outcome.path}"
    command = f"python -m tests.simulation{path} --replay {outcome.seed} --steps {outcome.steps}"
    print(f"replay it whole:  {command}")
    print(f"replay the short: {command} --only {print_steps(kept)}")


def print_stats(seeds: int, total: Stats, failures: list[Outcome], took_s: float) -> None:
    requests = ", ".join(f"{NAMES[key]} {number}" for key, number in total.requests.most_common())
    restarts = ", ".join(f"{how} {number}" for how, number in total.restarts.most_common())
    faults = ", ".join(f"{kind} {number}" for kind, number in total.faults.most_common())
    print(f"\n{seeds} seeds, {total.steps} steps, {total.turns} turns of the loop in {took_s:.0f} s")
    print(f"restarts: {sum(total.restarts.values())} ({restarts})")
    print(f"faults: {sum(total.faults.values())} ({faults})")
    if total.events:
        events = ", ".join(f"{what} {number}" for what, number in total.events.most_common())
        print(f"records: {events}")
    print(f"requests: {sum(total.requests.values())} ({requests})")
    print(
        f"largest turn: {total.operations_max} disk operations, {total.syncs_max} syncs, {total.reads_max} reads; "
        f"waits of the loop for a lock: {total.loop_waits}"
    )
    print(f"violations: {len(failures)}" + "".join(f"\n  seed {one.seed}: {one.what}" for one in failures))
