"""A broker inside a process of few file descriptors, such as on macOS, where 256 are usual: it goes on writing."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.conformance.steps import batch
from tests.conformance.wire_client import WireClient

FILES = 200
PARTITIONS = FILES + 20
PROGRAM = """
import os, sys
from headrace.broker.embedded import Broker

broker = Broker(data_dir=sys.argv[1]).start()
print(broker.bootstrap_servers, flush=True)
taken = []
for line in sys.stdin:
    if line == "take\\n":
        while True:
            try:
                taken.append(os.open(os.devnull, os.O_RDONLY))
            except OSError:
                break
    else:
        while taken:
            os.close(taken.pop())
    print("done", flush=True)
failure = broker.failure
broker.stop()
print(failure, flush=True)
"""


class Process:
    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process
        self.address = self.read()

    def read(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def ask(self, text: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(text + "\n")
        self._process.stdin.flush()
        assert self.read() == "done"

    def end(self) -> str:
        """Why the broker has stopped."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        return self.read()


@contextmanager
def process(data: Path) -> Iterator[Process]:
    command = ["sh", "-c", f'ulimit -Sn {FILES} && exec "$@"', "sh", sys.executable, "-c", PROGRAM, str(data)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as made:
        try:
            yield Process(made)
        finally:
            made.terminate()


def make_topic(client: WireClient, partitions: int) -> None:
    configs = [{"name": "internal.segment.bytes", "value": "200"}]
    topic = {"name": "orders", "num_partitions": partitions, "replication_factor": 1, "configs": configs}
    assert client.ask("create_topics", 7, topics=[topic], timeout_ms=60_000).topics[0].error_code == 0


def produce(client: WireClient, index: int) -> int:
    data = [{"name": "orders", "partition_data": [{"index": index, "records": batch("tea" * 30)}]}]
    answer = client.ask("produce", 11, acks=-1, timeout_ms=60_000, topic_data=data)
    return int(answer.responses[0].partition_responses[0].error_code)


def test_more_partitions_than_descriptors_are_written(tmp_path: Path) -> None:
    with process(tmp_path) as broker:
        with WireClient(broker.address) as client:
            make_topic(client, PARTITIONS)
            assert {produce(client, index) for _ in range(2) for index in range(PARTITIONS)} == {0}
        assert broker.end() == "None"


def test_a_process_that_uses_up_its_descriptors_does_not_stop_its_broker(tmp_path: Path) -> None:
    """Each record begins a new segment: files are made, and synced by their names."""
    with process(tmp_path) as broker:
        with WireClient(broker.address) as client:
            make_topic(client, 10)
            assert {produce(client, index) for index in range(10)} == {0}
            broker.ask("take")
            assert {produce(client, index) for _ in range(3) for index in range(10)} == {0}
            broker.ask("give back")
            assert {produce(client, index) for index in range(10)} == {0}
        assert broker.end() == "None"
