"""The contest: Spark's own Kafka source and both modes of kafka-share, in turn in one JVM, on each broker.

On our broker the window of locks fits the topic; on Apache Kafka, and on our broker once more, it is the default one,
2,000 records a partition. `commit` raises it to the 4,000 that the broker allows, and its ceiling stands beside what
was measured: a micro-batch has as many records as may be locked at once, so no more than `locks x partitions / trigger
time` can pass. With `handoff` records are accepted before that, by its own choice or by maxRecordsAhead.

Wherever the end of the log is reached, Spark's source also takes part with `kafka.fetch.max.wait.ms=10`, which is the
fair contender: see `steps.py`. A case is what `--case` names; without it all cases run, some of them with fewer rounds.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.brokers import Apache, BrokerProcess, Headrace, Policy, Running
from bench.contest import Contest, Measure, Target
from bench.spark.jars import connector_jars
from bench.spark.steps import (
    AHEAD,
    COMMIT,
    CONTENDERS,
    HANDOFF,
    SOURCE_OF_SPARK,
    SPARK_SHORT_WAIT,
    Ran,
    Step,
)
from bench.tasks import COMPILED, ROOT, run_client
from bench.wire import BrokerRefused, Connection, create_topic
from headrace.testing.java import find_java
from headrace.testing.kafka_jars import JarsUnavailable

REFERENCE = SOURCE_OF_SPARK
PARTITIONS = 2
RECORDS = 1_000_000
WARM_RECORDS, WARM_RECORDS_IN_WINDOW = 400_000, 40_000
SMALL_RECORDS, SMALL_BATCH = 240, 10
SLOW_RECORDS, SLOW_BATCH, SLOW_MS = 2_400, 800, 5
TASKS = (2, 8, 16)
SLOW_ROUNDS_MAX = 1
"""Slow work takes long, and its rates differ little from round to round. (Where no case is named; so all of these.)"""
MIDDLE_RECORDS = {20_000: 400_000, 500_000: 2_000_000}
"""By the size of a micro-batch: so many records that most of its micro-batches lie within a backlog."""
SHAPES = {(1, 100): 400_000, (2, 100): 400_000, (8, 100): 400_000, (32, 100): 400_000}
"""Records by partitions and size."""
SIZES = {(2, 100): 400_000, (2, 1_000): 150_000, (2, 10_000): 25_000}
SHAPES_IN_WINDOW = {(1, 100): 60_000, (2, 100): 120_000, (8, 100): 240_000, (32, 100): 240_000}
"""With the default window: so many that `commit` needs some fifteen micro-batches, or ends in a few seconds."""
SIZES_IN_WINDOW = {(2, 100): 120_000, (2, 1_000): 100_000, (2, 10_000): 25_000}
IN_WINDOW, WINDOW_SHAPES_ROUNDS_MAX = " in window", 1
FIRST_RECORDS, FIRST_ROUNDS_MAX = 1_000, 2
QUERIES = (1, 3)
QUERIES_PARTITIONS, QUERIES_RECORDS, QUERIES_BYTES, QUERIES_ROUNDS_MAX = 6, 24_000, 10_000, 1
BATCH_BYTES = 200_000
"""Of the batches in the topics, at most; smaller records come 150 to a batch."""
WINDOW_RECORDS = 120_000
LOCKS = 4_000
"""The largest `share.partition.max.record.locks` that Kafka allows by default."""
FITTING_LOCKS = str(RECORDS)
FITTING = {
    "group.share.max.partition.max.record.locks": FITTING_LOCKS,
    "group.share.partition.max.record.locks": FITTING_LOCKS,
}
PROGRAM_S = 1_800
CASES = (
    "drain",
    "middle",
    "small",
    "latency",
    "slow",
    "window",
    "partitions",
    "sizes",
    "first-row",
    "queries",
)

FASTER = {COMMIT: Target(SPARK_SHORT_WAIT, 1.5), HANDOFF: Target(SPARK_SHORT_WAIT, 1.5)}
DRAIN = Measure("drain 1 million", "rows/s", True, FASTER)
TASKS_ALONE = Measure("drain 1 million, tasks alone", "rows/s", True)
WALL = Measure("drain 1 million, start() to end", "s", False)
MIDDLE = {
    size: Measure(f"within a backlog, micro-batches of {size:,}", "rows/s", True, FASTER)
    for size in MIDDLE_RECORDS
}
TRIGGER = Measure(
    "micro-batch of 10 records",
    "ms",
    False,
    {COMMIT: Target(REFERENCE, 1.0), HANDOFF: Target(REFERENCE, 1.0)},
)
WINDOW = Measure(
    "default window",
    "rows/s",
    True,
    {COMMIT: Target(REFERENCE, 1.0), HANDOFF: Target(REFERENCE, 1.0), AHEAD: Target(REFERENCE, 1.0)},
)
CEILING = Measure("default window: locks x partitions / trigger time", "rows/s", True)
LATENCY_RATE, LATENCY_RECORDS, LATENCY_ROUNDS_MAX = 200, 2_000, 2
LATENCY = {
    part: Measure(
        f"send to sink, {LATENCY_RATE} records/s, {name}",
        "ms",
        False,
        {COMMIT: Target(REFERENCE, 1.0), HANDOFF: Target(REFERENCE, 1.0)},
    )
    for part, name in ((0.5, "median"), (0.99, "99th percentile"))
}
LEVEL = {COMMIT: Target(SPARK_SHORT_WAIT, 1.0), HANDOFF: Target(SPARK_SHORT_WAIT, 1.0)}
BY_PARTITIONS = {
    partitions: Measure(
        f"drain {partitions} partition{'s' if partitions > 1 else ''}",
        "rows/s",
        True,
        LEVEL,
        reference=SPARK_SHORT_WAIT,
    )
    for partitions, _ in SHAPES
}
BY_SIZE = {
    size: Measure(
        f"drain records of {size // 1000} kB" if size >= 1000 else f"drain records of {size} B",
        "MB/s",
        True,
        LEVEL,
        reference=SPARK_SHORT_WAIT,
    )
    for _, size in SIZES
}
FIRST_ROW = Measure("start() to first row", "s", False, LEVEL, reference=SPARK_SHORT_WAIT)
TOGETHER = {
    queries: Measure(
        f"records of {QUERIES_BYTES // 1000} kB, {queries} {'queries' if queries > 1 else 'query'} at a time",
        "MB/s",
        True,
        LEVEL,
        reference=SPARK_SHORT_WAIT,
    )
    for queries in QUERIES
}
SLOW = {tasks: Measure(f"{SLOW_MS} ms a record, {tasks} tasks", "rows/s", True) for tasks in TASKS}


def run_spark(
    contest: Contest, folder: Path, *, rounds: int, cases: Collection[str] = (), say: Callable[[str], None]
) -> None:
    """One broker after the other. Without `cases`, all of them."""
    try:
        jars = [str(jar) for jar in connector_jars()]
    except JarsUnavailable as error:
        say(f"Spark's own Kafka source is left out, so there are no ratios: {error}")
        jars = []
    contenders = CONTENDERS if jars else (COMMIT, HANDOFF)
    bytecode = folder / "bytecode"
    brokers: dict[BrokerProcess, Planner] = {
        Headrace(folder, bytecode=bytecode, settings=FITTING): fitting_steps,
        Headrace(folder, bytecode=bytecode, name="headrace-default-window"): default_window_steps,
        Apache(folder): apache_steps,
    }
    for broker, planner in brokers.items():
        steps = planner(contenders, Rounds(rounds, is_chosen=bool(cases)), cases or CASES)
        if not steps:
            continue
        try:
            running = broker.start(Policy.PAGE_CACHE)
            _run_on(running, contest, folder, jars, steps, say)
        finally:
            broker.stop()


@dataclass(frozen=True, slots=True)
class Rounds:
    number: int
    is_chosen: bool = False
    """The cases were named, so that there is time for all rounds."""

    def at_most(self, bound: int) -> int:
        return self.number if self.is_chosen else min(self.number, bound)


PurposeAndStep = tuple[str, Step]
Planner = Callable[[Sequence[str], Rounds, Collection[str]], list[PurposeAndStep]]


def _turns(contenders: Sequence[str], rounds: int) -> list[str]:
    """Each round in the other order."""
    return [
        contender
        for number in range(rounds)
        for contender in (contenders if number % 2 == 0 else reversed(contenders))
    ]


def _with_short_wait(contenders: Sequence[str]) -> Sequence[str]:
    return (*contenders, SPARK_SHORT_WAIT) if SOURCE_OF_SPARK in contenders else contenders


def fitting_steps(contenders: Sequence[str], rounds: Rounds, cases: Collection[str]) -> list[PurposeAndStep]:
    """With what each is measured for. The first two of each contender are for the JVM and the workers to warm up."""
    fair = _with_short_wait(contenders)
    steps: list[PurposeAndStep] = []
    if "drain" in cases:
        steps += [
            ("drain", Step(contender=each, topic="drain", records=RECORDS))
            for each in _turns(fair, rounds.number)
        ]
    if "middle" in cases:
        steps += [
            ("middle", Step(contender=each, topic=f"middle-{size}", records=records, per_trigger=size))
            for size, records in MIDDLE_RECORDS.items()
            for each in _turns(fair, rounds.number)
        ]
    if "partitions" in cases:
        steps += _shape_steps("partitions", SHAPES, fair, rounds.number)
    if "sizes" in cases:
        steps += _shape_steps("sizes", _without_shared(SIZES, cases), fair, rounds.number)
    if "queries" in cases:
        steps += _query_steps(fair, rounds)
    if "first-row" in cases:
        steps += _first_row_steps(fair, rounds)
    if "small" in cases:
        steps += _small_steps(contenders, rounds)
    if "latency" in cases:
        steps += _latency_steps(contenders, rounds)
    if "slow" in cases:
        steps += _slow_steps(contenders, rounds)
    return [*_warm_steps(contenders, WARM_RECORDS), *steps] if steps else []


def default_window_steps(
    contenders: Sequence[str], rounds: Rounds, cases: Collection[str]
) -> list[PurposeAndStep]:
    """What a small window can change."""
    fair = _with_short_wait(contenders)
    steps: list[PurposeAndStep] = []
    if "window" in cases:
        steps += [
            ("window", Step(contender=each, topic="window", records=WINDOW_RECORDS))
            for each in _turns((*contenders, AHEAD), rounds.number)
        ]
    shape_rounds = rounds.at_most(WINDOW_SHAPES_ROUNDS_MAX)
    if "partitions" in cases:
        steps += _shape_steps(f"partitions{IN_WINDOW}", SHAPES_IN_WINDOW, fair, shape_rounds)
    if "sizes" in cases:
        steps += _shape_steps(
            f"sizes{IN_WINDOW}", _without_shared(SIZES_IN_WINDOW, cases), fair, shape_rounds
        )
    return [*_warm_steps(contenders, WARM_RECORDS_IN_WINDOW), *steps] if steps else []


def apache_steps(contenders: Sequence[str], rounds: Rounds, cases: Collection[str]) -> list[PurposeAndStep]:
    steps = default_window_steps(contenders, rounds, cases)
    fair = _with_short_wait(contenders)
    more: list[PurposeAndStep] = []
    if "queries" in cases:
        more += _query_steps(fair, rounds)
    if "first-row" in cases:
        more += _first_row_steps(fair, rounds)
    if "small" in cases:
        more += _small_steps(contenders, rounds)
    warm = [] if steps else _warm_steps(contenders, WARM_RECORDS_IN_WINDOW)
    return [*warm, *steps, *more] if steps or more else []


def _warm_steps(contenders: Sequence[str], records: int) -> list[PurposeAndStep]:
    return [
        ("warm", Step(contender=each, topic="warm", records=records, per_trigger=per_trigger))
        for per_trigger in (records // 4, None)
        for each in contenders
    ]


def _without_shared(
    sizes: Mapping[tuple[int, int], int], cases: Collection[str]
) -> Mapping[tuple[int, int], int]:
    """What the steps by number of partitions measure, too, is measured once."""
    return {shape: each for shape, each in sizes.items() if "partitions" not in cases or shape not in SHAPES}


def _shape_steps(
    purpose: str, shapes: Mapping[tuple[int, int], int], contenders: Sequence[str], rounds: int
) -> list[PurposeAndStep]:
    return [
        (
            purpose,
            Step(
                contender=each,
                topic=f"shape-{partitions}-{size}",
                records=records,
                partitions=partitions,
                record_bytes=size,
            ),
        )
        for (partitions, size), records in shapes.items()
        for each in _turns(contenders, rounds)
    ]


def _query_steps(contenders: Sequence[str], rounds: Rounds) -> list[PurposeAndStep]:
    return [
        (
            "queries",
            Step(
                contender=each,
                topic="queries",
                records=QUERIES_RECORDS,
                partitions=QUERIES_PARTITIONS,
                record_bytes=QUERIES_BYTES,
                queries=queries,
            ),
        )
        for queries in QUERIES
        for each in _turns(contenders, rounds.at_most(QUERIES_ROUNDS_MAX))
    ]


def _first_row_steps(contenders: Sequence[str], rounds: Rounds) -> list[PurposeAndStep]:
    return [
        ("first-row", Step(contender=each, topic="first", records=FIRST_RECORDS, is_first_row=True))
        for each in _turns(contenders, rounds.at_most(FIRST_ROUNDS_MAX))
    ]


def _small_steps(contenders: Sequence[str], rounds: Rounds) -> list[PurposeAndStep]:
    return [
        ("small", Step(contender=each, topic="small", records=SMALL_RECORDS, per_trigger=SMALL_BATCH))
        for each in _turns(contenders, rounds.number)
    ]


def _latency_steps(contenders: Sequence[str], rounds: Rounds) -> list[PurposeAndStep]:
    """Each has a topic of its own, which is empty when its query starts."""
    turns = _turns(contenders, rounds.at_most(LATENCY_ROUNDS_MAX))
    return [
        (
            "latency",
            Step(
                contender=each,
                topic=f"latency-{number}",
                records=LATENCY_RECORDS,
                per_second=LATENCY_RATE,
            ),
        )
        for number, each in enumerate(turns)
    ]


def _slow_steps(contenders: Sequence[str], rounds: Rounds) -> list[PurposeAndStep]:
    return [
        (
            "slow",
            Step(
                contender=each,
                topic="slow",
                records=SLOW_RECORDS,
                per_trigger=SLOW_BATCH,
                tasks=tasks,
                record_ms=SLOW_MS,
            ),
        )
        for tasks in TASKS
        for each in _turns(contenders, rounds.at_most(SLOW_ROUNDS_MAX))
    ]


def _run_on(
    broker: Running,
    contest: Contest,
    folder: Path,
    jars: list[str],
    steps: list[tuple[str, Step]],
    say: Callable[[str], None],
) -> None:
    say(f"spark: {broker.name}: topics are filled")
    for step in {step.topic: step for _, step in steps}.values():
        with Connection(broker.bootstrap_servers) as admin:
            create_topic(admin, step.topic, partitions=step.partitions)
        if step.per_second:
            continue
        run_client(
            "share",
            "fill",
            broker,
            step.topic,
            **{
                "records": step.records,
                "per-batch": max(1, min(150, step.records // 24, BATCH_BYTES // step.record_bytes)),
                "partitions": step.partitions,
                "record-bytes": step.record_bytes,
            },
        )
    say(f"spark: {broker.name}: {len(steps)} queries in one session")
    for (purpose, step), ran in zip(
        steps, _run_program(broker, folder, jars, [step for _, step in steps]), strict=True
    ):
        _add(contest, broker.name, purpose, step, ran)


def _add(contest: Contest, setting: str, purpose: str, step: Step, ran: Ran) -> None:
    if purpose == "drain":
        contest.add(DRAIN, setting, step.contender, ran.rate)
        contest.add(TASKS_ALONE, setting, step.contender, ran.tasks_rate)
        contest.add(WALL, setting, step.contender, ran.wall_s)
    elif purpose == "middle":
        assert step.per_trigger is not None
        contest.add(MIDDLE[step.per_trigger], setting, step.contender, ran.middle_rate)
    elif purpose == "small":
        contest.add(TRIGGER, setting, step.contender, ran.trigger_ms)
    elif purpose == "window":
        contest.add(WINDOW, setting, step.contender, ran.joined_rate)
        if step.contender == COMMIT:
            contest.add(CEILING, setting, step.contender, LOCKS * PARTITIONS * 1000 / ran.trigger_ms)
    elif purpose.removesuffix(IN_WINDOW) in ("partitions", "sizes"):
        # With a small window the first trigger has joining in it, about two seconds on Apache Kafka, and others follow.
        rate = ran.joined_rate if purpose.endswith(IN_WINDOW) else ran.rate
        if purpose.startswith("partitions"):
            contest.add(BY_PARTITIONS[step.partitions], setting, step.contender, rate)
        if (step.partitions, step.record_bytes) in SIZES:
            contest.add(BY_SIZE[step.record_bytes], setting, step.contender, rate * step.record_bytes / 1e6)
    elif purpose == "queries":
        megabytes = ran.rows * step.record_bytes / 1e6
        contest.add(TOGETHER[step.queries], setting, step.contender, megabytes / ran.span_s)
    elif purpose == "first-row":
        contest.add(FIRST_ROW, setting, step.contender, ran.wall_s)
    elif purpose == "latency":
        for part, measure in LATENCY.items():
            contest.add(measure, setting, step.contender, ran.latency_ms(part))
    elif purpose == "slow":
        assert step.tasks is not None
        contest.add(SLOW[step.tasks], setting, step.contender, ran.steady_rate)


def _run_program(broker: Running, folder: Path, jars: list[str], steps: list[Step]) -> list[Ran]:
    home = folder / f"spark-{broker.name}"
    home.mkdir()
    results = home / "results"
    plan = {
        "bootstrap_servers": broker.bootstrap_servers,
        "jars": jars,
        "folder": str(home),
        "results": str(results),
        "steps": [asdict(step) for step in steps],
    }
    environment = {
        **os.environ,
        **COMPILED,
        "PYTHONPATH": str(ROOT),
        "PYSPARK_PYTHON": sys.executable,
        "JAVA_HOME": str(find_java().home),
    }
    answer = subprocess.run(
        [sys.executable, "-m", "bench.spark.program", json.dumps(plan)],
        capture_output=True,
        text=True,
        timeout=PROGRAM_S,
        cwd=home,
        env=environment,
    )
    if answer.returncode:
        raise BrokerRefused(
            f"Spark against {broker.name} failed:\n{answer.stdout[-2000:]}{answer.stderr[-8000:]}"
        )
    return [Ran.from_json(json.loads(line)) for line in results.read_text().splitlines()]
