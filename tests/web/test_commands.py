"""`headrace serve --http` and `headrace web` as a person runs them: what they print, how they end, what they refuse."""

import json
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest

from headrace import Broker, Producer, Queue
from headrace.web.spark_metrics import spark_families
from headrace.web.worker_metrics import MetricsServer
from tests.conformance.steps import wait_for

WAIT_S = 60
MODULE = """
import asyncio

from headrace import Queue

queue = Queue("localhost:1", group_id="mailers", start_from="earliest")

@queue.task("emails")
async def send(email: str) -> None: ...
"""


@contextmanager
def run(*arguments: str, cwd: Path | None = None) -> "Iterator[subprocess.Popen[str]]":
    command = [sys.executable, "-m", "headrace", *arguments]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=cwd
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def line(process: "subprocess.Popen[str]", beginning: str) -> str:
    assert process.stdout is not None
    said = process.stdout.readline()
    assert said.startswith(beginning), (said, process.stderr)
    return said.removeprefix(beginning).strip()


def end(process: "subprocess.Popen[str]", how: signal.Signals = signal.SIGTERM) -> str:
    process.send_signal(how)
    _, said = process.communicate(timeout=WAIT_S)
    assert process.returncode == 0, said
    return said


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


def test_serve_with_http_says_where_and_shows_its_own_broker() -> None:
    with run(
        "serve", "--listen", "127.0.0.1:0", "--data", ":memory:", "--http", "127.0.0.1:0", "--read-only"
    ) as process:
        address = line(process, "listening on ")
        url = line(process, "dashboard on ")
        overview = httpx.get(f"{url}/api/v1/overview").json()
        assert [broker["address"] for broker in overview["brokers"]] == [address]
        assert (overview["is_embedded"], overview["is_read_only"]) == (True, True)
        assert httpx.get(f"{url}/healthz").text == "ok\n"
        said = end(process, signal.SIGINT)
    assert "stopped clean=true" in said
    assert "Traceback" not in said


def check_schedule(bootstrap_servers: str, url: str) -> None:
    """What is scheduled can be seen and canceled."""
    with Queue(bootstrap_servers, group_id="mailers") as queue, httpx.Client(base_url=url) as http:
        one = queue.schedule("emails", "ada", delay=3600)
        page = "/api/v1/group/scheduled"
        assert [row["id"] for row in http.get(page, params={"group": "mailers"}).json()["records"]] == [
            one.id
        ]
        secret = {"x-csrf-token": http.get("/api/v1/session").json()["csrf_token"]}
        answer = http.post(f"{page}/cancel", json={"group": "mailers", "id": one.id}, headers=secret)
        assert answer.status_code == 200, answer.text
        assert queue.scheduled() == []


def test_serve_with_http_shows_what_is_scheduled() -> None:
    with run("serve", "--listen", "127.0.0.1:0", "--data", ":memory:", "--http", "127.0.0.1:0") as process:
        address = line(process, "listening on ")
        check_schedule(address, line(process, "dashboard on "))
        assert "POST /api/v1/group/scheduled/cancel" in end(process)


def test_web_shows_what_is_scheduled(broker: Broker) -> None:
    with run("web", "-b", broker.bootstrap_servers, "--listen", "127.0.0.1:0") as process:
        check_schedule(broker.bootstrap_servers, line(process, "dashboard on "))
        assert "POST /api/v1/group/scheduled/cancel" in end(process)


def test_web_shows_a_cluster_it_is_pointed_at(broker: Broker) -> None:
    with run("web", "-b", broker.bootstrap_servers, "--listen", "127.0.0.1:0") as process:
        url = line(process, "dashboard on ")
        overview = httpx.get(f"{url}/api/v1/overview").json()
        assert [one["address"] for one in overview["brokers"]] == [broker.bootstrap_servers]
        assert overview["is_embedded"] is False
        assert end(process) == ""


def test_beyond_loopback_a_token_is_made_up_printed_and_needed(broker: Broker) -> None:
    with run("web", "-b", broker.bootstrap_servers, "--listen", "0.0.0.0:0") as process:
        url = line(process, "dashboard on ")
        match = re.fullmatch(r"http://[^/]+:(\d+)/\?token=(\S{32})", url)
        assert match is not None
        here = f"http://127.0.0.1:{match[1]}/api/v1/overview"
        assert httpx.get(here).status_code == 401
        assert httpx.get(here, headers={"authorization": f"Bearer {match[2]}"}).status_code == 200
        end(process)


