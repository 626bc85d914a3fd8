"""The contest: Spark's own Kafka source and both modes of kafka-share, in turn in one JVM, on each broker.

On our broker the window of locks fits the topic; on Apache Kafka it is the default one, 2,000 records a partition.
`commit` raises it to the 4,000 that the broker allows, and its ceiling stands beside what was measured: a micro-batch
has as many records as may be locked at once, so no more than `locks x partitions / trigger time` can pass. With
`handoff` records are accepted before that, by its own choice or by maxRecordsAhead.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
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
WARM_RECORDS = 100_000
SMALL_RECORDS, SMALL_BATCH = 240, 10
SLOW_RECORDS, SLOW_BATCH, SLOW_MS = 2_400, 800, 5
TASKS = (2, 8, 16)
SLOW_ROUNDS_MAX = 2
"""Slow work takes long, and its rates differ little from round to round."""
MIDDLE_RECORDS = {20_000: 400_000, 500_000: 2_000_000}
"""By the size of a micro-batch: so many records that most of its micro-batches lie within a backlog."""
WINDOW_RECORDS = 120_000
LOCKS = 4_000
"""The largest `share.partition.max.record.locks` that Kafka allows by default."""
FITTING_LOCKS = str(RECORDS)
FITTING = {
    "group.share.max.partition.max.record.locks": FITTING_LOCKS,
    "group.share.partition.max.record.locks": FITTING_LOCKS,
}
PROGRAM_S = 1_800

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
SLOW = {tasks: Measure(f"{SLOW_MS} ms a record, {tasks} tasks", "rows/s", True) for tasks in TASKS}


def run_spark(contest: Contest, folder: Path, *, rounds: int, say: Callable[[str], None]) -> None:
    """Both brokers, one after the other."""
    try:
        jars = [str(jar) for jar in connector_jars()]
    except JarsUnavailable as error:
        say(f"Spark's own Kafka source is left out, so there are no ratios: {error}")
        jars = []
    contenders = CONTENDERS if jars else (COMMIT, HANDOFF)
    ours = Headrace(folder, bytecode=folder / "bytecode", settings=FITTING)
    steps = {ours.name: _fitting_steps, Apache.name: _window_steps}
    brokers: tuple[BrokerProcess, ...] = (ours, Apache(folder))
    for broker in brokers:
        try:
            running = broker.start(Policy.PAGE_CACHE)
            _run_on(running, contest, folder, jars, steps[broker.name](contenders, rounds), say)
        finally:
            broker.stop()


def _turns(contenders: Sequence[str], rounds: int) -> list[str]:
    """Each round in the other order."""
    return [
        contender
        for number in range(rounds)
        for contender in (contenders if number % 2 == 0 else reversed(contenders))
    ]


def _fitting_steps(contenders: Sequence[str], rounds: int) -> list[tuple[str, Step]]:
    """With what each is measured for. The first two of each contender are for the JVM and the workers to warm up."""
    steps = [
        ("warm", Step(contender=each, topic="warm", records=WARM_RECORDS, per_trigger=WARM_RECORDS // 4))
        for each in contenders
    ]
    steps += [("warm", Step(contender=each, topic="drain", records=RECORDS)) for each in contenders]
    with_short_wait = (*contenders, SPARK_SHORT_WAIT) if SOURCE_OF_SPARK in contenders else contenders
    steps += [
        ("drain", Step(contender=each, topic="drain", records=RECORDS))
        for each in _turns(with_short_wait, rounds)
    ]
    steps += [
        ("middle", Step(contender=each, topic=f"middle-{size}", records=records, per_trigger=size))
        for size, records in MIDDLE_RECORDS.items()
        for each in _turns(with_short_wait, rounds)
    ]
    steps += [
        ("small", Step(contender=each, topic="small", records=SMALL_RECORDS, per_trigger=SMALL_BATCH))
        for each in _turns(contenders, rounds)
    ]
    return steps + _latency_steps(contenders, rounds) + _slow_steps(contenders, rounds)


def _window_steps(contenders: Sequence[str], rounds: int) -> list[tuple[str, Step]]:
    warm = SMALL_BATCH * 10
    steps = [
        ("warm", Step(contender=each, topic="small", records=SMALL_RECORDS, per_trigger=warm))
        for each in contenders
    ]
    steps += [
        ("window", Step(contender=each, topic="window", records=WINDOW_RECORDS))
        for each in _turns((*contenders, AHEAD), rounds)
    ]
    return steps + [
        ("small", Step(contender=each, topic="small", records=SMALL_RECORDS, per_trigger=SMALL_BATCH))
        for each in _turns(contenders, rounds)
    ]


def _latency_steps(contenders: Sequence[str], rounds: int) -> list[tuple[str, Step]]:
    """Each has a topic of its own, which is empty when its query starts."""
    turns = _turns(contenders, min(rounds, LATENCY_ROUNDS_MAX))
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


def _slow_steps(contenders: Sequence[str], rounds: int) -> list[tuple[str, Step]]:
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
        for each in _turns(contenders, min(rounds, SLOW_ROUNDS_MAX))
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
    filled = {step.topic: 0 if step.per_second else step.records for _, step in steps}
    for topic, records in filled.items():
        with Connection(broker.bootstrap_servers) as admin:
            create_topic(admin, topic, partitions=PARTITIONS)
        if not records:
            continue
        run_client(
            "share",
            "fill",
            broker,
            topic,
            **{"records": records, "per-batch": min(150, records // 24), "partitions": PARTITIONS},
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
        # The first trigger has joining the group in it: about two seconds on Apache Kafka.
        rate = ran.steady_rate if len(ran.batches) > 1 else ran.rate
        contest.add(WINDOW, setting, step.contender, rate)
        if step.contender == COMMIT:
            contest.add(CEILING, setting, step.contender, LOCKS * PARTITIONS * 1000 / ran.trigger_ms)
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
