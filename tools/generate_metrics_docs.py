"""The tables of docs/reference/metrics.md, from the tables in the code."""

from collections.abc import Iterable

from headrace.web import spark_metrics
from headrace.web.metric_names import BROKER, NOT_HERE, OURS
from headrace.web.worker_metrics import COUNTERS, GAUGES, RUN_SECONDS, RUN_SECONDS_HELP

COUNTED = {"DeadLetterQueueRecordCount", "share-group-rebalance-count", "write-total"}
"""Counters whose names do not say so; the others end with PerSec."""


def broker_table() -> str:
    return _table(
        ("metric", "Kafka's name", "meaning"),
        (
            (
                f"`{one.prometheus}{'_total' if one.kafka.endswith('PerSec') or one.kafka in COUNTED else ''}`",
                f"`{one.type}` {one.kafka}" if one.type else "",
                one.help,
            )
            for one in BROKER
        ),
    )


def sampled_table() -> str:
    return _table(("metric", "meaning"), ((f"`{name}`", meaning) for name, meaning in OURS.items()))


def worker_table() -> str:
    counters = ((f"`headrace_worker_{name}_total`", meaning) for name, meaning in COUNTERS.items())
    gauges = ((f"`headrace_worker_{name}`", meaning) for name, meaning in GAUGES.items())
    return _table(
        ("metric", "meaning"), (*counters, *gauges, (f"`{RUN_SECONDS}` (histogram)", RUN_SECONDS_HELP))
    )


def spark_table() -> str:
    gauges = ((f"`headrace_spark_{name}`", meaning) for name, meaning in spark_metrics.GAUGES.items())
    counters = (
        (f"`headrace_spark_{name}_total`", meaning) for name, meaning in spark_metrics.COUNTERS.items()
    )
    progress = (
        (f"`headrace_spark_{name}`", meaning) for name, (_, meaning) in spark_metrics.PROGRESS.items()
    )
    return _table(("metric", "meaning"), (*gauges, *counters, *progress))


def missing_table() -> str:
    return _table(("Kafka's name", "instead"), NOT_HERE.items())


def _table(heads: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [heads, tuple("---" for _ in heads), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)