def test_a_token_that_was_given_is_not_printed(broker: Broker) -> None:
    token = "given-by-the-operator"
    with run("web", "-b", broker.bootstrap_servers, "--listen", "0.0.0.0:0", "--token", token) as process:
        assert token not in line(process, "dashboard on ")
        end(process)


def refusal(*arguments: str) -> str:
    with run(*arguments) as process:
        out, err = process.communicate(timeout=WAIT_S)
    assert (process.returncode, out) == (1, ""), err
    return err


def test_a_cluster_that_is_not_there_is_named_with_the_cure() -> None:
    said = refusal("web", "-b", "127.0.0.1:1", "--listen", "127.0.0.1:0")
    assert "no broker can be reached at 127.0.0.1:1" in said
    assert "-b HOST:PORT" in said


def test_a_port_in_use_is_named_with_the_cure(broker: Broker) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        expected = f"the dashboard cannot listen on {address}: another program listens there"
        assert expected in refusal("web", "-b", broker.bootstrap_servers, "--listen", address)
        said = refusal("serve", "--listen", "127.0.0.1:0", "--data", ":memory:", "--http", address)
        assert expected in said
        assert "Traceback" not in said


@pytest.mark.parametrize("wrong", [("--http", "nowhere"), ("--http", "127.0.0.1:0", "--watch", "nowhere")])
def test_an_address_that_is_none_is_refused_before_the_broker_starts(
    wrong: tuple[str, ...], tmp_path: Path
) -> None:
    data = tmp_path / "data"
    said = refusal("serve", "--listen", "127.0.0.1:0", "--data", str(data), *wrong)
    assert "'nowhere' is not an address HOST:PORT" in said
    assert not data.exists()


def test_a_process_to_watch_needs_an_address(broker: Broker) -> None:
    said = refusal("web", "-b", broker.bootstrap_servers, "--listen", "127.0.0.1:0", "--watch", "nowhere")
    assert "'nowhere' is not an address HOST:PORT" in said


def test_a_worker_shows_its_numbers_while_it_runs(broker: Broker, tmp_path: Path) -> None:
    (tmp_path / "mail.py").write_text(MODULE)
    broker.call(lambda: broker.core.topics.create("emails", partitions=1, configs={}))
    with run(
        "worker", "mail:queue", "-b", broker.bootstrap_servers, "--http", "127.0.0.1:0", cwd=tmp_path
    ) as process:
        url = line(process, "metrics on ")
        line(process, "working for group mailers")
        assert 'headrace_worker_received_total{group="mailers",task="mail.send"} 0.0' in httpx.get(url).text
        end(process)


def test_the_dashboard_shows_what_a_worker_runs_now(broker: Broker, tmp_path: Path) -> None:
    (tmp_path / "mail.py").write_text(MODULE.replace("...", "await asyncio.sleep(3600)", 1))
    broker.call(lambda: broker.core.topics.create("emails", partitions=1, configs={}))
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send("emails", b'"ada"').result()
    at = ("-b", broker.bootstrap_servers)
    with (
        run("worker", "mail:queue", *at, "--http", "127.0.0.1:0", cwd=tmp_path) as worker,
        ExitStack() as closing,
    ):
        address = line(worker, "metrics on ").removeprefix("http://").removesuffix("/metrics")
        web = closing.enter_context(run("web", *at, "--listen", "127.0.0.1:0", "--watch", address))
        url = line(web, "dashboard on ")

        def runs() -> list[dict[str, object]]:
            found: list[dict[str, object]] = httpx.get(f"{url}/api/v1/processes").json()["runs"]
            return found

        assert wait_for(runs)
        [one] = runs()
        assert (one["task"], one["topic"], one["offset"], one["attempt"]) == ("mail.send", "emails", 0, 1)
        assert one["address"] == address
        page = httpx.get(f"{url}/processes").text
        assert "Running now" in page
        assert "emails-0@0" in page


def test_the_dashboard_shows_what_a_spark_query_does_with_its_records() -> None:
    reported = {
        "lag": 7, "held": 3, "ahead": 2, "unconfirmed": 1, "delivered": 100, "redelivered": 2, "confirmed": 90,
        "refused": 0, "lost": 1, "released": 41, "rejected": 53,
    }  # fmt: skip
    progress = {"name": "fraud", "batchId": 12, "sources": [{"latestOffset": json.dumps(reported)}]}
    served = ("serve", "--listen", "127.0.0.1:0", "--data", ":memory:", "--http", "127.0.0.1:0")
    with MetricsServer("127.0.0.1", 0, lambda: spark_families([progress])) as driver:
        address = driver.url.removeprefix("http://").removesuffix("/metrics")
        with run(*served, "--watch", address) as process:
            line(process, "listening on ")
            url = line(process, "dashboard on ")
            [query] = httpx.get(f"{url}/api/v1/processes").json()["queries"]
            page = httpx.get(f"{url}/processes").text
            end(process)
    assert (query["query"], query["micro_batch"]) == ("fraud", 12)
    assert {name: query[name] for name in reported} == reported
    heads, cells = (
        re.findall(pattern, page.partition("Spark queries</h2>")[2])
        for pattern in (r"<th scope=\"col\"[^>]*>([^<]+)", r"<td[^>]*>([^<]*)")
    )
    shown = dict(zip(heads[1:], cells, strict=True))  # the query's name is a head of its row
    names = ("Micro-batch", "Lag", "Held", "Ahead", "Released", "Rejected")
    assert [shown[name] for name in names] == ["12", "7", "3", "2", "41", "53"]


