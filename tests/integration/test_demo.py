"""The demo as people run it: each story's account holds, and nothing is left behind."""

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from headrace import Admin
from headrace.testing import ApacheKafka

WAIT_S = 480


def demo(*arguments: str, cwd: Path) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "headrace", "demo", *arguments]
    environment = {**os.environ, "TMPDIR": str(cwd)}
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=WAIT_S)


@pytest.mark.timeout(WAIT_S)
@pytest.mark.parametrize(
    ("story", "told"),
    [
        ("queue", "600 produced = 480 accepted + 60 skipped + 60 dead-lettered"),
        ("poison", "20 dead letters are sent back"),
        ("scale", "share group of 8: 1600 produced = 1600 accepted"),
        ("failover", "300 orders, 2 kill -9, 0 lost, 0 twice"),
    ],
)
def test_a_story_holds_its_account_and_leaves_nothing_behind(story: str, told: str, tmp_path: Path) -> None:
    ran = demo("--story", story, cwd=tmp_path)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.startswith("Starting a broker and its dashboard.\n")
    assert told in ran.stdout
    assert "Nothing lost, nothing twice." in ran.stdout
    assert ran.stderr == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.needs_spark
@pytest.mark.timeout(WAIT_S)
def test_the_whole_story_with_spark_killed_in_the_middle_holds_its_account(tmp_path: Path) -> None:
    ran = demo("--folder", str(tmp_path / "kept"), cwd=tmp_path)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    for act in ("1. Scale", "2. Failover", "3. Poison", "4. Spark", "5. The account"):
        assert act in ran.stdout
    assert "2,700 orders, 3 kill -9, 0 lost, 0 twice" in ran.stdout
    assert "Spark: 600 produced = 480 scored + 60 skipped + 60 dead-lettered" in ran.stdout
    assert list((tmp_path / "kept" / "scored").glob("batch=*/*.parquet"))


@pytest.mark.needs_kafka
@pytest.mark.timeout(WAIT_S)
def test_it_plays_on_apache_kafka_too_and_takes_back_what_it_made_there(tmp_path: Path) -> None:
    with ApacheKafka() as apache, Admin(bootstrap_servers=apache.bootstrap_servers) as admin:
        ran = demo("--story", "queue", "-b", apache.bootstrap_servers, cwd=tmp_path)
        assert ran.returncode == 0, ran.stdout + ran.stderr
        assert "600 produced = 480 accepted + 60 skipped + 60 dead-lettered" in ran.stdout
        assert admin.list_topics() == []
        assert admin.list_groups() == []


def test_ctrl_c_ends_it_at_once_and_leaves_nothing_behind(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "headrace", "demo", "--story", "scale"]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as ran:
        assert ran.stdout is not None
        assert any("members" in line for line in ran.stdout)
        ran.send_signal(signal.SIGINT)
        assert ran.wait(timeout=WAIT_S) == 130
    assert list(tmp_path.iterdir()) == []


def test_on_a_terminal_it_moves_fits_80_columns_and_stays_until_a_key_is_pressed(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    command = [sys.executable, "-m", "headrace", "demo", "--story", "failover"]
    environment = {**os.environ, "TMPDIR": str(tmp_path), "TERM": "xterm-256color"}
    for name in ("COLUMNS", "LINES"):
        environment.pop(name, None)
    with subprocess.Popen(command, env=environment, stdin=theirs, stdout=theirs, stderr=theirs) as ran:
        os.close(theirs)
        seen = b""
        while b"Press a key to end" not in seen:
            seen += os.read(ours, 65536)
        assert ran.poll() is None
        os.write(ours, b"x")
        assert ran.wait(timeout=WAIT_S) == 0
    os.close(ours)
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", seen.decode())
    assert text.count("accepted ") > 5, "the bar is drawn again and again"
    assert "█ 300 of 300" in text, "the last bar is full"
    assert max(len(line.rstrip()) for line in re.split(r"[\r\n]+", text)) <= 80
    assert list(tmp_path.iterdir()) == []


def test_a_broker_that_is_not_there_is_named(tmp_path: Path) -> None:
    ran = demo("--story", "queue", "-b", "127.0.0.1:1", cwd=tmp_path)
    assert ran.returncode == 1
    assert "127.0.0.1:1" in ran.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.timeout(WAIT_S)
@pytest.mark.parametrize(
    ("story", "told"),
    [
        ("poison", "20 dead letters are sent back"),
        ("failover", "300 orders, 2 kill -9, 0 lost, 0 twice"),
        pytest.param(
            "spark",
            "600 produced = 480 scored + 60 skipped + 60 dead-lettered",
            marks=pytest.mark.needs_spark,
        ),
    ],
)
def test_a_story_holds_its_account_over_tls_with_users_and_acls(
    story: str, told: str, tmp_path: Path
) -> None:
    ran = demo("--secure", "--story", story, cwd=tmp_path)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "'admin' with a wrong password is refused." in ran.stdout
    assert "'shop' may not create topics." in ran.stdout
    assert "/?token=" in ran.stdout
    assert told in ran.stdout
    assert ran.stderr == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.timeout(WAIT_S)
def test_what_secures_the_demo_is_not_for_other_users_of_the_machine(tmp_path: Path) -> None:
    ran = demo("--secure", "--story", "failover", "--folder", str(tmp_path / "kept"), cwd=tmp_path)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    for name in ("broker.pem", "client.json"):
        assert (tmp_path / "kept" / name).stat().st_mode & 0o077 == 0
    assert not list((tmp_path / "kept").glob("*.key"))


def test_another_broker_is_secured_by_its_own_settings(tmp_path: Path) -> None:
    ran = demo("--secure", "-b", "localhost:1", cwd=tmp_path)
    assert ran.returncode == 1
    assert "use --command-config" in ran.stderr
