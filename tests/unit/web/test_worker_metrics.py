"""A worker's numbers for Prometheus: every one of them, named and explained, and served."""

from dataclasses import fields

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from headrace.web.exposition import render
from headrace.web.worker_metrics import COUNTERS, GAUGES, MetricsServer, worker_families
from headrace.worker.metrics import RUN_SECONDS_BOUNDS, TaskMetrics


def test_every_number_of_a_task_has_a_metric() -> None:
    times = {"runs", "run_seconds", "run_seconds_counts"}
    assert {each.name for each in fields(TaskMetrics)} == {*COUNTERS, *GAUGES, *times}


def test_numbers_and_run_times_are_rendered_by_task() -> None:
    numbers = TaskMetrics(received=7, running=2)
    numbers.note_run(0.02)
    numbers.note_run(9999)
    text = render(worker_families({"emails": numbers}, RUN_SECONDS_BOUNDS, group="mailers")).decode()
    found = {
        (sample.name, sample.labels.get("le")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.labels["task"] == "emails" and sample.labels["group"] == "mailers"
    }
    assert found["headrace_worker_received_total", None] == 7
    assert found["headrace_worker_running", None] == 2
    assert found["headrace_worker_run_seconds_bucket", "0.05"] == 1
    assert found["headrace_worker_run_seconds_bucket", "+Inf"] == 2
    assert found["headrace_worker_run_seconds_sum", None] == pytest.approx(9999.02)


def test_they_are_served_with_a_probe_and_nothing_else() -> None:
    numbers = {"emails": TaskMetrics(received=7)}
    with MetricsServer(
        "127.0.0.1",
        0,
        lambda: worker_families(numbers, RUN_SECONDS_BOUNDS, group="g"),
        lambda: {"tasks": {"emails": {"state": "paused"}}},
    ) as server:
        assert 'headrace_worker_received_total{group="g",task="emails"} 7.0' in httpx.get(server.url).text
        base = server.url.removesuffix("/metrics")
        assert httpx.get(f"{base}/healthz").text == "ok\n"
        assert httpx.get(f"{base}/api/v1/worker").json()["tasks"]["emails"]["state"] == "paused"
        assert httpx.get(f"{base}/").status_code == 404
