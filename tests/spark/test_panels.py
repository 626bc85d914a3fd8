"""Every panel of the Grafana dashboard under deploy/ has data while brokers, workers and Spark are at work.

A real Prometheus scrapes a broker with its dashboard, a worker and a Spark driver, and answers each panel's queries.
"""

import asyncio
import json
import logging
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from pyspark.sql import SparkSession

from headrace import Admin, Broker, Producer, ShareConsumer
from headrace import Queue as TaskQueue
from headrace.client.settings import ClientSettings
from headrace.web.embedded import EmbeddedView
from headrace.web.options import WebOptions
from headrace.web.server import WebServer
from headrace.web.spark_metrics import serve_metrics
from headrace.web.worker_metrics import MetricsServer, worker_families
from headrace.wire.errors import KafkaError
from headrace.worker.metrics import RUN_SECONDS_BOUNDS
from tests.chaos.server_process import free_port
from tests.conformance.steps import wait_for

DASHBOARD = Path(__file__).resolve().parents[2] / "deploy" / "grafana" / "headrace-share-groups.json"
PANELS = json.loads(DASHBOARD.read_text())["panels"]
SETTINGS = {
    "errors.deadletterqueue.auto.create.topics.enable": "true",
    "group.share.min.record.lock.duration.ms": "1000",
}
WAIT_S = 300


@contextmanager
def prometheus(folder: Path, **targets: str) -> Iterator[httpx.Client]:
    """Scrapes each job's HOST:PORT every second; yields a client of its API."""
    config = folder / "prometheus.yml"
    jobs = [{"job_name": job, "static_configs": [{"targets": [target]}]} for job, target in targets.items()]
    config.write_text(yaml.safe_dump({"global": {"scrape_interval": "1s"}, "scrape_configs": jobs}))
    port = free_port()
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={config}",
                f"--storage.tsdb.path={folder / 'tsdb'}",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stdout=log,
            stderr=log,
        )
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30) as client:
            yield client
    finally:
        process.terminate()
        process.wait(30)


def has_data(client: httpx.Client, expression: str) -> bool:
    query = expression.replace("$__rate_interval", "30s").replace("$group", ".*")
    with suppress(httpx.TransportError):  # it starts
        answer = client.get("/api/v1/query", params={"query": query})
        assert answer.status_code in (200, 503), answer.text
        return answer.status_code == 200 and bool(answer.json()["data"]["result"])
    return False


class Load:
    """Whatever makes the metrics move, until the test ends."""

    def __init__(self, broker: Broker, folder: Path) -> None:
        self.broker = broker
        self.folder = folder
        self.ended = threading.Event()
        self._threads: list[threading.Thread] = []

    def prepare(self) -> None:
        with Admin(bootstrap_servers=self.broker.bootstrap_servers) as admin:
            for topic in ("orders", "mails", "mails.dead", "spark"):
                admin.create_topic(topic, partitions=2)
            for group in ("kitchen", "mailers", "spark"):
                admin.set_group_config(group, {"share.auto.offset.reset": "earliest"})
            admin.set_group_config(
                "kitchen",
                {
                    "errors.deadletterqueue.topic.name": "dlq.orders",
                    "share.record.lock.duration.ms": "1000",
                },
            )

    def run(self, work: Any) -> None:
        thread = threading.Thread(target=work)
        self._threads.append(thread)
        thread.start()

    def stop(self) -> None:
        self.ended.set()
        for thread in self._threads:
            thread.join(60)

    def produce(self) -> None:
        servers = self.broker.bootstrap_servers
        with Producer(bootstrap_servers=servers) as producer, Admin(bootstrap_servers=servers) as admin:
            for number in count():
                if self.ended.wait(0.1):
                    return
                for topic in ("orders", "mails", "spark"):
                    producer.send(topic, value=str(number).encode())
                producer.flush()
                with suppress(KafkaError):
                    admin.describe_share_group("nobody")

    def consume(self) -> None:
        """Accepts, releases and rejects, and lets some locks run out."""
        servers = self.broker.bootstrap_servers
        with ShareConsumer(
            bootstrap_servers=servers, group_id="kitchen", share_acknowledgement_mode="explicit"
        ) as consumer:
            consumer.subscribe(["orders"])
            while not self.ended.is_set():
                for delivery in consumer.poll(0.5):
                    answer = (delivery.accept, delivery.release, delivery.reject, None)[delivery.offset % 4]
                    if answer is not None:
                        answer()
                    elif self.ended.wait(1.1):
                        return


@pytest.fixture
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Half of the mails fail, which the worker logs."""
    caplog.set_level(logging.CRITICAL, "headrace")


def mail_queue(servers: str) -> TaskQueue:
    queue = TaskQueue(servers, group_id="mailers")

    @queue.task("mails", dead_letter="mails.dead", retries=None)
    def send(body: bytes) -> None:
        if int(body) % 2:
            raise ValueError("no such address")

    return queue


@pytest.mark.needs_prometheus
@pytest.mark.timeout(420)
@pytest.mark.usefixtures("quiet")
def test_every_panel_has_data(spark: SparkSession, tmp_path: Path) -> None:
    with ExitStack() as closing:
        broker = closing.enter_context(Broker(data_dir=tmp_path / "data", settings=SETTINGS))
        servers = broker.bootstrap_servers
        load = Load(broker, tmp_path)
        load.prepare()
        closing.callback(load.stop)
        settings = ClientSettings.parse(bootstrap_servers=servers)
        web = closing.enter_context(WebServer(settings, WebOptions(sample_s=0.5), EmbeddedView(broker)))
        queue = mail_queue(servers)
        worker = closing.enter_context(
            MetricsServer(
                "127.0.0.1", 0, lambda: worker_families(queue.metrics(), RUN_SECONDS_BOUNDS, group="mailers")
            )
        )
        load.run(load.produce)
        load.run(load.consume)
        load.run(lambda: asyncio.run(queue.run_async()))
        closing.callback(queue.stop)
        query = (
            spark.readStream.format("kafka-share")
            .option("kafka.bootstrap.servers", servers)
            .option("subscribe", "spark")
            .option("kafka.group.id", "spark")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .load()
            .writeStream.format("parquet")
            .option("path", str(tmp_path / "out"))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .start()
        )
        closing.callback(query.stop)
        driver = closing.enter_context(serve_metrics(spark, "127.0.0.1:0"))
        addresses = {
            job: httpx.URL(url).netloc.decode()
            for job, url in (("broker", web.url), ("worker", worker.url), ("spark", driver.url))
        }
        client = closing.enter_context(prometheus(tmp_path, **addresses))
        missing = {panel["title"]: [one["expr"] for one in panel["targets"]] for panel in PANELS}

        def look() -> bool:
            for title, expressions in list(missing.items()):
                if any(has_data(client, expression) for expression in expressions):
                    del missing[title]
            return not missing

        try:
            wait_for(look, timeout_s=WAIT_S, every_s=0.5)
        except AssertionError:
            raise AssertionError(f"panels without data: {sorted(missing)}") from None
