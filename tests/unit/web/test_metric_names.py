"""Every metric the broker counts is in the table that names and explains it, and under the names operators know."""

import re
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from headrace.broker.metrics import MetricsRegistry
from headrace.web.exposition import NAMES, broker_text
from headrace.web.metric_names import BROKER as TABLE

BROKER = Path(__file__).resolve().parents[3] / "src" / "headrace" / "broker"
COUNTED = re.compile(r"metrics\.(?:count|counter|gauge|observe|histogram)\(\s*\"([^\"]+)\"")


def test_every_name_the_broker_uses_is_explained() -> None:
    used = {name for path in BROKER.rglob("*.py") for name in COUNTED.findall(path.read_text())}
    used |= set(re.findall(r'"(Failed\w+RequestsPerSec)"', (BROKER / "core.py").read_text()))
    assert len(used) > 20
    assert used - set(NAMES) == set()
    assert set(NAMES) - used == set()


def test_no_metric_is_explained_twice() -> None:
    assert len(TABLE) == len(NAMES)


def test_names_are_those_that_the_usual_exporter_makes_of_kafkas() -> None:
    assert NAMES["MessagesInPerSec"].prometheus == "kafka_server_brokertopicmetrics_messagesin"
    assert (
        NAMES["InFlightMessageCount"].prometheus == "kafka_server_sharepartitionmetrics_inflightmessagecount"
    )
    assert NAMES["group-count"].prometheus == "kafka_server_group_coordinator_metrics_group_count"


def test_counters_gauges_and_histograms_are_rendered_with_their_labels() -> None:
    metrics = MetricsRegistry()
    metrics.count("MessagesInPerSec", 7, topic='a"b')
    metrics.gauge("ShareSessionsCount", lambda: 3)
    metrics.observe("PartitionLoadTimeMs", 30)
    metrics.observe("PartitionLoadTimeMs", 70_000)
    text = broker_text(metrics.snapshot()).decode()
    assert 'kafka_server_brokertopicmetrics_messagesin_total{topic="a\\"b"} 7.0' in text
    assert "kafka_server_sharesessioncache_sharesessionscount 3.0" in text
    assert 'kafka_server_sharegroupmetrics_partitionloadtimems_bucket{le="50"} 1\n' in text
    assert 'kafka_server_sharegroupmetrics_partitionloadtimems_bucket{le="+Inf"} 2\n' in text
    assert "kafka_server_sharegroupmetrics_partitionloadtimems_sum 70030.0" in text


def test_a_parser_reads_what_was_counted_whatever_the_names_hold() -> None:
    name = 'line\nbreak "quoted" back\\slash {a="b"} ü'
    metrics = MetricsRegistry()
    metrics.count("MessagesInPerSec", 7, topic=name)
    metrics.count("headrace_not_in_the_table", 2)
    metrics.gauge("InFlightMessageCount", lambda: float("inf"), group=name, topic="t", partition=0)
    for value in (0.1, 30, 70_000):
        metrics.observe("TopicPartitionsAcquireTimeMs", value, group=name)
    found = {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(broker_text(metrics.snapshot()).decode())
        for sample in family.samples
    }
    assert found.pop(("kafka_server_brokertopicmetrics_messagesin_total", (("topic", name),))) == 7
    assert found.pop(("headrace_not_in_the_table_total", ())) == 2
    place = (("group", name), ("partition", "0"), ("topic", "t"))
    assert found.pop(("kafka_server_sharepartitionmetrics_inflightmessagecount", place)) == float("inf")
    acquire, group = "kafka_server_sharegroupmetrics_topicpartitionsacquiretimems", ("group", name)
    assert (found.pop((f"{acquire}_count", (group,))), found.pop((f"{acquire}_sum", (group,)))) == (
        3,
        70_030.1,
    )
    buckets = [found.pop((f"{acquire}_bucket", (group, ("le", bound)))) for bound in ("0.1", "50", "+Inf")]
    assert buckets == [1, 2, 3]
    assert {name for name, _ in found} == {f"{acquire}_bucket"}
