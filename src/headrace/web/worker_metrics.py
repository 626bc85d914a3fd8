"""A worker's numbers for Prometheus: `headrace worker --http HOST:PORT` serves them, and `/healthz`.

`/api/v1/worker` has the same numbers as JSON, with the state of each task.

This package may not import the worker, so it says by a protocol what it needs of its numbers.
"""

import json
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Protocol, Self

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric

from headrace.web.exposition import CONTENT_TYPE, render


class TaskNumbers(Protocol):
    """Of one task; see headrace.worker.metrics."""

    @property
    def run_seconds(self) -> float: ...
    @property
    def run_seconds_counts(self) -> Sequence[int]: ...


COUNTERS: dict[str, str] = {
    "received": "Deliveries received. A record that is delivered again counts again.",
    "succeeded": "Records that succeeded and whose acknowledgement the broker has confirmed.",
    "failed": "Runs that ended with an exception, asked for another try, or ran out of time.",
    "retried": "Records put aside for another try.",
    "scheduled": "Records that were scheduled for another try, because the wait is longer than `hold_max`.",
    "rejected": "Records given up because the function raised Reject.",
    "unreadable": "Records given up because their value could not be decoded.",
    "dead_lettered": "Records whose copy is in the dead-letter topic.",
    "discarded": "Records given up while there was no dead-letter topic.",
    "requeued": "Records on their last delivery that were replaced by a copy.",
    "duplicates": "Records of a task with `once=` that were accepted without a run, because they were finished before.",
    "released": "Records released to the group.",
    "lost": "Deliveries whose lock ended before they were settled.",
    "timed_out": "Runs that exceeded the timeout of their task.",
    "abandoned": "Runs that could not be stopped when they should have been.",
    "pauses": "How often the task was paused, because everything failed.",
}
GAUGES: dict[str, str] = {
    "running": "Runs under way.",
    "waiting": "Records that wait for another try.",
    "held": "Records whose locks the worker holds.",
    "stuck": "Held records that keep failing or cannot be read, without a dead-letter topic.",
    "paused": "1 while the task is paused, because everything failed.",
}
RUN_SECONDS = "headrace_worker_run_seconds"
RUN_SECONDS_HELP = "How long runs took."


def worker_families(
    metrics: Mapping[str, TaskNumbers], bounds: Sequence[float], *, group: str
) -> Iterator[Metric]:
    """`bounds` are the upper bounds of the run times' buckets; one more bucket takes what is longer."""
    labels = ["group", "task"]
    for name, meaning in COUNTERS.items():
        counter = CounterMetricFamily(f"headrace_worker_{name}", meaning, labels=labels)
        for task, numbers in metrics.items():
            counter.add_metric([group, task], getattr(numbers, name))
        yield counter
    for name, meaning in GAUGES.items():
        gauge = GaugeMetricFamily(f"headrace_worker_{name}", meaning, labels=labels)
        for task, numbers in metrics.items():
            gauge.add_metric([group, task], getattr(numbers, name))
        yield gauge
    times = HistogramMetricFamily(RUN_SECONDS, RUN_SECONDS_HELP, labels=labels)
    for task, numbers in metrics.items():
        times.add_metric([group, task], buckets=_buckets(numbers, bounds), sum_value=numbers.run_seconds)
    yield times


def _buckets(numbers: TaskNumbers, bounds: Sequence[float]) -> list[tuple[str, float]]:
    total = 0
    buckets = []
    for bound, count in zip((*bounds, float("inf")), numbers.run_seconds_counts, strict=True):
        total += count
        buckets.append(("+Inf" if bound == float("inf") else f"{bound:g}", float(total)))
    return buckets


class MetricsServer:
    """`/metrics` and `/healthz` on a thread of its own, for a process that is no web server."""

    def __init__(
        self,
        host: str,
        port: int,
        collect: Callable[[], Iterable[Metric]],
        status: Callable[[], object] = dict,
    ) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                if self.path == "/healthz":
                    self._answer(200, "text/plain; charset=utf-8", b"ok\n")
                elif self.path.partition("?")[0] == "/metrics":
                    self._answer(200, CONTENT_TYPE, render(collect()))
                elif self.path == "/api/v1/worker":
                    self._answer(200, "application/json", json.dumps(status()).encode())
                else:
                    text = b"here are /metrics, /api/v1/worker and /healthz\n"
                    self._answer(404, "text/plain; charset=utf-8", text)

            def _answer(self, status: int, kind: str, body: bytes) -> None:
                self.send_response(status)
                self.send_header("content-type", kind)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """Scrapes are no news."""

        self._server = ThreadingHTTPServer((host, port), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="headrace-metrics", daemon=True
        )

    @property
    def url(self) -> str:
        host, port = self._server.server_address[:2]
        return f"http://{host!s}:{port}/metrics"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
