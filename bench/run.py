"""One run: both brokers up under one policy, warmed, then measured in turn, round by round."""

import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.brokers import Apache, BrokerProcess, Headrace, Policy, Running
from bench.machine import memory_mb, spin_s
from bench.report import Results
from bench.share import SHARE_TASKS
from bench.tasks import AFTER_LOAD, MEMORY_REST, NEEDS_PRELOAD, START, TASKS, Load, Task, Values, preload

REST_S = 2.0


@dataclass(frozen=True, slots=True)
class Plan:
    """How long a run goes on. An even number of rounds gives both brokers the first place equally often."""

    rounds: int
    starts: int
    warm_ups: int
    load: Load


# Two rounds of warming: the JVM's compiler is at work for that long, and Apache's rates still rise in the second.
DEFAULT = Plan(rounds=4, starts=4, warm_ups=2, load=Load(1.8, 1, 1_500_000))
QUICK = Plan(rounds=2, starts=1, warm_ups=1, load=Load(0.6, 1, 500_000))


def run(
    plan: Plan, folder: Path, *, only: Sequence[str], clients: Sequence[str], policies: Sequence[Policy]
) -> Results:
    """`only` names tasks, or "start" for start-up and memory at rest; empty sequences mean everything."""
    results = Results()
    if not only or "start" in only:
        _measure_starts(plan, folder, results)
    for policy in policies or tuple(Policy):
        tasks = [
            task
            for task in (*TASKS, *SHARE_TASKS)
            if policy in task.policies
            and (not only or task.name in only)
            and (not clients or task.client in clients)
        ]
        if tasks:
            tasks += [AFTER_LOAD] if policy in AFTER_LOAD.policies else []
            _measure_tasks(plan, folder / policy.name.lower(), policy, tasks, results)
    return results


def _brokers(folder: Path) -> tuple[BrokerProcess, BrokerProcess]:
    return Headrace(folder), Apache(folder)


def _in_turn(brokers: Sequence[BrokerProcess], round_number: int) -> list[BrokerProcess]:
    return list(brokers) if round_number % 2 == 0 else list(reversed(brokers))


def _measure_starts(plan: Plan, folder: Path, results: Results) -> None:
    """Start-up and memory at rest: each start is a new process on an empty folder, with nothing else running."""
    policy = Policy.PAGE_CACHE
    for round_number in range(plan.starts):
        _say(f"start {round_number + 1} of {plan.starts}")
        results.spins_s.append(spin_s())
        home = folder / f"start-{round_number}"
        for broker in _in_turn(_brokers(home), round_number):
            try:
                running = broker.start(policy)
                time.sleep(REST_S)
                results.add(START, policy.label, broker.name, running.start_s * 1000)
                results.add(MEMORY_REST, policy.label, broker.name, memory_mb(running.pid))
            finally:
                broker.stop()
        shutil.rmtree(home, ignore_errors=True)


def _measure_tasks(plan: Plan, folder: Path, policy: Policy, tasks: list[Task], results: Results) -> None:
    brokers = _brokers(folder)
    running: dict[str, Running] = {}
    try:
        for broker in brokers:
            _say(f"{policy.label}: starting {broker.name}")
            running[broker.name] = broker.start(policy)
            if any(task.name in NEEDS_PRELOAD for task in tasks):
                preload(running[broker.name], plan.load)
        for round_number in range(-plan.warm_ups, plan.rounds):
            is_counted = round_number >= 0
            _say(
                f"{policy.label}: "
                + (f"round {round_number + 1} of {plan.rounds}" if is_counted else "warming up")
            )
            results.spins_s.append(spin_s())
            for task in tasks:
                for broker in _in_turn(brokers, round_number):
                    values = task.run(running[broker.name], plan.load)
                    if is_counted:
                        _add_all(results, policy, broker.name, values)
    finally:
        for broker in brokers:
            broker.stop()
        shutil.rmtree(folder, ignore_errors=True)


def _add_all(results: Results, policy: Policy, broker: str, values: Values) -> None:
    for line, value in values.items():
        results.add(line, policy.label, broker, value)


def _say(what: str) -> None:
    print(what, file=sys.stderr, flush=True)
