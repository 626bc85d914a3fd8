"""`/metrics`: the broker's counts under Kafka's names, and what the sampler has seen of groups and topics."""

from collections.abc import Iterable, Iterator

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector, CollectorRegistry

from headrace.broker.metrics import BUCKETS, Sample
from headrace.version import __version__
from headrace.web.metric_names import BROKER, OURS, MetricName
from headrace.web.model import Overview
from headrace.web.slow_sampler import SlowFacts

NAMES = {name.kafka: name for name in BROKER}
BOUNDS = (*(f"{bound:g}" for bound in BUCKETS), "+Inf")
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


def broker_text(samples: Iterable[Sample]) -> bytes:
    """The broker's own series. A sample whose name is not in the table gets a name that is made by the same rule.

    A thousand groups are tens of thousands of lines, and the broker runs in this process. So they are written here:
    prometheus_client makes several objects for each line.
    """
    by_name: dict[str, list[Sample]] = {}
    for sample in samples:
        by_name.setdefault(sample.name, []).append(sample)
    lines: list[str] = []
    for name, alike in by_name.items():
        meaning = NAMES.get(name) or MetricName(name, "other", name)
        kind = alike[0].kind
        shown = f"{meaning.prometheus}_total" if kind == "counter" else meaning.prometheus
        lines.append(f"# HELP {shown} {meaning.help}\n# TYPE {shown} {kind}\n")
        for sample in alike:
            labels = ",".join(f'{label}="{_escaped(value)}"' for label, value in sample.labels.items())
            if kind == "histogram":
                lines.extend(_histogram_lines(shown, labels, sample))
            else:
                lines.append(f"{shown}{_braced(labels)} {_figure(sample.value)}\n")
    return "".join(lines).encode()


def _histogram_lines(name: str, labels: str, sample: Sample) -> Iterator[str]:
    comma = "," if labels else ""
    total = 0
    for bound, count in zip(BOUNDS, sample.counts, strict=True):
        total += count
        yield f'{name}_bucket{{{labels}{comma}le="{bound}"}} {total}\n'
    yield f"{name}_count{_braced(labels)} {total}\n{name}_sum{_braced(labels)} {_figure(sample.value)}\n"


def _braced(labels: str) -> str:
    return f"{{{labels}}}" if labels else ""


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _figure(value: float) -> str:
    return repr(float(value)).replace("inf", "Inf").replace("nan", "NaN")


def slow_families(facts: SlowFacts, now_s: float) -> Iterator[Metric]:
    def gauge(name: str, *labels: str) -> GaugeMetricFamily:
        return GaugeMetricFamily(name, OURS[name], labels=labels)

    oldest = gauge("headrace_group_oldest_seconds", "group")
    for group_id in facts.oldest:
        oldest.add_metric([group_id], facts.oldest_age_s(group_id, now_s) or 0.0)
    waiting = gauge("headrace_dead_letters_waiting", "topic")
    for topic, count in facts.waiting.items():
        waiting.add_metric([topic], count)
    sizes = gauge("headrace_topic_bytes", "topic")
    for topic, size in facts.topic_bytes().items():
        sizes.add_metric([topic], size)
    free = gauge("headrace_disk_free_bytes", "broker", "path")
    total = gauge("headrace_disk_total_bytes", "broker", "path")
    for disk in facts.disks:
        labels = [str(disk.broker_id), disk.path]
        if disk.free_bytes is not None and disk.total_bytes is not None:
            free.add_metric(labels, disk.free_bytes)
            total.add_metric(labels, disk.total_bytes)
    yield from (oldest, waiting, sizes, free, total)


def process_families() -> Iterable[Metric]:
    """Processor time, memory, file descriptors and start time of this process, by Prometheus' usual names."""
    return ProcessCollector(registry=None).collect()


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
