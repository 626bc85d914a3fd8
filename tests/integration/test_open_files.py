"""Connections of strangers leave the broker the file descriptors that it needs to serve those it knows."""

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from headrace.broker.security.limits import ConnectionLimits
from headrace.broker.settings import Settings
from tests.conformance.steps import batch
from tests.conformance.wire_client import WireClient

WAIT_S = 60
FILES = 200
CONNECTIONS = FILES // 2
PARTITIONS = 10


@contextmanager
def serve(data: Path, soft: int, hard: int) -> Iterator[str]:
    """The address of a broker that has been started with these limits of open files."""
    limits = f"ulimit -Sn {soft} && ulimit -Hn {hard}"
    broker = [sys.executable, "-m", "headrace", "serve", "--listen", "127.0.0.1:0", "--data", str(data)]
    command = ["sh", "-c", f'{limits} && exec "$@"', "sh", *broker]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().removeprefix("listening on ").strip()
        finally:
            process.terminate()
            process.wait(WAIT_S)


def is_closed(wire: socket.socket) -> bool:
    try:
        return wire.recv(1) == b""
    except ConnectionResetError:
        return True


@pytest.mark.parametrize("soft", [FILES, FILES // 2], ids=["at its hard limit", "raised to its hard limit"])
def test_strangers_cannot_use_up_the_open_files(tmp_path: Path, soft: int) -> None:
    with serve(tmp_path, soft, FILES) as address, ExitStack() as closing:
        host, port = address.split(":")
        known = closing.enter_context(WireClient(address))
        topic = {"name": "orders", "num_partitions": PARTITIONS, "replication_factor": 1}
        assert known.ask("create_topics", 7, topics=[topic], timeout_ms=60_000).topics[0].error_code == 0
        strangers = [
            closing.enter_context(socket.create_connection((host, int(port)), WAIT_S)) for _ in range(FILES)
        ]
        assert all(is_closed(wire) for wire in strangers[CONNECTIONS - 1 :])
        for index in range(PARTITIONS):
            data = [{"name": "orders", "partition_data": [{"index": index, "records": batch("tea")}]}]
            answer = known.ask("produce", 11, acks=-1, timeout_ms=60_000, topic_data=data)
            assert answer.responses[0].partition_responses[0].error_code == 0


def test_the_refusal_names_the_cure() -> None:
    limits = ConnectionLimits(beside_files=2)
    for _ in range(2):
        limits.count("10.0.0.1", "PLAINTEXT")
    assert limits.refusal(Settings({}), "10.0.0.1", "PLAINTEXT") is None
    limits.count("10.0.0.1", "PLAINTEXT")
    refusal = limits.refusal(Settings({}), "10.0.0.1", "PLAINTEXT")
    assert refusal is not None
    assert "ulimit -n" in refusal
