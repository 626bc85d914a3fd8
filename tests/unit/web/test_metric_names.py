"""Every metric the broker counts is in the table that names and explains it, and under the names operators know."""

import re
from pathlib import Path

from headrace.broker.metrics import MetricsRegistry
from headrace.web.exposition import NAMES, broker_families, render

BROKER = Path(__file__).resolve().parents[3] / "src" / "headrace" / "broker"
COUNTED = re.compile(r"metrics\.(?:count|counter|gauge|observe|histogram)\(\s*\"([^\"]+)\"")


def test_every_name_the_broker_uses_is_explained() -> None:
    used = {name for path in BROKER.rglob("*.py") for name in COUNTED.findall(path.read_text())}
    used |= set(re.findall(r'"(Failed\w+RequestsPerSec)"', (BROKER / "core.py").read_text()))
    assert len(used) > 20
    assert used - set(NAMES) == set()
    assert set(NAMES) - used == set()


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
    text = render(broker_families(metrics.snapshot())).decode()
    assert 'kafka_server_brokertopicmetrics_messagesin_total{topic="a\\"b"} 7.0' in text
    assert "kafka_server_sharesessioncache_sharesessionscount 3.0" in text
    assert 'kafka_server_sharegroupmetrics_partitionloadtimems_bucket{le="50"} 1.0' in text
    assert 'kafka_server_sharegroupmetrics_partitionloadtimems_bucket{le="+Inf"} 2.0' in text
    assert "kafka_server_sharegroupmetrics_partitionloadtimems_sum 70030.0" in text
