"""Task frameworks: runs them in turn: enqueue, start the worker, wait until the journal is full, stop it, check."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from bench.brokers import Policy
from bench.clients.figures import Figures
from bench.contest import Contest, Measure, Target
from bench.machine import cpu_s, descendants, memory_shared_out_mb
from bench.queues import peers, servers
from bench.queues.deliver import run_deliver
from bench.queues.jobs.work import CONCURRENCY, JOURNAL, SERVER
from bench.queues.journal import jobs_noted, rate, read, require_exact
from bench.queues.ours import HeadraceServer
from bench.run import in_turn
from bench.tasks import BYTECODE, COMPILED, ROOT
from headrace.testing.child_process import ChildProcess

NO_OPS, WAITS = 2000, 600
RUN_TIMEOUT_S = 180
EMPTY_TIMEOUT_S = 10
# The queue is empty by then: nothing is lost with a worker that takes its time to end (Dramatiq: 3 s, Taskiq: 15).
STOP_TIMEOUT_S = 0.5
OURS = "headrace, asyncio, fsync"
NO_OP = Measure("no-op jobs", "jobs/s", True)
WAIT = Measure("jobs that wait 5 ms", "jobs/s", True)
DRAMATIQ = "dramatiq, threads, fsync"
ENQUEUE = Measure("enqueue, one after the other", "jobs/s", True, {OURS: Target(DRAMATIQ, 1.0)})
CPU = Measure("processor time, worker and server", "us/job", False)
WORKER_MEMORY = Measure("memory of the worker", "MB", False)
SERVER_MEMORY = Measure("memory of the server", "MB", False)
SETTING = f"{CONCURRENCY} at once"


class EmptiedServer(servers.Server, Protocol):
    """One that serves contender after contender."""

    def empty(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Contender:
    """A queue on a server: `worker` is its own command, `module` the one of bench.queues.jobs that enqueues."""

    name: str
    server: str
    python: Path
    module: str
    worker: Sequence[str]


@dataclass(frozen=True, slots=True)
class Spent:
    """What a run took: memory when the last job is done; processor time of both sides a job, from the first job on."""

    worker_mb: float
    server_mb: float
    cpu_us: float


class Failed(Exception):
    """A contender's own process failed or did not get done in time; the message ends with what it printed."""


def run_queues(contest: Contest, folder: Path, *, rounds: int, say: Callable[[str], None]) -> None:
    """Fills `contest`: first the queues without a framework, then the frameworks."""
    run_deliver(contest, folder / "messages", rounds=rounds, say=say)
    run_frameworks(contest, folder, rounds=rounds, say=say)


def run_frameworks(contest: Contest, folder: Path, *, rounds: int, say: Callable[[str], None]) -> None:
    """Fills `contest`. Peers that cannot be installed are left out, and the table's reader is told."""
    contenders = [*ours(), *_present(say)]
    running: dict[str, EmptiedServer] = {}
    try:
        for name in dict.fromkeys(contender.server for contender in contenders):
            running[name] = _start(name, folder / name.replace(" ", "-"))
        for round_number in range(rounds):
            for contender in in_turn(contenders, round_number):
                say(f"queues: round {round_number + 1} of {rounds}: {contender.name}")
                _measure(contest, contender, running[contender.server], folder)
    finally:
        for server in running.values():
            server.stop()


def _present(say: Callable[[str], None]) -> list[Contender]:
    """The peers whose programs are here, or could be installed."""
    try:
        found = theirs(peers.environment())
    except peers.Missing as missing:
        say(f"NOTE: the peers are left out: {missing}")
        return []
    for kind, program in (("redis", peers.redis_server), ("postgresql", peers.postgres)):
        try:
            program()
        except peers.Missing as missing:
            say(f"NOTE: what needs {kind} is left out: {missing}")
            found = [contender for contender in found if not contender.server.startswith(kind)]
    return found


def ours() -> list[Contender]:
    here = Path(sys.executable)

    def contender(name: str, server: str, queue: str) -> Contender:
        command = (str(here), "-m", "headrace", "worker", f"bench.queues.jobs.headrace:{queue}")
        return Contender(name, server, here, "headrace", command)

    return [
        contender(OURS, "headrace fsync", "queue"),
        contender("headrace, threads, fsync", "headrace fsync", "threads"),
        contender("headrace, asyncio, page cache", "headrace page cache", "queue"),
    ]