def test_serve_watches_workers_too() -> None:
    served = ("serve", "--listen", "127.0.0.1:0", "--data", ":memory:", "--http", "127.0.0.1:0")
    with run(*served, "--watch", "127.0.0.1:1") as process:
        line(process, "listening on ")
        url = line(process, "dashboard on ")
        [silent] = httpx.get(f"{url}/api/v1/processes").json()["silent"]
        assert "127.0.0.1:1 does not respond" in silent
        end(process)


def test_a_worker_whose_metrics_have_no_place_says_so(broker: Broker, tmp_path: Path) -> None:
    (tmp_path / "mail.py").write_text(MODULE)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with run(
            "worker", "mail:queue", "-b", broker.bootstrap_servers, "--http", address, cwd=tmp_path
        ) as process:
            _, said = process.communicate(timeout=WAIT_S)
    assert (process.returncode, f"--http {address} cannot be used" in said) == (1, True)


def test_a_short_token_is_refused(broker: Broker) -> None:
    said = refusal("web", "-b", broker.bootstrap_servers, "--listen", "127.0.0.1:0", "--token", "secret")
    assert "it has 6 characters; use 16 or more" in said


SECURED = """\
listeners=SASL_PLAINTEXT://127.0.0.1:0
advertised.listeners=SASL_PLAINTEXT://broker.example:9093
sasl.enabled.mechanisms=SCRAM-SHA-512
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:admin
"""
ADMIN = "SCRAM-SHA-512=[name=admin,password=admins-secret]"


def secured(tmp_path: Path, *more: str) -> tuple[str, ...]:
    config = tmp_path / "server.properties"
    config.write_text(SECURED)
    start = ("serve", "--config", str(config), "--data", ":memory:", "--add-scram", ADMIN)
    return (*start, "--http", "127.0.0.1:0", *more)


def test_the_dashboard_of_a_broker_that_knows_its_users_is_not_open_to_the_machine(tmp_path: Path) -> None:
    with run(*secured(tmp_path)) as process:
        line(process, "listening on ")
        url, _, token = line(process, "dashboard on ").partition("/?token=")
        assert len(token) >= 16
        assert httpx.get(f"{url}/api/v1/overview").status_code == 401
        answer = httpx.get(f"{url}/api/v1/overview", headers={"authorization": f"Bearer {token}"})
        assert answer.json()["error"] is None
        end(process)


def test_users_of_the_broker_log_in_to_its_dashboard(tmp_path: Path) -> None:
    with run(*secured(tmp_path, "--operator", "User:admin")) as process:
        line(process, "listening on ")
        url = line(process, "dashboard on ")
        with httpx.Client(base_url=url) as http:
            assert http.get("/api/v1/overview").status_code == 401
            http.post("/login", data={"name": "admin", "password": "admins-secret"})
            assert http.get("/api/v1/overview").json()["error"] is None
        said = end(process)
    assert "headrace.audit admin from 127.0.0.1: POST /login: 303" in said
    assert "admins-secret" not in said


def test_a_user_without_scram_credentials_is_named_at_the_start(tmp_path: Path) -> None:
    with run(*secured(tmp_path, "--operator", "User:admin", "--viewer", "zoe", "--viewer", "*")) as process:
        line(process, "listening on ")
        line(process, "dashboard on ")
        said = end(process)
    (warning,) = (text for text in said.splitlines() if "cannot log in to the dashboard" in text)
    assert "user zoe" in warning
    assert "headrace user add zoe" in warning


def test_web_cannot_check_passwords_without_sasl(broker: Broker) -> None:
    with run("web", "-b", broker.bootstrap_servers, "--listen", "127.0.0.1:0", "--viewer", "bob") as process:
        _, said = process.communicate(timeout=WAIT_S)
    assert process.returncode == 1
    assert "connect to a listener with SASL" in said
