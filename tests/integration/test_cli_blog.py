"""What the blog shows with Apache's scripts, with our command: three consumers on two partitions as a share group and
as a consumer group, and a record that is released until it is given up.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from headrace import Admin, Broker

WAIT_S = 60
HEADRACE = [sys.executable, "-m", "headrace"]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(settings={"group.initial.rebalance.delay.ms": 0}) as running:
        yield running


def run(broker: Broker, *arguments: str, given: str = "") -> str:
    done = subprocess.run(
        [*HEADRACE, *arguments, "-b", broker.bootstrap_servers],
        input=given,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def wait_for(is_so: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while not is_so():
        time.sleep(
            0.02
        )  # files tell nobody that they have grown, and this leaves the processor to who writes
        assert time.monotonic() < deadline, f"{what} did not happen"


def has_lines(files: list[Path], number: int) -> bool:
    return sum(file.read_bytes().count(b"\n") for file in files) >= number


def empty(files: list[Path]) -> int:
    """How many members have got nothing."""
    return sum(1 for file in files if not file.stat().st_size)


def test_three_share_consumers_work_two_partitions_and_a_consumer_group_leaves_one_idle(
    broker: Broker, tmp_path: Path
) -> None:
    run(broker, "topic", "create", "kafka-queue-topic", "--partitions", "2")
    outputs: dict[str, list[Path]] = {"share-group": [], "consumer-group": []}
    with ExitStack() as stack, Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        for group, files in outputs.items():
            kind = ["--consumer-group"] if group == "consumer-group" else []
            for number in range(3):
                files.append(tmp_path / f"{group}-{number}")
                command = ["consume", "kafka-queue-topic", "-g", group, "-b", broker.bootstrap_servers]
                process = subprocess.Popen(
                    [*HEADRACE, *command, *kind, "--from-beginning", "-f", "%p@%o %s\\n"],
                    stdout=stack.enter_context(files[-1].open("wb")),
                    stderr=subprocess.DEVNULL,
                    env=os.environ,
                )
                stack.callback(process.wait, WAIT_S)
                stack.callback(process.terminate)
        wait_for(
            lambda: (
                outputs.keys() <= {group.group_id for group in admin.list_groups()}
                and len(admin.describe_share_group("share-group").members) == 3
                and sum(len(m.assignment) for m in admin.describe_consumer_group("consumer-group").members)
                == 2
                and len(admin.describe_consumer_group("consumer-group").members) == 3
            ),
            "six members",
        )
        sent = 0
        # One load may go to one partition alone: as many as it takes for all who can have records.
        while empty(outputs["share-group"]) or empty(outputs["consumer-group"]) > 1:
            assert sent < 100_000, "a member that has a partition got nothing"
            run(broker, "produce", "kafka-queue-topic", "--perf", "--count", "10000", "--size", "10")
            sent += 10_000
            for files in outputs.values():
                wait_for(partial(has_lines, files, sent), "every record")
        described = [line.split() for line in run(broker, "group", "describe", "share-group").splitlines()]
        members = [
            line.split()
            for line in run(broker, "group", "describe", "share-group", "--members").splitlines()[1:]
        ]
        plain = [
            line.split()
            for line in run(broker, "group", "describe", "consumer-group", "--members").splitlines()[1:]
        ]
    assert described[0] == ["GROUP", "TOPIC", "PARTITION", "START-OFFSET", "LAG"]
    assert [row[4] for row in described[1:]] == ["0", "0"]
    assert len(members) == 3
    assert sum(int(row[4]) for row in members) >= 3  # nobody is idle
    assert sorted(row[4] for row in plain) == ["0", "1", "1"]  # one is idle
    for files in outputs.values():
        taken = [line.split()[0] for file in files for line in file.read_text().splitlines()]
        assert len(taken) == len(set(taken)) == sent


def test_a_record_that_is_released_five_times_is_given_up_and_the_state_topic_says_so(broker: Broker) -> None:
    run(broker, "topic", "create", "my-topic")
    run(broker, "group", "config", "set", "my-share-group", "share.auto.offset.reset=earliest")
    run(broker, "produce", "my-topic", given="not processable\n")
    arguments = ("consume", "my-topic", "-g", "my-share-group", "-f", "%o delivery %D\\n")
    released = run(broker, *arguments, "--release", "--timeout", "2")
    assert released.splitlines() == [f"0 delivery {number}" for number in range(1, 6)]
    records = [json.loads(line) for line in run(broker, "state", "my-share-group", "--raw").splitlines()]
    states = [
        (batch["deliveryState"], batch["deliveryCount"])
        for record in records
        for batch in record["value"]["data"]["stateBatches"]
    ]
    assert states == [(0, 1), (0, 2), (0, 3), (0, 4), (4, 5)]
    assert "archived      1 record  delivered 5 times" in run(broker, "state", "my-share-group")
