"""Queues without a framework: send, then deliver and acknowledge, with one consumer and with eight.

Each run has a server of its own, started for it and stopped after it, so that no two stand in each other's way. A
producer sends all messages and waits until the server has confirmed them. Consumers, a process each, connect; when all
have, they work the queue off. Every message must come at least once, and none may be left.
"""

import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path

from bench.brokers import Policy
from bench.clients.figures import Figures
from bench.contest import Contest, Measure
from bench.machine import cpu_s, descendants
from bench.queues import peers, servers
from bench.queues.jobs.work import JOURNAL, SERVER
from bench.queues.journal import NotExact, deliveries_beyond_one, first_deliveries, jobs_noted, rate, read
from bench.queues.messages.common import AT_ONCE, READY
from bench.queues.ours import HeadraceServer
from bench.run import in_turn
from bench.tasks import BYTECODE, COMPILED, ROOT

CONSUMERS = (1, 8)
RUN_TIMEOUT_S = 180
EMPTY_TIMEOUT_S = 30
OURS = "headrace, explicit"
SEND = Measure("send, confirmed", "messages/s", True, reference=OURS)
DELIVER = Measure("deliver and acknowledge", "messages/s", True, reference=OURS)
CPU = Measure(
    "deliver and acknowledge: processor time, consumers and server", "us/message", False, reference=OURS
)
NOTES = (
    f"Messages of 100 bytes, up to {AT_ONCE} in a batch. Except where a name says otherwise, a server syncs a message"
    " to disk before it confirms it.",
    "headrace: `send_many`; `poll` and acknowledge each record (explicit) or let the next `poll` do it (implicit);"
    " one partition, record batches of up to 500, `share.partition.max.record.locks=4000`.",
    "nats: JetStream, a stream in a file, one replica, `sync_interval: always` or the default (two minutes: a confirmed"
    " message may be lost with the power); 4,000 publishes in flight; `fetch` of batches, `ack` of each message, of"
    " which the last of a batch is confirmed.",
    "rabbitmq: a quorum queue of one node; 4,000 unconfirmed messages in flight; prefetch 500, an acknowledgement for"
    " every 100 messages.",
    "redis: a stream, `appendfsync always`; XADD in pipelines; XREADGROUP with XACK of the batch before.",
    "postgresql: a table; COPY, a transaction for each batch; DELETE of rows found with SKIP LOCKED, a transaction for"
    " each batch; `synchronous_commit=on`.",
)


@dataclass(frozen=True, slots=True)
class Contender:
    """A queue: `module` of bench.queues.messages has its client, which is given so many `messages`.

    There are more for a faster queue, so that a run takes seconds with each.
    """

    name: str
    module: str
    python: Path
    messages: int
    start: Callable[[Path], servers.Server]
    install: Callable[[], object] = lambda: None


class Failed(Exception):
    """A client failed or did not get done in time; the message ends with what it printed."""


def run_deliver(contest: Contest, folder: Path, *, rounds: int, say: Callable[[str], None]) -> None:
    """Fills `contest`. A peer that cannot be installed is left out, and the table's reader is told."""
    contenders = [*ours(), *_present(say)]
    twice = Counter[str]()
    runs = count(1)
    for round_number in range(rounds):
        for contender in in_turn(contenders, round_number):
            for consumers in CONSUMERS:
                say(f"queues: round {round_number + 1} of {rounds}: {contender.name}, {consumers} consumers")
                run_name = f"{contender.name}, {consumers} consumers"
                try:
                    twice[run_name] += _measure(contest, contender, consumers, folder / str(next(runs)))
                except (Failed, NotExact, peers.Missing, subprocess.TimeoutExpired) as error:
                    if contender.module == "headrace":
                        raise
                    say(f"NOTE: {run_name}: the run is void: {error}")
                    contest.notes.append(f"{run_name}: a run is void.")
    contest.notes += [*NOTES, _told(twice)]


def _told(twice: Mapping[str, int]) -> str:
    told = [f"{name}: {count}" for name, count in twice.items() if count]
    return f"Messages delivered more than once: {'; '.join(told) or 'none'}."


def ours() -> list[Contender]:
    here = Path(sys.executable)

    def contender(mode: str) -> Contender:
        def start(folder: Path) -> servers.Server:
            return HeadraceServer(folder, policy=Policy.FSYNC, bytecode=BYTECODE, prefix=f"{mode}/")

        return Contender(f"headrace, {mode}", "headrace", here, 400_000, start)

    return [contender("explicit"), contender("implicit")]


def _present(say: Callable[[str], None]) -> list[Contender]:
    """The peers whose programs are here, or could be installed."""
    try:
        python = peers.environment() / "python"
    except peers.Missing as missing:
        say(f"NOTE: the peers are left out: {missing}")
        return []
    found = []
    for contender in theirs(python):
        try:
            contender.install()
            found.append(contender)
        except peers.Missing as missing:
            say(f"NOTE: {contender.name} is left out: {missing}")
    return found


