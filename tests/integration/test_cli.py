"""The command as a person uses it: in a shell, with pipes, Ctrl+C, completion, a terminal; against `headrace serve`."""

import os
import pty
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from headrace import Admin, Broker, Producer, ShareConsumer
from headrace.cli.app import app
from headrace.cli.failures import Refused
from headrace.cli.state_live import live_state

WAIT_S = 60
SHORT = ("-X", "default.api.timeout.ms=1000", "-X", "socket.connection.setup.timeout.ms=500")
HEADRACE = [sys.executable, "-m", "headrace"]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        with Admin(bootstrap_servers=running.bootstrap_servers) as admin:
            admin.create_topic("orders", 2)
        yield running


def environment(broker: Broker) -> dict[str, str]:
    return os.environ | {"HEADRACE_BOOTSTRAP_SERVER": broker.bootstrap_servers, "NO_COLOR": "1"}


def run(broker: Broker, *arguments: str, given: str = "") -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [*HEADRACE, *arguments],
        input=given,
        capture_output=True,
        text=True,
        env=environment(broker),
        timeout=WAIT_S,
        check=False,
    )


@contextmanager
def started(broker: Broker, *arguments: str) -> "Iterator[subprocess.Popen[str]]":
    with subprocess.Popen(
        [*HEADRACE, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(broker),
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def paths(command: object, before: Sequence[str] = ()) -> Iterator[tuple[str, ...]]:
    """Every command there is, by the words one types."""
    for name, sub in getattr(command, "commands", {}).items():
        yield from paths(sub, (*before, name))
    if not hasattr(command, "commands"):
        yield tuple(before)


COMMANDS = list(paths(get_command(app)))


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_every_command_explains_itself_with_an_example(words: tuple[str, ...]) -> None:
    shown = CliRunner(env={"COLUMNS": "200", "NO_COLOR": "1"}).invoke(app, [*words, "--help"])
    assert shown.exit_code == 0
    assert f"headrace {' '.join(words)}" in shown.stdout.partition("Usage:")[2].partition("\n")[2]


def test_the_command_starts_without_what_only_some_commands_need() -> None:
    program = (
        "import sys, headrace.cli.app; "
        "print([n for n in ('aiokafka', 'asyncio', 'headrace.broker', 'headrace.client', 'headrace.worker', 'pyspark', "
        "'starlette') if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_lines_go_in_by_a_pipe_and_come_out_by_one(broker: Broker) -> None:
    sent = run(broker, "produce", "pipes", "--create", given="two coffees\na cake\n")
    assert (sent.returncode, sent.stdout, sent.stderr) == (0, "", "Produced 2 records to pipes.\n")
    taken = run(broker, "consume", "pipes", "-g", "pipes", "--from-beginning", "--max", "2")
    assert sorted(taken.stdout.splitlines()) == ["a cake", "two coffees"]
    assert taken.returncode == 0


def test_ctrl_c_ends_a_consumer_cleanly_with_everything_answered(broker: Broker) -> None:
    run(broker, "produce", "orders", given="one\n")
    with started(broker, "consume", "orders", "-g", "clean", "--from-beginning", "-f", "%s\\n") as process:
        assert process.stdout is not None
        assert process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=WAIT_S)
    assert process.returncode == 0
    assert "Processed a total of " in err
    assert "Traceback" not in err
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        assert admin.describe_share_group("clean").members == ()
        assert {one.lag for one in admin.share_group_offsets("clean").values()} <= {0, None}


@pytest.mark.parametrize("kind", [(), ("--consumer-group",)], ids=["share", "consumer"])
def test_sigterm_ends_a_consumer_that_waits(broker: Broker, kind: tuple[str, ...]) -> None:
    group = f"waits{len(kind)}"
    run(broker, "produce", "orders", given="one\n")
    with started(broker, "consume", "orders", "-g", group, "--from-beginning", *kind) as process:
        assert process.stdout is not None
        assert process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=WAIT_S)
    assert process.returncode == 0


def test_ctrl_c_ends_a_producer_after_what_was_typed_is_sent(broker: Broker) -> None:
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_topic("typed")
        with started(broker, "produce", "typed") as process:
            assert process.stdin is not None
            process.stdin.write("one\ntwo\n")
            process.stdin.flush()
            deadline = time.monotonic() + WAIT_S
            while not admin.describe_topics(["typed"], offsets=True)["typed"].partitions[0].end_offset:
                assert time.monotonic() < deadline
            process.send_signal(signal.SIGINT)
            process.wait(WAIT_S)
            assert process.stderr is not None
            err = process.stderr.read()
        assert (process.returncode, err) == (130, "Produced 2 records to typed.\n")


@pytest.mark.parametrize("kind", [(), ("--consumer-group",)], ids=["share", "consumer"])
def test_a_reader_that_has_seen_enough_ends_the_consumer(broker: Broker, kind: tuple[str, ...]) -> None:
    run(broker, "produce", "orders", "--perf", "--count", "100")
    arguments = ("consume", "orders", "-g", f"head{len(kind)}", "--from-beginning", *kind)
    with started(broker, *arguments) as process:
        assert process.stdout is not None
        assert process.stdout.readline()
        process.stdout.close()
        process.wait(WAIT_S)
        assert process.stderr is not None
        err = process.stderr.read()
    assert process.returncode == 0
    assert "rror" not in err


def test_where_no_broker_is_the_cure_is_told_at_once() -> None:
    done = subprocess.run(
        [*HEADRACE, "topic", "list", "-b", "127.0.0.1:1", "-X", "default.api.timeout.ms=600000"],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "headrace topic: no broker can be reached at 127.0.0.1:1 (connection refused).\n"
        "Start one with `headrace serve`, or give its address with -b HOST:PORT.\n"
    )


def test_a_broker_that_does_not_answer_is_told_in_two_lines() -> None:
    """Something else listens there: a client would wait, and try again, for its whole time."""
    import socket

    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        done = subprocess.run(
            [*HEADRACE, "group", "list", "-b", address, *SHORT],
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            check=False,
        )
    assert done.returncode == 1
    *warning, told = done.stderr.splitlines()
    assert told.startswith(f"headrace group: bootstrap.servers {address}: no broker could be reached")
    assert len(warning) <= 1


def test_a_producer_whose_broker_went_away_gives_up_in_time_and_says_how_much_is_open(tmp_path: Path) -> None:
    with ExitStack() as stack:
        with served(tmp_path) as (server, _), Admin(bootstrap_servers=server) as admin:
            admin.create_topic("orders")
            arguments = ["produce", "orders", "--perf", "--rate", "100", "-X", "delivery.timeout.ms=2000"]
            process = subprocess.Popen(
                [*HEADRACE, *arguments, "-b", server],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            stack.enter_context(process)
            stack.callback(process.kill)
            while not admin.describe_topics(["orders"], offsets=True)["orders"].partitions[0].end_offset:
                assert process.poll() is None
        _, err = process.communicate(timeout=WAIT_S)
    assert process.returncode == 1
    assert "for topic 'orders' not acknowledged" in err
    assert "not acknowledged within delivery.timeout.ms=2000" in err
    assert len(err.splitlines()) <= 2


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("headrace topic describe ord", "orders"),
        ("headrace topic del", "delete"),
        ("headrace cons", "consume"),
    ],
)
def test_the_shell_completes_commands_and_names(broker: Broker, words: str, expected: str) -> None:
    done = subprocess.run(
        HEADRACE,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
        env=environment(broker)
        | {
            "_HEADRACE_COMPLETE": "complete_bash",
            "COMP_WORDS": words,
            "COMP_CWORD": str(len(words.split()) - 1),
        },
    )
    assert expected in done.stdout.split()


