"""Workers and Spark queries are read from what they export themselves."""

import json
import socket
from dataclasses import asdict
from functools import partial

import pytest

from headrace.web.exposition import render
from headrace.web.processes import (
    addresses_of,
    parse_figures,
    parse_runs,
    query_row,
    read_process,
    worker_row,
)
from headrace.web.spark_metrics import spark_families
from headrace.web.worker_metrics import MetricsServer, worker_families
from headrace.worker.calls import RunningRecord
from headrace.worker.metrics import RUN_SECONDS_BOUNDS, TaskMetrics

PROGRESS = {
    "name": "orders",
    "batchId": 7,
    "batchDuration": 250,
    "inputRowsPerSecond": 12.5,
    "sources": [{"latestOffset": '{"confirmed": 40, "held": 3, "lag": 9, "ahead": 1, "lost": 0}'}],
}


def test_a_spark_query_is_read_from_its_own_metrics() -> None:
    tasks, queries = parse_figures(render(spark_families([PROGRESS])).decode())
    assert tasks == {}
    row = query_row("here:1", "orders", queries["orders"])
    assert (row.micro_batch, row.duration_ms, row.input_rate) == (7, 250, 12.5)
    assert (row.lag, row.held, row.ahead, row.confirmed, row.lost, row.delivered) == (9, 3, 1, 40, 0, None)


def test_a_worker_is_read_over_http_and_one_that_is_gone_says_so() -> None:
    metrics = {"mail.send": TaskMetrics(succeeded=5, failed=2, running=1, run_seconds=3.0)}
    bounds = [1.0]
    metrics["mail.send"].run_seconds_counts[:] = [4, 2]
    with MetricsServer("127.0.0.1", 0, lambda: worker_families(metrics, bounds, group="mailers")) as server:
        address = server.url.removeprefix("http://").removesuffix("/metrics")
        tasks, _ = parse_figures(read_process(address).metrics)
    row = worker_row(address, "mailers", "mail.send", tasks["mailers", "mail.send"])
    assert (row.succeeded, row.failed, row.running, row.mean_run_s) == (5, 2, 1, 0.5)
    with pytest.raises(OSError, match="refused"):
        read_process(address)


def test_each_host_behind_a_name_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in compose and in Kubernetes, where a service with replicas has one name."""

    def resolve(host: str, port: int, family: int, kind: int) -> list[tuple[object, ...]]:
        assert (host, family) == ("worker", socket.AF_INET)
        return [(family, kind, 6, "", (one, port)) for one in ("127.0.0.2", "127.0.0.1", "127.0.0.2")]

    monkeypatch.setattr("headrace.web.processes.socket.getaddrinfo", resolve)
    assert addresses_of("worker:8081") == ["127.0.0.1:8081", "127.0.0.2:8081"]


def test_a_name_of_one_host_stays_as_it_was_given() -> None:
    for address in ("127.0.0.1:8081", "localhost:8081", "no-such-host.invalid:1", "http://127.0.0.1:1"):
        assert addresses_of(address) == [address]


RUN = RunningRecord("emails", 0, 17, attempt=2, seconds=3.5)
STATUS = {"group": "mailers", "tasks": {"mail.send": {"state": "running", "runs_now": [asdict(RUN)]}}}


def test_what_a_worker_runs_now_is_read_from_its_status() -> None:
    metrics = {"mail.send": TaskMetrics(running=1)}
    families = partial(worker_families, metrics, RUN_SECONDS_BOUNDS, group="mailers")
    with MetricsServer("127.0.0.1", 0, families, lambda: STATUS) as server:
        address = server.url.removeprefix("http://").removesuffix("/metrics")
        [run] = read_process(address).runs
    assert (run.address, run.group_id, run.task) == (address, "mailers", "mail.send")
    assert (run.topic, run.partition, run.offset, run.attempt, run.seconds) == ("emails", 0, 17, 2, 3.5)


def test_several_queues_of_one_process_are_read() -> None:
    both = {"queues": [STATUS, {**STATUS, "group": "others"}]}
    assert [run.group_id for run in parse_runs("here:1", json.dumps(both).encode())] == ["mailers", "others"]


@pytest.mark.parametrize("status", [[], {"tasks": 7}, {"tasks": {"x": {"runs_now": [{}]}}}], ids=str)
def test_a_status_that_cannot_be_read_leaves_the_figures(status: object) -> None:
    families = partial(worker_families, {"mail.send": TaskMetrics()}, RUN_SECONDS_BOUNDS, group="mailers")
    with MetricsServer("127.0.0.1", 0, families, lambda: status) as server:
        found = read_process(server.url.removeprefix("http://").removesuffix("/metrics"))
    assert found.runs == []
    assert "headrace_worker_received" in found.metrics
