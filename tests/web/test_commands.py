"""`headrace serve --http` and `headrace web` as a person runs them: what they print, how they end, what they refuse."""

import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from headrace import Broker

WAIT_S = 60
MODULE = """
from headrace import Queue

queue = Queue("localhost:1", group_id="mailers")

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
    assert "16 characters or more" in said
