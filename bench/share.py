"""Share groups: librdkafka's ShareConsumer against both brokers, on batches of 1, 150 and 8,500 records."""

from itertools import count

from bench.brokers import Policy, Running
from bench.tasks import Line, Load, Task, Values, measured, run_client
from bench.wire import create_topic, delete_topic

PER_BATCH = {"1": 1, "150": 150, "8500": 8500}
_names = count(1)
_filled: set[tuple[int, str]] = set()


def _lines(name: str, target: float) -> tuple[Line, Line, Line]:
    return (
        Line(name, "share", "records/s", True, target),
        Line(f"{name}: broker CPU", "share", "us/record", False),
        Line(f"{name}: client busy", "share", "cores", False, is_shown=False),
    )


IMPLICIT = {
    "150": _lines("share consume, 150 a batch", 1.5),
    "1": _lines("share consume, 1 a batch", 2.0),
    "8500": _lines("share consume, 8,500 a batch", 1.0),
}
EXPLICIT = _lines("share consume, explicit, 150 a batch", 1.5)
JOIN = Line("share group join to first record", "share", "ms", False)
DELIVER_P50 = Line("share deliver, p50", "share", "ms", False, 1.0)
DELIVER_P99 = Line("share deliver, p99", "share", "ms", False, 1.0)
COMMIT_P50 = Line("share acknowledge, p50", "share", "ms", False, 1.0)
COMMIT_P99 = Line("share acknowledge, p99", "share", "ms", False, 1.0)


def _topic(broker: Running, kind: str, load: Load) -> tuple[str, int]:
    """The topic with so many records to a batch, filled on first use; and how many it holds."""
    topic = f"share-{kind}"
    records = load.preload_records if kind != "1" else min(load.preload_records // 10, 100_000)
    if (broker.pid, topic) not in _filled:
        _filled.add((broker.pid, topic))
        with broker.connect() as admin:
            create_topic(admin, topic, partitions=1)
        options = {"records": records, "per-batch": PER_BATCH[kind]}
        run_client("share", "fill", broker, topic, **options)
    return topic, records


def _consume(broker: Running, load: Load, kind: str, task: str, lines: tuple[Line, Line, Line]) -> Values:
    topic, records = _topic(broker, kind, load)
    group = f"share-{next(_names)}"
    options: dict[str, object] = {"group": group, "records": records, "seconds": load.seconds}
    figures, values = measured(broker, lines, lambda: run_client("share", task, broker, topic, **options))
    return {**values, JOIN: figures.extra["joined_ms"]}


def consume_150(broker: Running, load: Load) -> Values:
    return _consume(broker, load, "150", "consume", IMPLICIT["150"])


def consume_explicit(broker: Running, load: Load) -> Values:
    return _consume(broker, load, "150", "consume-explicit", EXPLICIT)


def consume_1(broker: Running, load: Load) -> Values:
    return _consume(broker, load, "1", "consume", IMPLICIT["1"])


def consume_8500(broker: Running, load: Load) -> Values:
    return _consume(broker, load, "8500", "consume", IMPLICIT["8500"])


def latency(broker: Running, load: Load) -> Values:
    name = f"share-latency-{next(_names)}"
    with broker.connect() as admin:
        create_topic(admin, name, partitions=1)
        figures = run_client("share", "latency", broker, name, group=name, seconds=load.seconds)
        delete_topic(admin, name)
    extra = figures.extra
    return {
        DELIVER_P50: extra["deliver_p50_ms"],
        DELIVER_P99: extra["deliver_p99_ms"],
        COMMIT_P50: extra["commit_p50_ms"],
        COMMIT_P99: extra["commit_p99_ms"],
    }


SHARE_TASKS = tuple(
    Task("share", "share", (Policy.PAGE_CACHE,), run)
    for run in (consume_150, consume_explicit, consume_1, consume_8500, latency)
)
