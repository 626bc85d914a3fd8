"""`/metrics`: the broker's counts under Kafka's names, and what the sampler has seen of groups and topics."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector, CollectorRegistry

from headrace.broker.metrics import BUCKETS, Sample
from headrace.version import __version__
from headrace.web.metric_names import BROKER, OURS, MetricName
from headrace.web.model import Overview

NAMES = {name.kafka: name for name in BROKER}
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class _Ready(Collector):
    """Families that were made before they are asked for."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = list(families)

    def collect(self) -> Iterable[Metric]:
        return self._families


def render(families: Iterable[Metric]) -> bytes:
    registry = CollectorRegistry()
    registry.register(_Ready(families))
    return generate_latest(registry)


def broker_families(samples: Sequence[Sample]) -> Iterator[Metric]:
    """A sample whose name is not in the table is shown under a name made by the same rule."""
    by_name: dict[str, list[Sample]] = {}
    for sample in samples:
        by_name.setdefault(sample.name, []).append(sample)
    for name, alike in by_name.items():
        meaning = NAMES.get(name) or MetricName(name, "other", name)
        labels = sorted({label for sample in alike for label in sample.labels})
        family = _family(alike[0].kind, meaning, labels)
        for sample in alike:
            values = [sample.labels.get(label, "") for label in labels]
            if sample.kind == "histogram":
                family.add_metric(values, buckets=_buckets(sample), sum_value=sample.value)
            else:
                family.add_metric(values, sample.value)
        yield family


def _family(kind: str, name: MetricName, labels: Sequence[str]) -> Any:
    types = {"counter": CounterMetricFamily, "gauge": GaugeMetricFamily, "histogram": HistogramMetricFamily}
    return types[kind](name.prometheus, name.help, labels=labels)


def _buckets(sample: Sample) -> list[tuple[str, float]]:
    total = 0
    buckets = []
    for bound, count in zip((*BUCKETS, float("inf")), sample.counts, strict=True):
        total += count
        buckets.append(("+Inf" if bound == float("inf") else f"{bound:g}", float(total)))
    return buckets


def overview_families(overview: Overview) -> Iterator[Metric]:
    def gauge(name: str, *labels: str) -> GaugeMetricFamily:
        return GaugeMetricFamily(name, OURS[name], labels=labels)

    build = gauge("headrace_build_info", "version")
    build.add_metric([__version__], 1)
    lag = gauge("headrace_group_lag", "group", "type")
    members = gauge("headrace_group_members", "group", "type")
    in_flight = gauge("headrace_share_group_in_flight", "group")
    for group in overview.groups:
        if group.lag is not None:
            lag.add_metric([group.group_id, group.type], group.lag)
        if group.members is not None:
            members.add_metric([group.group_id, group.type], group.members)
        if group.in_flight is not None:
            in_flight.add_metric([group.group_id], group.in_flight)
    records = gauge("headrace_topic_records", "topic")
    partitions = gauge("headrace_topic_partitions", "topic")
    for topic in overview.topics:
        partitions.add_metric([topic.name], topic.partitions)
        if topic.records is not None:
            records.add_metric([topic.name], topic.records)
    brokers = gauge("headrace_brokers")
    brokers.add_metric([], len(overview.brokers))
    sampled = gauge("headrace_last_sample_timestamp_seconds")
    if overview.sampled_at is not None:
        sampled.add_metric([], overview.sampled_at / 1000)
    yield from (build, brokers, sampled, lag, members, in_flight, records, partitions)
