"""Runs the contest of order by key: fill a topic, start a process, wait until it has run all, stop it, check."""

import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from random import Random

from bench.brokers import Apache, BrokerProcess, Headrace, Policy, Running
from bench.contest import Contest, Measure
from bench.keys.jars import MAIN, VERSION, class_path
from bench.keys.journal import most_at_once, noted, rate, read, require_order
from bench.machine import cpu_s, descendants, memory_shared_out_mb
from bench.run import in_turn
from bench.tasks import BYTECODE, COMPILED, ROOT
from bench.wire import create_topic
from headrace.client.admin import Admin
from headrace.client.producing.record import ProducerRecord
from headrace.client.producing.sync import Producer
from headrace.testing.child_process import ChildProcess
from headrace.testing.java import JavaNotFound, find_java
from headrace.testing.kafka_jars import JarsUnavailable
from headrace.worker.strict import strict_group

PARTITIONS, KEYS, AT_ONCE = 2, 1_000, 100
RECORDS, RECORDS_QUICK = 30_000, 4_000
WAIT_MS = 10
WARM = 1 / 3
TOPIC = "keys"
RUN_TIMEOUT_S = 180
STOP_TIMEOUT_S = 60
PARALLEL = "Parallel Consumer"
NO_OP = Measure("no-op", "records/s", True)
WAIT = Measure(f"{WAIT_MS} ms of waiting", "records/s", True)
CPU = {
    measure: Measure(f"{measure.name}: processor time of the consumer", "us/record", False)
    for measure in (NO_OP, WAIT)
}
MEMORY = Measure("memory of the consumer", "MB", False)
SEED = 18
_groups = count(1)


@dataclass(frozen=True, slots=True)
class Contender:
    """`group_of` is the consumer group that a process with this group id joins."""

    name: str
    command: Sequence[str | Path]
    group_of: Callable[[str], str]


class Failed(Exception):
    """A process did not get done in time, or left something; the message ends with what it printed."""


def run_keys(contest: Contest, folder: Path, *, rounds: int, quick: bool, say: Callable[[str], None]) -> None:
    """Fills `contest`, on one broker after the other: next to an idle JVM ours would still share its cores."""
    contenders = [*_theirs(contest, say), *ours()]
    key_of = keys(RECORDS_QUICK if quick else RECORDS)
    contest.notes += [
        f"{len(key_of):,} records of {KEYS:,} keys in {PARTITIONS} partitions, {AT_ONCE} at once, one process. Every"
        f" record ran once and in the order of its key, and the group had no lag at the end. The first third of"
        " the records are not counted.",
        f"{PARALLEL} {VERSION}: `ordering(KEY)`, `maxConcurrency({AT_ONCE})` (threads), and otherwise its defaults: it"
        " commits every 5 s. headrace commits every 0.1 s.",
    ]
    brokers: tuple[BrokerProcess, ...] = (Headrace(folder, bytecode=BYTECODE), Apache(folder))
    for broker in brokers:
        try:
            running = broker.start(Policy.PAGE_CACHE)
            _fill(running, key_of)
            for round_number in range(rounds):
                for contender in in_turn(contenders, round_number):
                    for measure, wait_ms in ((NO_OP, 0), (WAIT, WAIT_MS)):
                        say(
                            f"keys: {broker.name}, round {round_number + 1}: {contender.name}, {measure.name}"
                        )
                        _measure(contest, measure, wait_ms, contender, running, folder, key_of)
        finally:
            broker.stop()


def ours() -> list[Contender]:
    def contender(name: str, queue: str) -> Contender:
        command = (sys.executable, "-m", "headrace", "worker", f"bench.keys.worker:{queue}")
        return Contender(name, command, lambda group: strict_group(group, TOPIC))

    return [contender("headrace, asyncio", "queue"), contender("headrace, threads", "threads")]


def _theirs(contest: Contest, say: Callable[[str], None]) -> list[Contender]:
    try:
        classes = os.pathsep.join(map(str, class_path()))
    except (JarsUnavailable, JavaNotFound) as missing:
        say(f"NOTE: {PARALLEL} is left out: {missing}")
        contest.notes.append(f"{PARALLEL} could not be run here.")
        return []
    return [Contender(PARALLEL, (find_java().executable, "-cp", classes, MAIN), lambda group: group)]


def keys(records: int) -> list[int]:
    """The key of each record: the same in every run."""
    rng = Random(SEED)
    return [rng.randrange(KEYS) for _ in range(records)]


def _fill(broker: Running, key_of: Sequence[int]) -> None:
    with broker.connect() as admin:
        create_topic(admin, TOPIC, partitions=PARTITIONS)
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send_many(
            TOPIC, [ProducerRecord(str(number), key=f"key-{key}") for number, key in enumerate(key_of)]
        )


def _measure(
    contest: Contest,
    measure: Measure,
    wait_ms: int,
    contender: Contender,
    broker: Running,
    folder: Path,
    key_of: Sequence[int],
) -> None:
    group = f"{contender.name.replace(', ', '-').replace(' ', '-')}-{next(_groups)}"
    journal, output = folder / f"{group}.journal", folder / f"{group}.log"
    told = {
        "BENCH_SERVERS": broker.bootstrap_servers,
        "BENCH_TOPIC": TOPIC,
        "BENCH_GROUP": group,
        "BENCH_AT_ONCE": str(AT_ONCE),
        "BENCH_WAIT_MS": str(wait_ms),
        "BENCH_JOURNAL": str(journal),
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep),
        **COMPILED,
    }
    process = ChildProcess(contender.command, output=output, env=told, cwd=ROOT)
    try:
        _wait_for(1, contender, process, journal)
        early, cpu_before_s = noted(journal), _cpu_s(process)
        _wait_for(len(key_of), contender, process, journal)
        used_s = _cpu_s(process) - cpu_before_s
        memory_mb = memory_shared_out_mb(descendants(process.pid))
    finally:
        process.stop(STOP_TIMEOUT_S)
    runs = read(journal)
    require_order(runs, key_of)
    _require_no_lag(contender, broker, group, process)
    if (most := most_at_once(runs)) > AT_ONCE:
        raise Failed(f"{contender.name}: {most} records ran at a time, more than {AT_ONCE}")
    contest.add(measure, broker.name, contender.name, rate(runs, warm=WARM))
    contest.add(CPU[measure], broker.name, contender.name, used_s * 1e6 / (len(key_of) - early))
    if measure is NO_OP:
        contest.add(MEMORY, broker.name, contender.name, memory_mb)


def _cpu_s(process: ChildProcess) -> float:
    return sum(cpu_s(pid) for pid in descendants(process.pid))


def _wait_for(records: int, contender: Contender, process: ChildProcess, journal: Path) -> None:
    deadline = time.monotonic() + RUN_TIMEOUT_S
    while (found := noted(journal)) < records:
        if time.monotonic() > deadline or not process.is_running:
            why = f"within {RUN_TIMEOUT_S} s" if process.is_running else "before it ended by itself"
            raise Failed(
                f"{contender.name}: {found} of {records} records ran {why}:\n{process.output_tail()}"
            )
        time.sleep(0.005)


def _require_no_lag(contender: Contender, broker: Running, group: str, process: ChildProcess) -> None:
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        offsets = admin.describe_consumer_group(contender.group_of(group)).offsets
    lags = [offset.lag for offset in offsets.values()]
    if lags != [0] * PARTITIONS:
        raise Failed(
            f"{contender.name}: every record ran, and the group's lag is {lags}:\n" + process.output_tail()
        )
