"""Streaming queries on `format("kafka-share")` for Prometheus, from what Spark reports of them.

    from headrace.web.spark_metrics import serve_metrics
    with serve_metrics(spark, "localhost:9108"): ...

The source puts its numbers into `StreamingQueryProgress` (`sources[].latestOffset`), so they are read there, in the
driver program: nothing runs in Spark for it, and pyspark is not imported here. Queries on other sources are left out.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from headrace.web.worker_metrics import MetricsServer

GAUGES: dict[str, str] = {
    "lag": "Records of the group that are not settled.",
    "held": "Records whose locks the source holds.",
    "ahead": "Records that are accepted, and that no micro-batch has yet (maxRecordsAhead).",
    "unconfirmed": "Records of committed micro-batches whose acknowledgement is not confirmed yet.",
}
COUNTERS: dict[str, str] = {
    "delivered": "Records delivered to the source.",
    "redelivered": "Deliveries of records that this query had processed before: accepted again, not processed again.",
    "confirmed": "Records whose acknowledgement the broker has confirmed.",
    "refused": "Records whose acknowledgement was refused.",
    "lost": "Records whose lock ended before their micro-batch was committed.",
    "released": "Records that the query released.",
    "rejected": "Records that the query rejected.",
}
PROGRESS: dict[str, tuple[str, str]] = {
    "micro_batch": ("batchId", "The number of the last micro-batch."),
    "input_rows_per_second": ("inputRowsPerSecond", "Rows that came in, by Spark's reckoning."),
    "processed_rows_per_second": ("processedRowsPerSecond", "Rows processed, by Spark's reckoning."),
    "micro_batch_duration_ms": ("batchDuration", "How long the last micro-batch took."),
}


class _Streams(Protocol):
    @property
    def active(self) -> Iterable[Any]: ...


class SparkSessionLike(Protocol):
    """What is needed of a SparkSession."""

    @property
    def streams(self) -> _Streams: ...


def serve_metrics(spark: SparkSessionLike, address: str) -> MetricsServer:
    """`/metrics` of every active query, and `/healthz`, at HOST:PORT; use it in `with`."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdigit():
        raise ValueError(f"the address must be HOST:PORT, such as localhost:9108, got {address!r}")

    def collect() -> Iterator[Metric]:
        found = (query.lastProgress for query in spark.streams.active)
        return spark_families(progress for progress in found if progress)

    return MetricsServer(host.strip("[]"), int(port), collect)


def spark_families(progresses: Iterable[Mapping[str, Any]]) -> Iterator[Metric]:
    """Of the last progress of each query. Where a query has several sources of ours, their numbers are added up."""
    queries = [
        (_name(progress), progress, ours) for progress in progresses if (ours := list(_ours(progress)))
    ]
    for name, meaning in GAUGES.items():
        yield _fill(GaugeMetricFamily(f"headrace_spark_{name}", meaning, labels=["query"]), queries, name)
    for name, meaning in COUNTERS.items():
        yield _fill(CounterMetricFamily(f"headrace_spark_{name}", meaning, labels=["query"]), queries, name)
    for name, (field, meaning) in PROGRESS.items():
        gauge = GaugeMetricFamily(f"headrace_spark_{name}", meaning, labels=["query"])
        for query, progress, _ in queries:
            if isinstance(progress.get(field), int | float):
                gauge.add_metric([query], progress[field])
        yield gauge


def _fill(family: Any, queries: Iterable[tuple[str, Any, Iterable[Mapping[str, Any]]]], name: str) -> Metric:
    for query, _, sources in queries:
        known = [numbers[name] for numbers in sources if isinstance(numbers.get(name), int | float)]
        if known:
            family.add_metric([query], sum(known))
    filled: Metric = family
    return filled


def _name(progress: Mapping[str, Any]) -> str:
    return str(progress.get("name") or progress.get("id") or "unnamed")


def _ours(progress: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """What sources of ours report; Spark hands it on as JSON in a string."""
    for source in progress.get("sources") or ():
        reported = source.get("latestOffset")
        if isinstance(reported, str):
            try:
                reported = json.loads(reported)
            except ValueError:
                continue
        if isinstance(reported, Mapping) and "confirmed" in reported and "held" in reported:
            yield reported