def test_a_completion_without_a_broker_is_silent() -> None:
    done = subprocess.run(
        HEADRACE,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
        env=os.environ
        | {
            "HEADRACE_BOOTSTRAP_SERVER": "127.0.0.1:1",
            "_HEADRACE_COMPLETE": "complete_bash",
            "COMP_WORDS": "headrace topic describe ord",
            "COMP_CWORD": "3",
        },
    )
    assert (done.stdout.strip(), done.stderr) == ("", "")


def test_following_a_topic_reads_the_partitions_that_are_added(broker: Broker) -> None:
    def send(value: bytes, partition: int) -> None:
        with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            producer.send("growing", value, partition=partition).result()

    arguments = [*HEADRACE, "read", "growing", "-f", "-o", "beginning", "-n", "2"]
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_topic("growing")
        send(b"first", 0)
        with subprocess.Popen(arguments, stdout=subprocess.PIPE, env=environment(broker)) as reading:
            assert reading.stdout is not None
            assert reading.stdout.readline() == b"first\n"
            admin.create_partitions("growing", 2)
            send(b"second", 1)
            assert reading.communicate(timeout=WAIT_S)[0] == b"second\n"
    assert reading.returncode == 0


def test_top_draws_in_a_terminal_until_ctrl_c(broker: Broker) -> None:
    with ShareConsumer(bootstrap_servers=broker.bootstrap_servers, group_id="watched") as consumer:
        consumer.subscribe(["orders"])
        consumer.poll(timeout=1.0)
        child, terminal = pty.fork()
        if child == 0:  # pragma: no cover
            os.execvpe(
                HEADRACE[0], [*HEADRACE, "top", "--interval", "0.2"], environment(broker) | {"TERM": "xterm"}
            )
        try:
            seen, deadline = b"", time.monotonic() + WAIT_S
            while b"watched" not in seen or b"LAG" not in seen:
                assert time.monotonic() < deadline, seen
                if select.select([terminal], [], [], 1)[0]:
                    seen += os.read(terminal, 65536)
            os.write(terminal, b"\x03")
            _, status = os.waitpid(child, 0)
        finally:
            os.close(terminal)
        assert os.waitstatus_to_exitcode(status) == 0


