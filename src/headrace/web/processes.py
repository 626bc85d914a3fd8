"""Workers and Spark queries, from their own `/metrics`: tasks and micro-batches as they run.

What a worker runs at the moment is in its `/api/v1/worker`. `headrace worker --http` and `serve_metrics` of a Spark
program export these figures. The dashboard reads the addresses that it was given, when somebody looks, and says which
of them do not respond. Where a name stands for several hosts, as that of a service with replicas does, each is read.
"""

import asyncio
import socket
import time
import urllib.request
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import msgspec
from prometheus_client.parser import text_string_to_metric_families

from headrace.broker.addresses import parse_address
from headrace.web.history import Key
from headrace.web.model import NoParameters, ProcessesPage, QueryRow, RunRow, WorkerRow
from headrace.web.site import Site

FRESH_S = 1.0
WAIT_S_MAX = 2.0
BYTES_MAX = 4 << 20
RUNS_MAX = 200
WORKER, SPARK = "headrace_worker_", "headrace_spark_"
Figures = dict[str, float]


async def processes_page(site: Site, _: NoParameters) -> ProcessesPage:
    return await site.cached(("processes",), FRESH_S, lambda: _look(site))


async def _look(site: Site) -> ProcessesPage:
    named = await asyncio.gather(*(asyncio.to_thread(addresses_of, one) for one in site.options.processes))
    addresses = [address for addresses in named for address in addresses]
    found = await asyncio.gather(
        *(asyncio.to_thread(read_process, address) for address in addresses), return_exceptions=True
    )
    workers: list[WorkerRow] = []
    runs: list[RunRow] = []
    queries: list[QueryRow] = []
    silent = []
    for address, process in zip(addresses, found, strict=True):
        if isinstance(process, BaseException):
            silent.append(f"{address} does not respond: {getattr(process, 'reason', None) or process}")
            continue
        tasks, spark = parse_figures(process.metrics)
        runs += process.runs
        workers += [worker_row(address, *key, figures) for key, figures in tasks.items()]
        queries += [query_row(address, query, figures) for query, figures in spark.items()]
    return ProcessesPage(
        is_set_up=bool(site.options.processes),
        workers=tuple(_with_rates(site, workers)),
        runs=tuple(sorted(runs, key=lambda one: -one.seconds)[:RUNS_MAX]),
        queries=tuple(queries),
        silent=tuple(silent),
    )


def addresses_of(address: str) -> list[str]:
    """The address itself; or, where the name stands for several hosts (the replicas of a service), that of each."""
    if "://" in address:
        return [address]
    try:
        host, port = parse_address(address)
        found = socket.getaddrinfo(host, port, socket.AF_INET, socket.SOCK_STREAM)
    except (OSError, ValueError):  # reading it says what is wrong
        return [address]
    hosts = sorted({str(where[0]) for *_, where in found})
    return [f"{one}:{port}" for one in hosts] if len(hosts) > 1 else [address]


class ProcessFacts(NamedTuple):
    metrics: str
    runs: list[RunRow]


def read_process(address: str) -> ProcessFacts:
    metrics = _read(address, "/metrics").decode(errors="replace")
    if WORKER not in metrics:
        return ProcessFacts(metrics, [])
    try:
        return ProcessFacts(metrics, parse_runs(address, _read(address, "/api/v1/worker")))
    except (OSError, msgspec.DecodeError):  # an older worker, or another program: the figures are enough
        return ProcessFacts(metrics, [])


def _read(address: str, path: str) -> bytes:
    base = address if "://" in address else f"http://{address}"
    with urllib.request.urlopen(f"{base.rstrip('/')}{path}", timeout=WAIT_S_MAX) as answer:
        found: bytes = answer.read(BYTES_MAX)
    return found


class _RunStatus(msgspec.Struct):
    topic: str
    partition: int
    offset: int
    attempt: int
    seconds: float


class _TaskStatus(msgspec.Struct):
    runs_now: list[_RunStatus] = []


class _WorkerStatus(msgspec.Struct):
    """Of one queue, or of several in one process."""

    group: str = ""
    tasks: dict[str, _TaskStatus] = {}
    queues: "list[_WorkerStatus]" = []


def parse_runs(address: str, text: bytes) -> list[RunRow]:
    """Raises msgspec.DecodeError for what is no status of a worker."""
    status = msgspec.json.decode(text, type=_WorkerStatus)
    return [
        RunRow(
            address=address,
            group_id=queue.group,
            task=name,
            topic=run.topic,
            partition=run.partition,
            offset=run.offset,
            attempt=run.attempt,
            seconds=run.seconds,
        )
        for queue in (status, *status.queues)
        for name, task in queue.tasks.items()
        for run in task.runs_now
    ]


def parse_figures(text: str) -> tuple[dict[tuple[str, str], Figures], dict[str, Figures]]:
    """By group and task, and by query. What is not ours is left out."""
    tasks: dict[tuple[str, str], Figures] = {}
    queries: dict[str, Figures] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name.startswith(WORKER) and "le" not in sample.labels:
                key = sample.labels.get("group", ""), sample.labels.get("task", "")
                name = sample.name.removeprefix(WORKER).removesuffix("_total")
                tasks.setdefault(key, {})[name] = sample.value
            elif sample.name.startswith(SPARK):
                name = sample.name.removeprefix(SPARK).removesuffix("_total")
                queries.setdefault(sample.labels.get("query", ""), {})[name] = sample.value
    return tasks, queries


def worker_row(address: str, group_id: str, task: str, figures: Mapping[str, float]) -> WorkerRow:
    runs = figures.get("run_seconds_count", 0)
    return WorkerRow(
        address=address,
        group_id=group_id,
        task=task,
        running=int(figures.get("running", 0)),
        waiting=int(figures.get("waiting", 0)),
        held=int(figures.get("held", 0)),
        stuck=int(figures.get("stuck", 0)),
        is_paused=bool(figures.get("paused", 0)),
        succeeded=int(figures.get("succeeded", 0)),
        failed=int(figures.get("failed", 0)),
        dead_lettered=int(figures.get("dead_lettered", 0)),
        lost=int(figures.get("lost", 0)),
        mean_run_s=figures.get("run_seconds_sum", 0) / runs if runs else None,
        rate=None,
    )


def query_row(address: str, query: str, figures: Mapping[str, float]) -> QueryRow:
    def whole(name: str) -> int | None:
        value = figures.get(name)
        return None if value is None else int(value)

    return QueryRow(
        address=address,
        query=query,
        micro_batch=whole("micro_batch"),
        duration_ms=whole("micro_batch_duration_ms"),
        input_rate=figures.get("input_rows_per_second"),
        processed_rate=figures.get("processed_rows_per_second"),
        lag=whole("lag"),
        held=whole("held"),
        ahead=whole("ahead"),
        unconfirmed=whole("unconfirmed"),
        delivered=whole("delivered"),
        confirmed=whole("confirmed"),
        redelivered=whole("redelivered"),
        released=whole("released"),
        rejected=whole("rejected"),
        refused=whole("refused"),
        lost=whole("lost"),
    )


def _with_rates(site: Site, workers: list[WorkerRow]) -> list[WorkerRow]:
    counts: dict[Key, float] = {
        (one.address, one.group_id, one.task): float(one.succeeded) for one in workers
    }
    rates = site.process_rates.update(time.time(), counts)
    return [replace(one, rate=rates.get((one.address, one.group_id, one.task))) for one in workers]
