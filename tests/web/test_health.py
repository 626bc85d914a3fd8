"""Probes and metrics, and a dashboard that outlives its cluster."""

import asyncio
import logging
import socket
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from typer.testing import CliRunner

from headrace import Broker
from headrace.base.properties import parse_properties
from headrace.broker.settings.access_table import STANDARD_AUTHORIZER
from headrace.cli.app import app
from headrace.client.errors import BrokerNotAvailableError
from headrace.client.settings import ClientSettings
from headrace.web.embedded import EmbeddedView
from headrace.web.options import WebOptions
from headrace.web.server import WebServer
from headrace.web.slow_sampler import SlowFacts, SlowSampler
from headrace.web.source import open_source
from tests.conformance.share.share_client import start_at
from tests.conformance.steps import now_ms, wait_for
from tests.web.conftest import DEAD, KITCHEN, ORDERS, RECORDS, World

SECURED = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
    "sasl.enabled.mechanisms": "SCRAM-SHA-256",
    "authorizer.class.name": STANDARD_AUTHORIZER,
    "super.users": "User:admin",
}


def test_a_dashboard_that_sees_its_cluster_is_ready(world: World) -> None:
    assert (world.http.get("/healthz").text, world.http.get("/readyz").text) == ("ok\n", "ready\n")