def test_top_says_that_the_broker_is_frozen_and_that_it_is_back(tmp_path: Path) -> None:
    """And no line of the log is written into the view."""
    with serving(tmp_path) as (broker, server, _):
        command(server, "topic", "create", "orders")
        child, terminal = pty.fork()
        if child == 0:  # pragma: no cover
            os.execvpe(
                HEADRACE[0],
                [*HEADRACE, "top", "--interval", "0.2", "-b", server],
                os.environ | {"TERM": "xterm", "COLUMNS": "100", "LINES": "24"},
            )
        seen = b""

        def read_until(has_come: Callable[[bytes], bool]) -> None:
            nonlocal seen
            deadline = time.monotonic() + WAIT_S
            while not has_come(seen):
                assert time.monotonic() < deadline, seen
                if select.select([terminal], [], [], 1)[0]:
                    seen += os.read(terminal, 65536)

        gone = b"The cluster does not respond: no response within"
        try:
            read_until(lambda seen: b"orders" in seen)
            broker.send_signal(signal.SIGSTOP)
            read_until(lambda seen: gone in seen)
            broker.send_signal(signal.SIGCONT)
            # A frame behind the last one that says so, without the line that says so.
            read_until(lambda seen: b"orders" in seen.rpartition(gone)[2].partition(b"Cluster")[2])
            os.write(terminal, b"q")
            _, status = os.waitpid(child, 0)
        finally:
            broker.send_signal(signal.SIGCONT)
            os.close(terminal)
        assert os.waitstatus_to_exitcode(status) == 0
        assert b"the cluster does not respond" not in seen  # the words of the log
        assert b"responds again" not in seen


@contextmanager
def served(tmp_path: Path, *settings: str) -> Iterator[tuple[str, str]]:
    """`headrace serve --http` as a process; the addresses of the broker and of its dashboard."""
    with serving(tmp_path, *settings) as (_, address, dashboard):
        yield address, dashboard


