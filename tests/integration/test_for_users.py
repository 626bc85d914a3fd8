"""What users get with the package works as the README says: the fixtures."""

import subprocess
import sys
from pathlib import Path

WAIT_S = 120

PROJECT = """
def test_fresh(headrace_broker):
    assert headrace_broker.core.topics.get("left") is None
    headrace_broker.call(lambda: headrace_broker.core.topics.create("left", partitions=1, configs={}))
    headrace_broker.advance(60)

def test_fresh_again(headrace_broker):
    assert headrace_broker.core.topics.get("left") is None

def test_shared(headrace_session_broker, request):
    request.config.seen = headrace_session_broker.bootstrap_servers

def test_shared_again(headrace_session_broker, request):
    assert request.config.seen == headrace_session_broker.bootstrap_servers
"""


def run(*command: str, cwd: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=WAIT_S)


def test_a_project_gets_the_fixtures_by_installing_the_package(tmp_path: Path) -> None:
    (tmp_path / "test_project.py").write_text(PROJECT)
    ran = run(
        sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", "-p", "no:cacheprovider", cwd=tmp_path
    )
    assert "4 passed" in ran.stdout, ran.stdout + ran.stderr
