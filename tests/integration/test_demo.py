"""The demo as people run it: each story's account holds, and nothing is left behind."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from headrace import Admin
from headrace.testing import ApacheKafka

WAIT_S = 240


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
        ("scale", "8 share consumers: 400 produced = 400 done"),
        ("failover", "50 of the dead consumer's records came to the other one"),
    ],
)
def test_a_story_holds_its_account_and_leaves_nothing_behind(story: str, told: str, tmp_path: Path) -> None:
    ran = demo("--story", story, cwd=tmp_path)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert told in ran.stdout
    assert "Nothing lost, nothing twice." in ran.stdout
    assert ran.stderr == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.needs_spark
@pytest.mark.timeout(WAIT_S)
def test_the_whole_story_with_spark_killed_in_the_middle_holds_its_account(tmp_path: Path) -> None:
    ran = demo("--folder", str(tmp_path / "kept"), cwd=tmp_path)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "share group: 600 produced = 480 accepted + 60 skipped + 60 dead-lettered" in ran.stdout
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
        assert any("orders/s" in line for line in ran.stdout)
        ran.send_signal(signal.SIGINT)
        assert ran.wait(timeout=WAIT_S) == 130
    assert list(tmp_path.iterdir()) == []


def test_a_broker_that_is_not_there_is_named(tmp_path: Path) -> None:
    ran = demo("--story", "queue", "-b", "127.0.0.1:1", cwd=tmp_path)
    assert ran.returncode == 1
    assert "127.0.0.1:1" in ran.stderr
    assert list(tmp_path.iterdir()) == []