def theirs(commands: Path) -> list[Contender]:
    python, at_once = commands / "python", str(CONCURRENCY)

    def contender(name: str, server: str, module: str, *worker: str) -> Contender:
        return Contender(name, server, python, module, (str(commands / worker[0]), *worker[1:]))

    def celery(name: str, server: str, pool: str) -> Contender:
        options = ("--pool", pool, "--concurrency", at_once, "--loglevel", "WARNING")
        quick_start = ("--without-mingle", "--without-gossip")
        return contender(
            name,
            server,
            "celery",
            "celery",
            "-A",
            "bench.queues.jobs.celery",
            "worker",
            *options,
            *quick_start,
        )

    found = []
    for durability in servers.REDIS_DURABILITY:
        server = f"redis {durability}"
        found += [
            celery(f"celery, threads, {durability}", server, "threads"),
            contender(
                f"dramatiq, threads, {durability}",
                server,
                "dramatiq",
                *("dramatiq", "bench.queues.jobs.dramatiq", "--processes", "1", "--threads", at_once),
            ),
            contender(
                f"taskiq, asyncio, {durability}",
                server,
                "taskiq",
                *("taskiq", "worker", "bench.queues.jobs.taskiq:broker", "--workers", "1"),
                *("--max-async-tasks", at_once, "--log-level", "WARNING"),
            ),
        ]
        if durability == "memory only":
            found.append(celery(f"celery, {at_once} processes, {durability}", server, "prefork"))
    procrastinate = ("procrastinate", "--app", "bench.queues.jobs.procrastinate.app", "worker")
    options = ("--concurrency", at_once, "--delete-jobs", "successful")
    found.append(
        contender(
            "procrastinate, asyncio, fsync", "postgresql fsync", "procrastinate", *procrastinate, *options
        )
    )
    return found


def _start(name: str, folder: Path) -> EmptiedServer:
    kind, _, durability = name.partition(" ")
    if kind == "redis":
        return servers.Redis(folder, durability=durability)
    if kind == "postgresql":
        return servers.Postgres(folder)
    policy = next(policy for policy in Policy if policy.label == durability)
    return HeadraceServer(folder, policy=policy, bytecode=BYTECODE)


def _measure(contest: Contest, contender: Contender, server: EmptiedServer, folder: Path) -> None:
    server.empty()
    journal = folder / "journal"
    journal.unlink(missing_ok=True)
    env = {
        SERVER: server.address,
        JOURNAL: str(journal),
        "PYTHONPATH": str(ROOT),
        **COMPILED,
    }
    enqueued = Figures.parse(_run(contender, env, "enqueue", "--no-ops", str(NO_OPS), "--waits", str(WAITS)))
    spent = _work_off(contender, server, journal, env, folder)
    entries = read(journal)
    require_exact(entries, jobs=NO_OPS + WAITS)
    contest.add(NO_OP, SETTING, contender.name, rate(entries, first=0, jobs=NO_OPS))
    contest.add(WAIT, SETTING, contender.name, rate(entries, first=NO_OPS, jobs=WAITS))
    contest.add(ENQUEUE, "one client", contender.name, enqueued.records / enqueued.seconds)
    contest.add(CPU, SETTING, contender.name, spent.cpu_us)
    contest.add(WORKER_MEMORY, SETTING, contender.name, spent.worker_mb)
    contest.add(SERVER_MEMORY, SETTING, contender.name, spent.server_mb)


def _run(contender: Contender, env: dict[str, str], *arguments: str) -> str:
    command = [str(contender.python), "-m", f"bench.queues.jobs.{contender.module}", *arguments]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=RUN_TIMEOUT_S, cwd=ROOT, env={**os.environ, **env}
    )
    if done.returncode:
        raise Failed(f"{contender.name}: {' '.join(arguments)} failed:\n{done.stderr}")
    return done.stdout


def _work_off(
    contender: Contender, server: EmptiedServer, journal: Path, env: dict[str, str], folder: Path
) -> Spent:
    output = folder / "worker.log"
    output.unlink(missing_ok=True)
    worker = ChildProcess(contender.worker, output=output, env=env, cwd=ROOT)
    processes = [worker.pid]
    try:
        _wait_for(1, contender, worker, journal)
        early, cpu_before_s = jobs_noted(journal), _cpu_s(worker, server)
        _wait_for(NO_OPS + WAITS, contender, worker, journal)
        used_s = _cpu_s(worker, server) - cpu_before_s
        processes = descendants(worker.pid)
        deadline = time.monotonic() + EMPTY_TIMEOUT_S
        while left := int(_run(contender, env, "left")):
            if time.monotonic() > deadline:
                raise Failed(f"{contender.name}: every job ran, and the queue still holds {left}")
        return Spent(
            memory_shared_out_mb(processes),
            memory_shared_out_mb(descendants(server.pid)),
            used_s * 1e6 / (NO_OPS + WAITS - early),
        )
    finally:
        worker.stop(STOP_TIMEOUT_S)
        # A worker that had to be killed leaves its children behind.
        for pid in processes[1:]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _cpu_s(worker: ChildProcess, server: EmptiedServer) -> float:
    return sum(cpu_s(pid) for pid in (*descendants(worker.pid), *descendants(server.pid)))


def _wait_for(jobs: int, contender: Contender, worker: ChildProcess, journal: Path) -> None:
    deadline = time.monotonic() + RUN_TIMEOUT_S
    while (noted := jobs_noted(journal)) < jobs:
        if time.monotonic() > deadline or not worker.is_running:
            raise Failed(
                f"{contender.name}: {noted} of {NO_OPS + WAITS} jobs ran within"
                f" {RUN_TIMEOUT_S} s:\n{worker.output_tail()}"
            )
        time.sleep(0.005)
