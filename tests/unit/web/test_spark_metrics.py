"""Numbers of streaming queries, from the progress that Spark reports."""

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from headrace.web.exposition import render
from headrace.web.spark_metrics import COUNTERS, GAUGES, serve_metrics, spark_families

DRIVER = Path(__file__).resolve().parents[3] / "src" / "headrace" / "spark" / "driver.py"
REPORT = {
    "lag": 7, "held": 3, "ahead": 0, "unconfirmed": 0, "delivered": 100, "redelivered": 2, "confirmed": 90,
    "refused": 0, "lost": 1, "released": 4, "rejected": 5, "member": "m1",
}  # fmt: skip
PROGRESS: dict[str, Any] = {
    "id": "0f9c",
    "name": "orders",
    "batchId": 12,
    "inputRowsPerSecond": 50.5,
    "processedRowsPerSecond": None,
    "batchDuration": 310,
    "sources": [
        {"description": "another", "latestOffset": '{"orders":{"0":5}}'},
        {"description": "headrace", "latestOffset": json.dumps(REPORT)},
    ],
}


@dataclass
class Query:
    lastProgress: dict[str, Any] | None  # noqa: N815


@dataclass
class Streams:
    active: list[Query] = field(default_factory=list)


@dataclass
class Session:
    streams: Streams = field(default_factory=Streams)


def test_what_the_source_reports_becomes_metrics_by_query() -> None:
    text = render(spark_families([PROGRESS])).decode()
    for line in (
        'headrace_spark_lag{query="orders"} 7.0',
        'headrace_spark_confirmed_total{query="orders"} 90.0',
        'headrace_spark_released_total{query="orders"} 4.0',
        'headrace_spark_rejected_total{query="orders"} 5.0',
        'headrace_spark_micro_batch{query="orders"} 12.0',
        'headrace_spark_input_rows_per_second{query="orders"} 50.5',
        'headrace_spark_micro_batch_duration_ms{query="orders"} 310.0',
    ):
        assert line in text.splitlines()
    assert "processed_rows_per_second{" not in text


def test_every_number_that_the_source_reports_has_a_metric() -> None:
    code = DRIVER.read_text()
    report = code[code.index("def report") :].partition("}")[0]
    assert set(re.findall(r'"(\w+)":', report)) == {*GAUGES, *COUNTERS, "member"} == set(REPORT)


@pytest.mark.parametrize("offset", [None, "no JSON", "[]", '{"orders": {"0": 5}}', 7])
def test_other_sources_are_left_out(offset: object) -> None:
    progress = {**PROGRESS, "sources": [{"latestOffset": offset}]}
    assert 'query="' not in render(spark_families([progress])).decode()


def test_the_sources_of_one_query_are_added_up() -> None:
    second = {"description": "headrace", "latestOffset": json.dumps({**REPORT, "lag": None, "held": 10})}
    progress = {**PROGRESS, "sources": [*PROGRESS["sources"], second]}
    lines = render(spark_families([progress])).decode().splitlines()
    assert [line for line in lines if line.startswith(("headrace_spark_lag{", "headrace_spark_held{"))] == [
        'headrace_spark_lag{query="orders"} 7.0',
        'headrace_spark_held{query="orders"} 13.0',
    ]
    assert lines.count('headrace_spark_micro_batch{query="orders"} 12.0') == 1


def test_active_queries_are_served_and_those_without_progress_are_not() -> None:
    session = Session(Streams([Query(PROGRESS), Query(None)]))
    with serve_metrics(session, "127.0.0.1:0") as server:
        assert 'headrace_spark_held{query="orders"} 3.0' in httpx.get(server.url).text


def test_an_address_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="must be HOST:PORT, such as localhost:9108, got '9108'"):
        serve_metrics(Session(), "9108")
