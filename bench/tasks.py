"""What is measured: each task runs one client against one broker and returns its figures by line."""

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from bench.brokers import Policy, Running
from bench.clients.figures import Figures
from bench.machine import cpu_s, memory_peak_mb
from bench.wire import BrokerRefused, create_topic, delete_topic, records_in

ROOT = Path(__file__).parent.parent
CLIENT_TIMEOUT_S = 180
PRELOADED = "preloaded"
BYTECODE = Path(sys.prefix) / "bench-bytecode"
COMPILED = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(BYTECODE)}
"""For clients: modules compiled, as an installed package's are; kept from run to run."""
_names = count(1)


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the report.

    Where there is a goal, `target` bounds the ratio ours / Apache, or `limit` our own figure in its unit.
    """

    measure: str
    client: str
    unit: str
    is_more_better: bool
    target: float | None = None
    limit: float | None = None
    is_shown: bool = True
    """False for what explains a figure: in the JSON, not in the table."""


PRODUCE = Line("produce", "confluent", "records/s", True, 1.0)
PRODUCE_CPU = Line("produce: broker CPU", "confluent", "us/record", False)
PRODUCE_BUSY = Line("produce: client busy", "confluent", "cores", False, is_shown=False)
PRODUCE_RAW = Line("produce", "raw", "records/s", True)
PRODUCE_RAW_CPU = Line("produce: broker CPU", "raw", "us/record", False)
PRODUCE_RAW_BUSY = Line("produce: client busy", "raw", "cores", False, is_shown=False)
CONSUME = Line("group consume", "confluent", "records/s", True, 1.0)
CONSUME_CPU = Line("group consume: broker CPU", "confluent", "us/record", False)
CONSUME_BUSY = Line("group consume: client busy", "confluent", "cores", False, is_shown=False)
JOIN = Line("group join to first record", "confluent", "ms", False)
FETCH_RAW = Line("fetch", "raw", "records/s", True)
FETCH_RAW_CPU = Line("fetch: broker CPU", "raw", "us/record", False)
FETCH_RAW_BUSY = Line("fetch: client busy", "raw", "cores", False, is_shown=False)
LATENCY_P50 = Line("end to end, p50", "confluent", "ms", False)
LATENCY_P99 = Line("end to end, p99", "confluent", "ms", False)
START = Line("start to first answer", "-", "ms", False, 0.2)
MEMORY_REST = Line("memory at rest", "-", "MB", False, limit=100)
MEMORY_LOAD = Line("memory after load, peak", "-", "MB", False)

Values = dict[Line, float]


@dataclass(frozen=True, slots=True)
class Load:
    """How much load one task makes."""

    seconds: float
    partitions: int
    preload_records: int


@dataclass(frozen=True, slots=True)
class Task:
    """`name` is what --only knows; `client` what --client knows."""

    name: str
    client: str
    policies: tuple[Policy, ...]
    run: Callable[[Running, Load], Values]


def run_client(module: str, task: str, broker: Running, topic: str, **options: object) -> Figures:
    """Runs a client to its end, as a process of its own."""
    command = [sys.executable, "-m", f"bench.clients.{module}", task]
    command += ["--bootstrap-server", broker.bootstrap_servers, "--topic", topic]
    if broker.ca is not None:
        command += ["--ca", str(broker.ca)]
    for name, value in options.items():
        command += [f"--{name}", str(value)]
    answer = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=CLIENT_TIMEOUT_S,
        cwd=ROOT,
        env={**os.environ, **COMPILED},
    )
    if answer.returncode:
        raise BrokerRefused(f"{module} {task} against {broker.name} failed:\n{answer.stderr}")
    return Figures.parse(answer.stdout)


def measured(
    broker: Running, lines: tuple[Line, Line, Line], client: Callable[[], Figures]
) -> tuple[Figures, Values]:
    """Runs the client and fills its lines: rate, the broker's processor time, the client's."""
    rate, cpu, busy = lines
    before_s = cpu_s(broker.pid)
    figures = client()
    used_s = cpu_s(broker.pid) - before_s
    return figures, {
        rate: figures.records / figures.seconds,
        cpu: used_s * 1e6 / figures.records,
        busy: figures.busy,
    }


def produce(broker: Running, load: Load) -> Values:
    return _produce("confluent", (PRODUCE, PRODUCE_CPU, PRODUCE_BUSY), broker, load)


def produce_raw(broker: Running, load: Load) -> Values:
    return _produce("raw", (PRODUCE_RAW, PRODUCE_RAW_CPU, PRODUCE_RAW_BUSY), broker, load)


def _produce(module: str, lines: tuple[Line, Line, Line], broker: Running, load: Load) -> Values:
    """Into a new topic, which must then hold what the client says was acknowledged."""
    topic = f"produce-{next(_names)}"
    options = {"partitions": load.partitions} if module == "raw" else {}
    with broker.connect() as admin:
        create_topic(admin, topic, partitions=load.partitions, configs=broker.topic_configs)
        figures, values = measured(
            broker,
            lines,
            lambda: run_client(module, "produce", broker, topic, seconds=load.seconds, **options),
        )
        held = records_in(admin, topic, partitions=load.partitions)
        if held < figures.records:
            raise BrokerRefused(f"{broker.name} acknowledged {figures.records} records and holds {held}")
        delete_topic(admin, topic)
    return values


def preload(broker: Running, load: Load) -> None:
    """Fills the topic that `consume` and `fetch` read."""
    with broker.connect() as admin:
        create_topic(admin, PRELOADED, partitions=load.partitions)
    run_client(
        "raw",
        "produce",
        broker,
        PRELOADED,
        seconds=CLIENT_TIMEOUT_S / 2,
        partitions=load.partitions,
        records=load.preload_records,
    )


def consume(broker: Running, load: Load) -> Values:
    group = f"group-{next(_names)}"
    figures, values = measured(
        broker,
        (CONSUME, CONSUME_CPU, CONSUME_BUSY),
        lambda: run_client(
            "confluent",
            "consume",
            broker,
            PRELOADED,
            group=group,
            records=load.preload_records,
            seconds=load.seconds,
        ),
    )
    return {**values, JOIN: figures.extra["joined_ms"]}


def fetch_raw(broker: Running, load: Load) -> Values:
    _, values = measured(
        broker,
        (FETCH_RAW, FETCH_RAW_CPU, FETCH_RAW_BUSY),
        lambda: run_client(
            "raw", "fetch", broker, PRELOADED, partitions=load.partitions, seconds=load.seconds
        ),
    )
    return values


def latency(broker: Running, load: Load) -> Values:
    name = f"latency-{next(_names)}"
    with broker.connect() as admin:
        create_topic(admin, name, partitions=1, configs=broker.topic_configs)
        figures = run_client("confluent", "latency", broker, name, group=name, seconds=load.seconds)
        delete_topic(admin, name)
    return {LATENCY_P50: figures.extra["p50_ms"], LATENCY_P99: figures.extra["p99_ms"]}


def memory(broker: Running, load: Load) -> Values:
    return {MEMORY_LOAD: memory_peak_mb(broker.pid)}


BOTH = (Policy.PAGE_CACHE, Policy.FSYNC)
TASKS = (
    Task("produce", "confluent", BOTH, produce),
    Task("produce", "raw", BOTH, produce_raw),
    Task("consume", "confluent", (Policy.PAGE_CACHE,), consume),
    Task("consume", "raw", (Policy.PAGE_CACHE,), fetch_raw),
    Task("latency", "confluent", BOTH, latency),
)
AFTER_LOAD = Task("memory", "-", (Policy.PAGE_CACHE,), memory)
"""Goes with any other task of its policy."""
NEEDS_PRELOAD = {"consume"}