@contextmanager
def serving(tmp_path: Path, *settings: str) -> Iterator[tuple["subprocess.Popen[str]", str, str]]:
    """The same with the process."""
    given = [argument for setting in settings for argument in ("--set", setting)]
    command = [
        *HEADRACE,
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--http",
        "127.0.0.1:0",
        "--data",
        str(tmp_path),
    ]
    with subprocess.Popen(
        [*command, *given], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        try:
            assert process.stdout is not None
            address = process.stdout.readline().removeprefix("listening on ").strip()
            dashboard = process.stdout.readline().removeprefix("dashboard on ").strip()
            yield process, address, dashboard
        finally:
            process.terminate()
            process.wait(WAIT_S)


def command(server: str, *arguments: str, status: int = 0) -> str:
    result = CliRunner(env={"NO_COLOR": "1", "COLUMNS": "200"}).invoke(app, [*arguments, "-b", server])
    assert result.exit_code == status, result.output
    return result.stdout if status == 0 else result.stderr


def test_the_broker_s_dashboard_tells_who_holds_a_record_and_for_how_long(tmp_path: Path) -> None:
    with served(tmp_path) as (server, dashboard):
        command(server, "topic", "create", "orders")
        command(server, "produce", "orders", "--perf", "--count", "4", "--size", "5")
        command(server, "group", "config", "set", "kitchen", "share.auto.offset.reset=earliest")
        with ShareConsumer(
            bootstrap_servers=server, group_id="kitchen", share_acknowledgement_mode="explicit"
        ) as consumer:
            consumer.subscribe(["orders"])
            while not (taken := consumer.poll(timeout=1.0)):
                pass
            taken[0].accept()
            consumer.commit_sync()
            drawn = command(server, "state", "kitchen", "--http", dashboard)
            assert "Share group kitchen: Stable, 1 member" in drawn
            assert (
                f"1-3  acquired      3 records  delivered once, by {consumer.member_id}, lock ends in"
                in drawn
            )
        said = command(server, "state", "kitchen", "--http", "127.0.0.1:1", status=1)
        assert "no dashboard responds at 127.0.0.1:1" in said


@contextmanager
def answering(status: int, body: bytes) -> Iterator[str]:
    """A web server that answers everything so."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Answer) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(
    ("status", "body", "told"),
    [
        (401, b'{"error": "a token is needed"}', "responds with 401: a token is needed"),
        (502, b"bad gateway", "responds with 502: bad gateway"),
        (200, b'{"is_live": false, "windows": []}', "does not run inside a broker, so it cannot show locks"),
        (200, b"<html>", "no dashboard responds at"),
    ],
)
def test_what_is_no_broker_s_dashboard_is_told(status: int, body: bytes, told: str) -> None:
    with answering(status, body) as address, pytest.raises(Refused, match=told):
        live_state(address, "kitchen", None)


def test_dead_letters_are_found_by_the_group_s_name(tmp_path: Path) -> None:
    with served(tmp_path, "errors.deadletterqueue.auto.create.topics.enable=true") as (server, _):
        command(server, "topic", "create", "orders")
        command(
            server,
            *("group", "config", "set", "kitchen", "share.auto.offset.reset=earliest"),
            *(
                "errors.deadletterqueue.topic.name=dlq.orders",
                "errors.deadletterqueue.copy.record.enable=true",
            ),
        )
        command(server, "produce", "orders", "--perf", "--count", "3", "--size", "5")
        command(server, "consume", "orders", "-g", "kitchen", "--reject", "--max", "3")
        deadline = time.monotonic() + WAIT_S
        while "3 dead letters of 1 cause" not in (said := command(server, "dlq", "list", "dlq.orders")):
            assert time.monotonic() < deadline, said
        assert "3 dead letters of 1 cause" in command(server, "dlq", "list", "kitchen")
        assert "3 to orders" in command(server, "dlq", "redrive", "kitchen", "--execute")
        again = command(server, "consume", "orders", "-g", "kitchen", "--max", "3", "-f", "%h\\n")
        assert again.count("headrace.redrive.count=1") == 3
