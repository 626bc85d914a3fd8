"""A consumer of ours in a process of its own, which takes records and sits on them until it is killed.

As a script it tells what it holds: one line of JSON, `[[partition, offset], ...]`, as soon as there are as many as it
was asked for. It accepts none of them.
"""

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from headrace.client.sync import ShareConsumer
from headrace.testing.child_process import ChildProcess

WAIT_S = 60.0
Place = tuple[int, int]


def start_holding(
    output: Path, address: str, group: str, topic: str, count: int
) -> tuple[ChildProcess, list[Place]]:
    """The process, and the partitions and offsets of what it holds."""
    command = [sys.executable, "-u", __file__, address, group, topic, str(count)]
    process = ChildProcess(command, output=output)
    deadline = time.monotonic() + WAIT_S
    while not (said := process.output_text()).endswith("]]\n"):
        assert process.is_running, said
        assert time.monotonic() < deadline, f"it holds nothing: {said}"
        time.sleep(0.05)  # the pace of looking: it says by its output alone that it holds them
    return process, [(partition, offset) for partition, offset in json.loads(said.splitlines()[-1])]


def hold(arguments: Sequence[str]) -> None:
    address, group, topic, count = arguments
    consumer = ShareConsumer(
        bootstrap_servers=address,
        group_id=group,
        share_acknowledgement_mode="explicit",
        max_unacknowledged=1_000,
        auto_renew=True,
    )
    consumer.subscribe([topic])
    held: list[Place] = []
    while True:
        held += [(one.partition, one.offset) for one in consumer.poll(1.0)]
        if len(held) == int(count):
            print(json.dumps(sorted(held)))


if __name__ == "__main__":
    hold(sys.argv[1:])
