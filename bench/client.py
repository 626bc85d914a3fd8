"""Our share consumer, sync and asyncio, against confluent-kafka's: the same records on the same broker, in turn."""

from collections.abc import Callable
from itertools import count
from pathlib import Path
from statistics import median

from bench.brokers import Apache, BrokerProcess, Headrace, Policy, Running
from bench.clients.figures import Figures
from bench.contest import Contest, Measure, Target
from bench.run import in_turn
from bench.tasks import run_client
from bench.wire import Connection, create_topic, delete_topic

CONFLUENT, SYNC, ASYNCIO = "confluent-kafka", "headrace sync", "headrace asyncio"
ARROW = "headrace sync, Arrow"
CLIENTS = {
    CONFLUENT: ("share", ""),
    SYNC: ("headrace_share", ""),
    ASYNCIO: ("headrace_share", "-async"),
    ARROW: ("headrace_share", "-arrow"),
}
"""The module of bench.clients that has each, and what its tasks' names end with."""
TOPIC, ONE_RECORD_TOPIC = "client-150", "client-1"
RECORDS = 1_000_000
WARM_S = 3.0
JOINS = 3
"""New groups in a round, of which the median counts."""
RATE_TARGETS = {SYNC: Target(CONFLUENT, 1.1), ASYNCIO: Target(CONFLUENT, 1.1), ARROW: Target(CONFLUENT, 2.0)}
NOT_LATER = {SYNC: Target(CONFLUENT, 1.0), ASYNCIO: Target(CONFLUENT, 1.0)}
RATES = {
    "consume": Measure("150 a batch, implicit", "records/s", True, RATE_TARGETS),
    "consume-explicit": Measure("150 a batch, explicit", "records/s", True, RATE_TARGETS),
}
CPUS = {
    "consume": Measure("150 a batch, implicit: client CPU", "us/record", False),
    "consume-explicit": Measure("150 a batch, explicit: client CPU", "us/record", False),
}
OURS = "headrace"
JOIN_LIMITS = {(OURS, client): 20.0 for client in (SYNC, ASYNCIO, ARROW)}
JOIN = Measure("subscribe to first record", "ms", False, limits=JOIN_LIMITS)
"""In a new group, with one record waiting. Where more wait, our broker gives other members 100 ms to share them."""
DELIVER_P50 = Measure("deliver, p50", "ms", False, NOT_LATER)
DELIVER_P99 = Measure("deliver, p99", "ms", False)
COMMIT_P50 = Measure("commit_sync, p50", "ms", False, NOT_LATER)
COMMIT_P99 = Measure("commit_sync, p99", "ms", False)
ROUND_TRIP_CPU = Measure("produce, deliver, commit_sync: client CPU", "us", False, NOT_LATER)
LATENCIES = {
    DELIVER_P50: "deliver_p50_ms",
    DELIVER_P99: "deliver_p99_ms",
    COMMIT_P50: "commit_p50_ms",
    COMMIT_P99: "commit_p99_ms",
}
_groups = count(1)


def run_clients(
    contest: Contest, folder: Path, *, rounds: int, seconds: float, say: Callable[[str], None]
) -> None:
    """One broker after the other. The first round warms it and does not count; Apache is warmed before that too."""
    brokers: tuple[BrokerProcess, ...] = (
        Headrace(folder, bytecode=folder / "bytecode"),
        Apache(folder),
    )
    for broker in brokers:
        try:
            running = broker.start(Policy.PAGE_CACHE)
            with Connection(running.bootstrap_servers) as admin:
                create_topic(admin, TOPIC, partitions=1)
                create_topic(admin, ONE_RECORD_TOPIC, partitions=1)
            run_client("share", "fill", running, TOPIC, **{"records": RECORDS, "per-batch": 150})
            run_client("share", "fill", running, ONE_RECORD_TOPIC, **{"records": 1, "per-batch": 1})
            say(f"clients: warming {broker.name}")
            _consume(running, CONFLUENT, "consume", WARM_S)
            _latency(running, CONFLUENT, WARM_S)
            for round_number in range(rounds):
                for client in in_turn(list(CLIENTS), round_number):
                    say(f"clients: {broker.name}, round {round_number + 1} of {rounds}: {client}")
                    _measure(contest, running, client, seconds)
        finally:
            broker.stop()


def _measure(contest: Contest, broker: Running, client: str, seconds: float) -> None:
    for task, rate in RATES.items():
        figures = _consume(broker, client, task, seconds)
        contest.add(rate, broker.name, client, figures.records / figures.seconds)
        contest.add(CPUS[task], broker.name, client, _cpu_us(figures))
    joins = [_consume(broker, client, "consume", 0, ONE_RECORD_TOPIC) for _ in range(JOINS)]
    contest.add(JOIN, broker.name, client, median(figures.extra["joined_ms"] for figures in joins))
    if client == ARROW:  # its batches are for many records
        return
    figures = _latency(broker, client, seconds)
    for measure, name in LATENCIES.items():
        contest.add(measure, broker.name, client, figures.extra[name])
    contest.add(ROUND_TRIP_CPU, broker.name, client, _cpu_us(figures))


def _cpu_us(figures: Figures) -> float:
    return figures.busy * figures.seconds * 1e6 / figures.records


def _consume(broker: Running, client: str, task: str, seconds: float, topic: str = TOPIC) -> Figures:
    module, ending = CLIENTS[client]
    group = f"client-{next(_groups)}"
    return run_client(module, task + ending, broker, topic, group=group, records=RECORDS, seconds=seconds)


def _latency(broker: Running, client: str, seconds: float) -> Figures:
    module, ending = CLIENTS[client]
    name = f"client-latency-{next(_groups)}"
    with Connection(broker.bootstrap_servers) as admin:
        create_topic(admin, name, partitions=1)
        figures = run_client(module, "latency" + ending, broker, name, group=name, seconds=seconds)
        delete_topic(admin, name)
    return figures
