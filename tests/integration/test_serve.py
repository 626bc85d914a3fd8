"""`headrace serve` as a person runs it: what it prints, how it ends, and what it says when it cannot start."""

import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headrace.log.disk import OsDisk
from headrace.log.layout import CLEAN_SHUTDOWN

WAIT_S = 60


@contextmanager
def serve(*arguments: str) -> "Iterator[subprocess.Popen[str]]":
    command = [sys.executable, "-m", "headrace", "serve", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def refused(*arguments: str) -> str:
    """What it says on standard error; it must end by itself with status 1 and nothing on standard output."""
    with serve(*arguments) as process:
        out, err = process.communicate(timeout=WAIT_S)
    assert (process.returncode, out) == (1, "")
    return err


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_it_says_where_it_listens_and_a_signal_stops_it_cleanly(tmp_path: Path, how: signal.Signals) -> None:
    with serve("--listen", "127.0.0.1:0", "--data", str(tmp_path / "data")) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        host, port = line.removeprefix("listening on ").strip().split(":")
        with socket.create_connection((host, int(port)), timeout=WAIT_S):
            pass
        process.send_signal(how)
        _, err = process.communicate(timeout=WAIT_S)
    assert process.returncode == 0
    assert f"data={tmp_path / 'data'} flush=fsync listen=127.0.0.1:{port}" in err
    assert "stopped clean=true" in err
    assert (tmp_path / "data" / CLEAN_SHUTDOWN).exists()


def test_a_directory_in_use_is_named(tmp_path: Path) -> None:
    disk = OsDisk(tmp_path)
    disk.lock()
    err = refused("--listen", "127.0.0.1:0", "--data", str(tmp_path))
    disk.unlock()
    assert f"headrace serve: The data directory {tmp_path} is in use by another broker" in err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--listen", "nowhere"], "'nowhere' is not an address HOST:PORT, for example localhost:9092"),
        (["--listen", "localhost:99999"], "'localhost:99999' is not an address HOST:PORT"),
        (["--set", "num.partitions"], "expected KEY=VALUE, got 'num.partitions'"),
        (["--set", "num.partitions=many"], "num.partitions"),
        (["--set", "num.partitions=0"], "num.partitions"),
        (["--set", "headrace.flush=never"], "fsync, os"),
        (["--config", "/nonexistent/server.properties"], "/nonexistent/server.properties"),
    ],
)
def test_bad_input_is_named_with_its_cure(arguments: list[str], said: str) -> None:
    err = refused("--data", ":memory:", *arguments)
    assert said in err
    assert "Traceback" not in err


def test_a_port_in_use_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        err = refused("--data", ":memory:", "--listen", f"127.0.0.1:{port}")
    assert str(port) in err
    assert "Traceback" not in err


def test_an_unknown_setting_is_refused_with_the_nearest_name() -> None:
    err = refused("--data", ":memory:", "--listen", "127.0.0.1:0", "--set", "num.partitons=3")
    assert "unknown setting num.partitons; did you mean num.partitions?" in err
    assert "use --force" in err


@pytest.mark.parametrize("where", ["file", "forced"])
def test_an_unknown_setting_of_a_file_or_with_force_is_warned_of(tmp_path: Path, where: str) -> None:
    config = tmp_path / "server.properties"
    config.write_text("num.partitons=3\n")
    given = ("--config", str(config)) if where == "file" else ("--set", "num.partitons=3", "--force")
    with serve("--listen", "127.0.0.1:0", "--data", ":memory:", *given) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.terminate()
        _, err = process.communicate(timeout=WAIT_S)
    assert "unknown setting num.partitons; did you mean num.partitions?" in err


def test_settings_come_from_a_properties_file_and_set_wins(tmp_path: Path) -> None:
    config = tmp_path / "server.properties"
    config.write_text(f"listeners=PLAINTEXT://127.0.0.1:0\nlog.dirs={tmp_path / 'here'}\nnum.partitions=2\n")
    with serve("--config", str(config), "--set", "headrace.flush=os") as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("listening on 127.0.0.1:")
        process.terminate()
        _, err = process.communicate(timeout=WAIT_S)
    assert f"data={tmp_path / 'here'} flush=os" in err


def test_help_lists_every_setting_by_scope() -> None:
    shown = subprocess.run(
        [sys.executable, "-m", "headrace", "serve", "--help-settings"],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
    ).stdout
    for name in ("num.partitions", "retention.ms", "share.record.lock.duration.ms", "headrace.flush"):
        assert f"  {name}  (" in shown
