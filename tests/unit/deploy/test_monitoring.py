"""The alert rules and the Grafana dashboard under deploy/ refer to metrics that exist."""

import json
import re
from pathlib import Path

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from headrace.broker.metrics import MetricsRegistry
from headrace.web import spark_metrics
from headrace.web.exposition import broker_text
from headrace.web.metric_names import BROKER, OURS
from headrace.web.worker_metrics import COUNTERS, GAUGES, RUN_SECONDS

DEPLOY = Path(__file__).resolve().parents[3] / "deploy"
RULES = yaml.safe_load((DEPLOY / "prometheus" / "headrace-alerts.yml").read_text())
DASHBOARD = json.loads((DEPLOY / "grafana" / "headrace-share-groups.json").read_text())
METRIC = re.compile(r"\b(?:kafka|headrace|process)_[a-z_]+")
PROCESS = {
    "process_cpu_seconds_total",
    "process_resident_memory_bytes",
    "process_open_fds",
    "process_max_fds",
}
HISTOGRAMS = {
    "PartitionLoadTimeMs",
    "RequestTopicPartitionsFetchRatio",
    "TopicPartitionsAcquireTimeMs",
    "TotalTimeMs",
    "LogFlushRateAndTimeMs",
    "headrace_event_loop_lag_ms",
}


def names_shown() -> set[str]:
    """As Prometheus stores them: counters end with _total, histograms come in parts."""
    metrics = MetricsRegistry()
    for name in BROKER:
        if name.kafka in HISTOGRAMS:
            metrics.observe(name.kafka, 1)
        elif name.kafka.endswith("PerSec") or name.kafka in {"DeadLetterQueueRecordCount", "write-total"}:
            metrics.count(name.kafka)
        else:
            metrics.gauge(name.kafka, lambda: 0)
    families = text_string_to_metric_families(broker_text(metrics.snapshot()).decode())
    broker = {sample.name for family in families for sample in family.samples}
    worker = {f"headrace_worker_{name}_total" for name in COUNTERS} | {
        f"headrace_worker_{name}" for name in GAUGES
    }
    spark = {f"headrace_spark_{name}_total" for name in spark_metrics.COUNTERS}
    spark |= {f"headrace_spark_{name}" for name in (*spark_metrics.GAUGES, *spark_metrics.PROGRESS)}
    return broker | worker | spark | set(OURS) | PROCESS | {f"{RUN_SECONDS}_bucket"}


ALERTS = {rule["alert"]: rule for group in RULES["groups"] for rule in group["rules"]}
PANELS = {panel["title"]: panel for panel in DASHBOARD["panels"]}


@pytest.mark.parametrize("alert", ALERTS)
def test_an_alert_uses_metrics_that_exist_and_says_what_to_do(alert: str) -> None:
    rule = ALERTS[alert]
    used = set(METRIC.findall(rule["expr"]))
    assert used
    assert used <= names_shown()
    assert rule["annotations"]["summary"]
    assert rule["annotations"]["cure"]
    assert rule["labels"]["severity"] in ("warning", "critical")


@pytest.mark.parametrize("title", PANELS)
def test_a_panel_uses_metrics_that_exist(title: str) -> None:
    for target in PANELS[title]["targets"]:
        used = set(METRIC.findall(target["expr"]))
        assert used
        assert used <= names_shown()


def test_every_alert_is_tested() -> None:
    tests = yaml.safe_load((DEPLOY / "prometheus" / "headrace-alerts-test.yml").read_text())["tests"]
    firing = {one["alertname"] for test in tests for one in test["alert_rule_test"] if one["exp_alerts"]}
    assert firing == set(ALERTS)


def test_panels_do_not_lie_on_each_other() -> None:
    places: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & places
        assert at["x"] + at["w"] <= 24
        places |= cells
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
