"""`headrace serve` that cannot start says what is wrong and what to do; settings choose address and directory."""

import errno
import gc
import logging
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.broker.embedded import Broker
from headrace.cli import serve
from headrace.cli.serve import COLLECT_RARELY, few_collections, run
from headrace.cli.web import Access


@pytest.fixture(autouse=True)
def _undisturbed() -> Iterator[None]:
    """`run` is made for a process of its own: it sets up logging, signals and the garbage collector."""
    root = logging.getLogger("headrace")
    before = root.handlers, root.level, root.propagate
    signals = {name: signal.getsignal(name) for name in (signal.SIGINT, signal.SIGTERM)}
    yield
    root.handlers, root.level, root.propagate = before
    for name, handler in signals.items():
        signal.signal(name, handler)
    gc.unfreeze()


def send(what: signal.Signals) -> None:
    """As a shell would: to the thread that waits in `run`."""
    main = threading.main_thread().ident
    assert main is not None
    signal.pthread_kill(main, what)


def stop_when_listening(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Returns where the number of objects that collections leave alone at that time will be."""
    counts: list[int] = []

    def said(text: str, *, flush: bool) -> None:
        print(text, flush=flush)
        counts.append(gc.get_freeze_count())
        send(signal.SIGTERM)

    monkeypatch.setattr(serve, "print", said, raising=False)
    return counts


def refused(capsys: pytest.CaptureFixture[str], listen: str, data: Path | str = ":memory:") -> str:
    assert run(listen, str(data), [], None) == 1
    said = capsys.readouterr()
    assert said.out == ""
    (line,) = said.err.splitlines()
    return line.removeprefix("headrace serve: ")


def test_a_port_in_use_is_named_with_the_cure(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        assert refused(capsys, address) == (
            f"cannot listen on {address}: another program listens there; "
            "stop it, or choose another port with --listen HOST:PORT"
        )


def test_an_address_of_another_machine_is_named_with_the_cure(capsys: pytest.CaptureFixture[str]) -> None:
    said = refused(capsys, "203.0.113.5:9092")
    assert said.startswith("cannot listen on 203.0.113.5:9092: this machine does not have that address")


def test_a_data_directory_that_is_a_file_is_named_with_the_cure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "file"
    data.touch()
    said = refused(capsys, "127.0.0.1:0", data)
    assert said.startswith(f"cannot use the data directory {data}: File exists; choose one")


def test_a_data_directory_that_may_not_be_written_is_named_with_the_cure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: Broker) -> None:  # root may write anywhere
        raise PermissionError(errno.EACCES, "Permission denied", str(tmp_path / ".lock"))

    monkeypatch.setattr(Broker, "start", refuse)
    said = refused(capsys, "127.0.0.1:0", tmp_path)
    assert said.startswith(f"cannot use the data directory {tmp_path}: Permission denied ({tmp_path}/.lock)")


def test_a_missing_properties_file_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(None, ":memory:", [], Path("nowhere.properties")) == 1
    assert "--config nowhere.properties cannot be read: No such file" in capsys.readouterr().err


def test_a_properties_file_chooses_address_and_directory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "server.properties"
    config.write_text(f"listeners=PLAINTEXT://127.0.0.1:0\nlog.dirs={tmp_path}/first,{tmp_path}/second\n")
    stop_when_listening(monkeypatch)
    assert run(None, None, [], config) == 0
    assert capsys.readouterr().out.startswith("listening on 127.0.0.1:")
    assert (tmp_path / "first" / "metadata.sqlite").exists()


def test_garbage_collections_leave_alone_what_a_start_has_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """With thousands of partitions, a full collection of all that would stop the event loop."""
    counts = stop_when_listening(monkeypatch)
    assert run("127.0.0.1:0", ":memory:", [], None) == 0
    assert counts[0] > 0


def test_an_interrupt_while_starting_ends_the_broker_too(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A start may take long, after a crash: Ctrl+C must not leave it running without anybody who stops it."""
    before = set(threading.enumerate())
    may_open, opened = threading.Event(), Broker._open

    def slowly(broker: Broker, server: object) -> object:
        send(signal.SIGINT)
        threading.Timer(0.2, may_open.set).start()
        may_open.wait(10)
        return opened(broker, server)  # type: ignore[arg-type]

    signal.signal(signal.SIGINT, signal.default_int_handler)
    monkeypatch.setattr(Broker, "_open", slowly)
    assert run("127.0.0.1:0", ":memory:", [], None) == 1
    assert "interrupted while starting" in capsys.readouterr().err
    left = set(threading.enumerate()) - before
    assert not [thread for thread in left if thread.name.startswith("headrace")]


def test_the_dashboard_of_a_broker_with_logins_has_a_private_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stop_when_listening(monkeypatch)
    settings = ["sasl.enabled.mechanisms=SCRAM-SHA-512"]
    status = run("SASL_PLAINTEXT://localhost:0", ":memory:", settings, None, http="localhost:0")
    assert status == 0
    assert "/?token=" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("access", "message"),
    [
        (
            Access(metrics_token="short"),
            "the metrics token is too short: it has 5 characters; use 16 or more",
        ),
        (Access(token="short"), "the dashboard's token is too short: it has 5 characters; use 16 or more"),
        (Access(trusted_proxies=["nobody"]), "--trusted-proxy nobody is neither an address nor a network"),
    ],
)
def test_options_of_the_dashboard_are_refused_before_the_broker_starts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], access: Access, message: str
) -> None:
    monkeypatch.setattr(Broker, "start", lambda _: pytest.fail("the broker was started"))
    assert run("localhost:0", ":memory:", [], None, http="localhost:0", access=access) == 1
    assert message in capsys.readouterr().err


def test_the_dashboard_must_find_the_listener_of_its_login(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    login = tmp_path / "dashboard.properties"
    login.write_text("client.id=d\n")
    settings = ["sasl.enabled.mechanisms=SCRAM-SHA-512"]
    listen = "SASL_PLAINTEXT://localhost:0"
    status = run(listen, ":memory:", settings, None, http="localhost:0", command_config=login)
    assert status == 1
    assert "no PLAINTEXT listener for the dashboard" in capsys.readouterr().err


def test_the_dashboard_logs_in_with_a_properties_file(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    stop_when_listening(monkeypatch)
    login = tmp_path / "dashboard.properties"
    login.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-512\nsasl.username=d\nsasl.password=secret\n"
    )
    status = run(
        "SASL_PLAINTEXT://localhost:0",
        ":memory:",
        ["sasl.enabled.mechanisms=SCRAM-SHA-512"],
        None,
        add_scram=["SCRAM-SHA-512=[name=d,password=secret]"],
        http="localhost:0",
        command_config=login,
    )
    assert status == 0
    assert "dashboard on http://localhost:" in capsys.readouterr().out


def test_a_start_leaves_the_garbage_collector_as_it_was() -> None:
    usual = gc.get_threshold()
    with few_collections():
        assert gc.get_threshold() == COLLECT_RARELY
    assert gc.get_threshold() == usual
    start = few_collections()(_refused)
    with pytest.raises(ValueError, match="refused"):
        start()
    assert gc.get_threshold() == usual


def _refused() -> None:
    raise ValueError("refused")