def test_without_its_cluster_it_is_not_ready_but_still_shows_what_it_saw(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.serve_orders()
    caplog.set_level(logging.CRITICAL, "headrace")
    world.broker.stop()
    answer = wait_for(lambda: found if (found := world.http.get("/readyz")).status_code == 503 else None)
    assert "not ready" in answer.text
    assert world.http.get("/healthz").status_code == 200
    page = world.http.get("/")
    assert (page.status_code, ORDERS in page.text) == (200, True)
    wait_for(lambda: "The cluster does not respond" in world.http.get("/").text)
    assert "<dd>down<small>since " in world.http.get("/").text  # a word that fits into the tile


def test_metrics_are_readable_by_prometheus_and_hold_what_happened(world: World) -> None:
    world.serve_orders()
    answer = world.http.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    found = {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }
    share = (("group", KITCHEN), ("partition", "0"), ("topic", ORDERS))
    assert found["kafka_server_sharepartitionmetrics_inflightmessagecount", share] == 12
    accepted = (("ack_type", "Accept"), ("group", KITCHEN))
    assert found["kafka_server_sharegroupmetrics_recordacknowledgements_total", accepted] == 3
    assert found["kafka_server_brokertopicmetrics_messagesin_total", (("topic", ORDERS),)] == 20
    assert found["headrace_group_lag", (("group", KITCHEN), ("type", "share"))] == 16
    assert found["headrace_brokers", ()] == 1
    assert found["headrace_share_partition_window_limit", share] == 2000
    assert 0 <= found["headrace_group_oldest_seconds", (("group", KITCHEN),)] < 600
    assert found["headrace_dead_letters_waiting", (("topic", DEAD),)] == 1
    assert found["headrace_topic_bytes", (("topic", ORDERS),)] > 0
    assert found["kafka_server_brokertopicmetrics_bytesout_total", (("topic", ORDERS),)] > 0
    assert found["kafka_network_requestmetrics_totaltimems_count", (("request", "ShareFetch"),)] > 0
    assert found["kafka_server_socket_server_metrics_connection_count", ()] > 0
    assert found["process_resident_memory_bytes", ()] > 0
    assert found["process_open_fds", ()] > 0


def test_a_group_that_has_settled_everything_has_no_oldest_record(world: World) -> None:
    world.serve_orders()
    start_at(world.wire, "half-done", ORDERS, {0: 12})
    start_at(world.wire, "done", ORDERS, {0: RECORDS, 1: 0})
    oldest = asyncio.run(EmbeddedView(world.broker).oldest())
    assert set(oldest) == {KITCHEN, "half-done"}
    assert oldest[KITCHEN] <= oldest["half-done"] <= now_ms()


def test_a_foreign_kafka_tells_the_same_ages_and_sizes(world: World) -> None:
    world.serve_orders()

    async def look() -> tuple[SlowFacts, SlowFacts]:
        settings = ClientSettings.parse(bootstrap_servers=world.broker.bootstrap_servers)
        facts = []
        for detail in (EmbeddedView(world.broker), None):
            async with open_source(settings, detail) as source:
                sampler = SlowSampler(source)
                facts.append(await sampler.facts())
                await sampler.close()
        return facts[0], facts[1]

    inside, outside = asyncio.run(look())
    assert outside.oldest == inside.oldest != {}
    assert outside.waiting == inside.waiting == {DEAD: 1}
    assert outside.topic_bytes() == inside.topic_bytes()


def test_a_permission_that_is_missing_takes_its_own_metrics_and_is_named_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    users = {"admin": "admins secret", "viewer": "viewers secret"}
    logins = {name: tmp_path / f"{name}.properties" for name in users}

    def run(*arguments: str) -> None:
        result = CliRunner().invoke(app, [*arguments, "--command-config", str(logins["admin"])])
        assert result.exit_code == 0, result.output

    def allow(*rights: str) -> None:
        run("acl", "add", "--allow", "User:viewer", *rights)

    async def look(times: int) -> SlowFacts:
        async with open_source(
            ClientSettings.parse(parse_properties(logins["viewer"].read_text()))
        ) as source:
            for _ in range(times):
                sampler = SlowSampler(source)
                facts = await sampler.facts()
                await sampler.close()
        return facts

    with Broker(settings=SECURED, users=users) as broker:
        for name, password in users.items():
            logins[name].write_text(
                f"bootstrap.servers={broker.bootstrap_servers}\nsecurity.protocol=SASL_PLAINTEXT\n"
                f"sasl.mechanism=SCRAM-SHA-256\nsasl.username={name}\nsasl.password={password}\n"
            )
        run("topic", "create", ORDERS)
        run("produce", ORDERS, "--perf", "--count", "3", "--size", "5")
        for group, dead in ((KITCHEN, DEAD), ("private", "dlq.private")):
            run("topic", "create", dead, "--config", "errors.deadletterqueue.group.enable=true")
            run("group", "config", "set", group, f"errors.deadletterqueue.topic.name={dead}")
            run("consume", ORDERS, "-g", group, "--from-beginning", "--max", "2", "--reject")
        allow("-o", "describe", "-o", "describe_configs", "--topic", "*", "--group", "*")
        allow("-o", "read", "--topic", ORDERS, "--topic", DEAD)
        caplog.set_level(logging.WARNING, "headrace")
        facts = asyncio.run(look(times=2))
        assert (sorted(facts.oldest), facts.waiting, facts.disks) == ([KITCHEN, "private"], {DEAD: 2}, ())
        letters, disks = sorted(one.getMessage() for one in caplog.records if one.name == "headrace.web")
        assert "headrace_disk_free_bytes" in disks
        assert disks.endswith("headrace acl add --allow User:NAME --operation describe --cluster")
        assert "headrace_dead_letters_waiting" in letters
        assert letters.endswith("--operation read --topic dlq.private")
        allow("-o", "describe", "--cluster")
        allow("-o", "read", "--topic", "dlq.private")
        facts = asyncio.run(look(times=1))
        assert facts.waiting == {DEAD: 2, "dlq.private": 2}
        assert facts.topic_bytes()[ORDERS] > 0


def test_a_cluster_that_is_not_there_is_an_error_at_the_start() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    settings = ClientSettings.parse(bootstrap_servers=f"127.0.0.1:{port}", default_api_timeout_ms=300)
    with pytest.raises(BrokerNotAvailableError, match=str(port)):
        WebServer(settings, WebOptions()).start()


def test_a_port_in_use_is_an_error_with_the_cure() -> None:
    with Broker() as broker, socket.create_server(("127.0.0.1", 0)) as taken:
        settings = ClientSettings.parse(bootstrap_servers=broker.bootstrap_servers)
        with pytest.raises(OSError, match="another program listens there"):
            WebServer(settings, WebOptions(port=taken.getsockname()[1])).start()


def test_stopping_ends_watched_pages_at_once(world: World) -> None:
    with world.http.stream("GET", "/live/") as stream:
        lines = stream.iter_lines()
        next(lines)
        world.web.stop()
        assert list(lines)[-1] == ""
    world.web.stop()