def theirs(python: Path) -> list[Contender]:
    always, default = partial(servers.Nats, sync="always"), partial(servers.Nats, sync=None)
    redis = partial(servers.Redis, durability="fsync")
    return [
        Contender("nats, sync always", "nats", python, 20_000, always, peers.nats_server),
        Contender("nats, default sync", "nats", python, 50_000, default, peers.nats_server),
        Contender(
            "rabbitmq, quorum queue", "rabbitmq", python, 50_000, servers.RabbitMq, peers.rabbitmq_server
        ),
        Contender("redis, stream", "redis", python, 100_000, redis, peers.redis_server),
        Contender("postgresql, skip locked", "postgres", python, 200_000, servers.Postgres, peers.postgres),
    ]


def _measure(contest: Contest, contender: Contender, consumers: int, folder: Path) -> int:
    """Returns how many deliveries were more than the first of their message."""
    server = contender.start(folder)
    try:
        client = Client(contender, server, folder / "journal")
        sent = Figures.parse(client.run("send", "--messages", str(contender.messages)))
        cpu_us = _work_off(client, consumers)
        entries = read(client.journal)
        beyond_one = deliveries_beyond_one(entries, messages=contender.messages)
        _require_empty(client)
    finally:
        server.stop()
    setting = f"{consumers} consumer{'s' if consumers > 1 else ''}"
    if consumers == CONSUMERS[0]:
        contest.add(SEND, "one producer", contender.name, sent.records / sent.seconds)
    contest.add(
        DELIVER, setting, contender.name, rate(first_deliveries(entries), first=0, jobs=contender.messages)
    )
    contest.add(CPU, setting, contender.name, cpu_us)
    return beyond_one


class Client:
    """Runs the client of a contender against its server."""

    def __init__(self, contender: Contender, server: servers.Server, journal: Path) -> None:
        self.contender, self.server, self.journal = contender, server, journal
        self.log = journal.with_name("consumers.log")
        self._env = {
            **os.environ,
            SERVER: server.address,
            JOURNAL: str(journal),
            "PYTHONPATH": str(ROOT),
            **COMPILED,
        }

    def _command(self, *arguments: str) -> list[str]:
        contender = self.contender
        return [str(contender.python), "-m", f"bench.queues.messages.{contender.module}", *arguments]

    def run(self, *arguments: str) -> str:
        done = subprocess.run(
            self._command(*arguments),
            capture_output=True,
            text=True,
            timeout=RUN_TIMEOUT_S,
            cwd=ROOT,
            env=self._env,
        )
        if done.returncode:
            raise Failed(f"{self.contender.name}: {' '.join(arguments)} failed:\n{done.stderr}")
        return done.stdout

    def consumer(self) -> subprocess.Popen[str]:
        """Ends by itself when its standard input does, and that ends with this process."""
        with self.log.open("a") as log:
            return subprocess.Popen(
                self._command("consume"),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=ROOT,
                env=self._env,
            )


def _work_off(client: Client, consumers: int) -> float:
    """Processor time of consumers and server for each message, in microseconds, from the word to begin."""
    processes = [client.consumer() for _ in range(consumers)]
    try:
        for process in processes:
            assert process.stdout is not None
            if process.stdout.readline().strip() != READY:
                raise Failed(f"{client.contender.name}: a consumer did not begin:\n{client.log.read_text()}")
        before_s = _cpu_s(client, processes)
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
        _wait_for_all(client, processes)
        used_s = _cpu_s(client, processes) - before_s
        _end(client, processes)
    finally:
        for process in processes:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                assert pipe is not None
                pipe.close()
    return used_s * 1e6 / client.contender.messages


def _end(client: Client, processes: Sequence[subprocess.Popen[str]]) -> None:
    for process in processes:
        assert process.stdin is not None
        process.stdin.close()
    for process in processes:
        if process.wait(RUN_TIMEOUT_S):
            raise Failed(f"{client.contender.name}: a consumer failed:\n{client.log.read_text()}")


def _cpu_s(client: Client, processes: Sequence[subprocess.Popen[str]]) -> float:
    pids = [process.pid for process in processes] + descendants(client.server.pid)
    return sum(cpu_s(pid) for pid in pids)


def _wait_for_all(client: Client, processes: Sequence[subprocess.Popen[str]]) -> None:
    """Until every message is noted: as many entries as messages are not enough where some came twice."""
    messages, deadline = client.contender.messages, time.monotonic() + RUN_TIMEOUT_S
    while (noted := jobs_noted(client.journal)) < messages or _distinct(client.journal) < messages:
        if time.monotonic() > deadline or any(process.poll() is not None for process in processes):
            raise Failed(
                f"{client.contender.name}: {noted} deliveries of {messages} messages within {RUN_TIMEOUT_S} s:\n"
                + client.log.read_text()
            )
        time.sleep(0.005)


def _distinct(journal: Path) -> int:
    return len({number for number, _ in read(journal)})


def _require_empty(client: Client) -> None:
    deadline = time.monotonic() + EMPTY_TIMEOUT_S
    while left := int(client.run("left")):
        if time.monotonic() > deadline:
            raise Failed(
                f"{client.contender.name}: every message was acknowledged, and the queue still holds {left}"
            )
