"""One run: both brokers up under one policy, warmed, then measured in turn, round by round."""

import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from bench.brokers import Apache, BrokerProcess, Headrace, Policy, Running
from bench.machine import memory_mb, spin_s
from bench.report import Results
from bench.share import SHARE_TASKS
from bench.tasks import AFTER_LOAD, MEMORY_REST, NEEDS_PRELOAD, START, TASKS, Load, Task, Values, preload

T = TypeVar("T")
REST_S = 2.0
BYTECODE = "bytecode"


@dataclass(frozen=True, slots=True)
class Plan:
    """How long a run goes on. An even number of rounds gives both brokers the first place equally often."""

    rounds: int
    starts: int
    warm_s: float
    """Load of each task against Apache alone before anything counts, after which comes one more round for both."""
    load: Load


# The JVM goes on compiling for about nine seconds of produce requests; then Apache's processor time a record stays put.
DEFAULT = Plan(rounds=4, starts=4, warm_s=6.0, load=Load(1.8, 1, 1_500_000))
QUICK = Plan(rounds=2, starts=1, warm_s=1.5, load=Load(0.6, 1, 500_000))


def run(
    plan: Plan, folder: Path, *, only: Sequence[str], clients: Sequence[str], policies: Sequence[Policy]
) -> Results:
    """`only` names tasks, or "start" for start-up and memory at rest; empty sequences mean everything."""
    results = Results()
    if not only or "start" in only:
        _measure_starts(plan, folder, results)
    tasks = [
        task
        for task in (*TASKS, *SHARE_TASKS)
        if (not only or task.name in only) and (not clients or task.client in clients)
    ]
    if not tasks:
        return results
    apache = Apache(folder)
    try:
        warm = _start_warm(apache, plan, tasks)
        for policy in policies or tuple(Policy):
            of_policy = [task for task in (*tasks, AFTER_LOAD) if policy in task.policies]
            _measure_tasks(plan, folder, of_policy, replace(warm, policy=policy), results)
    finally:
        apache.stop()
    return results


def _start_warm(apache: Apache, plan: Plan, tasks: Sequence[Task]) -> Running:
    """Apache Kafka with its code compiled for what is coming."""
    say("starting apache")
    running = apache.start(Policy.PAGE_CACHE)
    if any(task.name in NEEDS_PRELOAD for task in tasks):
        preload(running, plan.load)
    say("warming apache up")
    for task in tasks:
        task.run(running, replace(plan.load, seconds=plan.warm_s))
    return running


def in_turn(items: Sequence[T], round_number: int) -> list[T]:
    return list(items) if round_number % 2 == 0 else list(reversed(items))


def _measure_starts(plan: Plan, folder: Path, results: Results) -> None:
    """Start-up and memory at rest: each start is a new process on an empty folder, with nothing else running.

    One start before those that count brings both programs into the page cache, and ours into bytecode.
    """
    policy = Policy.PAGE_CACHE
    for round_number in range(-1, plan.starts):
        is_counted = round_number >= 0
        say(f"start {round_number + 1} of {plan.starts}" if is_counted else "a start that does not count")
        results.spins_s.append(spin_s())
        home = folder / f"start-{round_number}"
        ours = Headrace(home, bytecode=folder / BYTECODE)
        brokers: tuple[BrokerProcess, BrokerProcess] = (ours, Apache(home))
        for broker in in_turn(brokers, round_number):
            try:
                running = broker.start(policy)
                if is_counted:
                    time.sleep(REST_S)
                    results.add(START, policy.label, broker.name, running.start_s * 1000)
                    results.add(MEMORY_REST, policy.label, broker.name, memory_mb(running.pid))
            finally:
                broker.stop()
        shutil.rmtree(home, ignore_errors=True)


def _measure_tasks(
    plan: Plan, folder: Path, tasks: Sequence[Task], apache: Running, results: Results
) -> None:
    """Our broker, started for this, and the Apache that runs already: one round to warm both, then those that count."""
    policy = apache.policy
    home = folder / policy.name.lower()
    broker = Headrace(home, bytecode=folder / BYTECODE)
    try:
        ours = broker.start(policy)
        if any(task.name in NEEDS_PRELOAD for task in tasks):
            preload(ours, plan.load)
        for round_number in range(-1, plan.rounds):
            is_counted = round_number >= 0
            what = f"round {round_number + 1} of {plan.rounds}" if is_counted else "warming both up"
            say(f"{policy.label}: {what}")
            results.spins_s.append(spin_s())
            for task in tasks:
                for running in in_turn((ours, apache), round_number):
                    values = task.run(running, plan.load)
                    if is_counted:
                        _add_all(results, policy, running.name, values)
    finally:
        broker.stop()
        shutil.rmtree(home, ignore_errors=True)


def _add_all(results: Results, policy: Policy, broker: str, values: Values) -> None:
    for line, value in values.items():
        results.add(line, policy.label, broker, value)


def say(what: str) -> None:
    print(what, file=sys.stderr, flush=True)
