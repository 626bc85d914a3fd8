"""Foreign share consumers, each alone on both brokers and then all of them on one queue at once."""

import json
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path

import pytest
from confluent_kafka import Producer

from headrace.testing import KafkaTools
from tests.compat.both import Both, comparable
from tests.conformance.share.share_client import (
    fill,
    new_queue,
    start_and_lag,
    wait_until_share_coordinators_are_ready,
)
from tests.conformance.steps import wait_until_coordinators_are_ready
from tests.conformance.wire_client import WireClient
from tests.share_consumers import RELEASE, WAIT_S, Librdkafka, nothing_comes, take

pytestmark = pytest.mark.needs_kafka
SHOWN = [f"--formatter-property=print.{name}=true" for name in ("key", "partition", "offset", "delivery")]


def awake(bootstrap_servers: str) -> None:
    """Apache Kafka makes its internal topics when they are first asked for, and takes its time."""
    with WireClient(bootstrap_servers) as wire:
        wait_until_coordinators_are_ready(wire)
        wait_until_share_coordinators_are_ready(wire)


def queue_of(bootstrap_servers: str, name: str, records: int) -> None:
    awake(bootstrap_servers)
    with WireClient(bootstrap_servers) as wire:
        new_queue(wire, name, *([records] if records else []))


def lag_of(bootstrap_servers: str, name: str) -> int:
    with WireClient(bootstrap_servers) as wire:
        return start_and_lag(wire, name, name)[1]


@pytest.mark.parametrize(
    ("answer", "again"), [("accept", None), ("release", 2), ("reject", None)], ids=lambda value: str(value)
)
def test_the_console_share_consumer_prints_and_answers(
    both: Both, unique: str, answer: str, again: int | None
) -> None:
    both.each(lambda tools: queue_of(tools.bootstrap_servers, unique, 3))
    of_queue = ("--topic", unique, "--group", unique, *SHOWN)
    flags = () if answer == "accept" else (f"--{answer}",)
    printed = both.run("kafka-console-share-consumer", *of_queue, *flags, "--max-messages", "3")
    lines = printed.same_lines()
    assert lines == [f"Partition:0 Offset:{number} Delivery:1 null {number}" for number in range(3)]
    for output in (printed.ours, printed.theirs):
        assert "Processed a total of 3 messages" in output.stderr

    def counts_after(tools: KafkaTools) -> list[tuple[int, int]]:
        client = Librdkafka(tools.bootstrap_servers, unique, unique)
        try:
            if again is None:
                assert nothing_comes(client, for_s=1)
                return []
            return [(one.offset, one.count) for one in take(client, 3)]
        finally:
            client.close()

    ours, theirs = both.each(counts_after)
    assert ours == theirs == ([] if again is None else [(number, again) for number in range(3)])


def test_the_share_consumer_performance_tool_moves_every_record(both: Both, unique: str) -> None:
    def run(tools: KafkaTools) -> dict[str, str]:
        awake(tools.bootstrap_servers)
        with WireClient(tools.bootstrap_servers) as wire:
            new_queue(wire, unique, *[500] * 10)
        options = ("--topic", unique, "--group", unique, "--num-records", "5000", "--timeout", "30000")
        heading, figures = tools.run("kafka-share-consumer-perf-test", *options).lines[-2:]
        return dict(zip(heading.split(", "), figures.split(", "), strict=True))

    ours, theirs = both.each(run)
    assert ours.keys() == theirs.keys()
    assert ours["data.consumed.in.nMsg"] == theirs["data.consumed.in.nMsg"] == "5000"
    assert [lag_of(tools.bootstrap_servers, unique) for tools in (both.ours, both.theirs)] == [0, 0]


@pytest.mark.parametrize("mode", ["auto", "sync", "async"])
def test_the_verifiable_share_consumer_tells_what_it_acknowledged(both: Both, unique: str, mode: str) -> None:
    def run(tools: KafkaTools) -> set[tuple[str, int, int]]:
        queue_of(tools.bootstrap_servers, unique, 50)
        options = ("--topic", unique, "--group-id", unique, "--max-messages", "50")
        printed = tools.run("kafka-verifiable-share-consumer", *options, "--acknowledgement-mode", mode)
        events = [json.loads(line) for line in printed.lines]
        kinds = {(event["name"], 0, 0) for event in events}
        for event in events:
            for part in event.get("partitions", []):
                kinds |= {(event["name"], part["partition"], offset) for offset in part.get("offsets", [])}
        return kinds

    ours, theirs = both.each(run)
    assert ours == theirs
    assert {("offsets_acknowledged", 0, offset) for offset in range(50)} <= ours


class Tool:
    """One of Apache's consumers as a running process that is asked to end."""

    def __init__(self, tools: KafkaTools, output: Path, name: str, *arguments: str) -> None:
        self._output = output
        with output.open("w") as file:
            self._process = subprocess.Popen(
                tools.command(name, *arguments), stdout=file, stderr=subprocess.STDOUT, text=True
            )

    def offsets(self, read: Callable[[str], Iterator[int]]) -> list[int]:
        return [offset for line in self._output.read_text().splitlines() for offset in read(line)]

    def end(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(WAIT_S)


def offsets_on_the_console(line: str) -> Iterator[int]:
    if line.startswith("Partition:0\tOffset:"):
        yield int(line.split("\t")[1].partition(":")[2])


def offsets_of_events(line: str) -> Iterator[int]:
    if line.startswith("{"):
        event = json.loads(line)
        if event["name"] == "offsets_acknowledged":
            yield from (offset for part in event["partitions"] for offset in part["offsets"])


@contextmanager
def ended(tool: Tool) -> Iterator[Tool]:
    try:
        yield tool
    finally:
        tool.end()


def test_clients_of_all_kinds_share_one_queue(bootstrap_servers: str, unique: str, tmp_path: Path) -> None:
    """Records flow until each client has had some of them; then every record has gone to exactly one."""
    queue_of(bootstrap_servers, unique, 0)
    tools = KafkaTools(bootstrap_servers)
    producer = Producer({"bootstrap.servers": bootstrap_servers, "linger.ms": 0})
    sent = count()
    polled: dict[str, list[int]] = {"implicit": [], "explicit": []}
    with ExitStack() as stack:
        console = stack.enter_context(
            ended(
                Tool(
                    tools,
                    tmp_path / "console",
                    "kafka-console-share-consumer",
                    "--topic",
                    unique,
                    "--group",
                    unique,
                    *SHOWN,
                )
            )
        )
        verifiable = stack.enter_context(
            ended(
                Tool(
                    tools,
                    tmp_path / "verifiable",
                    "kafka-verifiable-share-consumer",
                    "--topic",
                    unique,
                    "--group-id",
                    unique,
                    "--acknowledgement-mode",
                    "sync",
                )
            )
        )
        settings = {"max_poll_records": 10}
        implicit = Librdkafka(bootstrap_servers, unique, unique, **settings)
        stack.callback(implicit.close)
        explicit = Librdkafka(
            bootstrap_servers, unique, unique, share_acknowledgement_mode="explicit", **settings
        )
        stack.callback(explicit.close)

        def poll() -> None:
            polled["implicit"] += [one.offset for one in implicit.poll(0.05)]
            for number, one in enumerate(explicit.poll(0.05)):
                is_first_try = one.count == 1 and number % 7 == 3
                explicit.acknowledge(one, RELEASE if is_first_try else 1)
                polled["explicit"] += [] if is_first_try else [one.offset]

        def found() -> dict[str, list[int]]:
            return {
                **polled,
                "console": console.offsets(offsets_on_the_console),
                "verifiable": verifiable.offsets(offsets_of_events),
            }

        deadline = time.monotonic() + 2 * WAIT_S
        while not all(len(offsets) >= 20 for offsets in found().values()):
            assert time.monotonic() < deadline, found()
            for _ in range(40):
                producer.produce(unique, str(next(sent)))
            producer.flush()
            poll()
        records = next(sent)
        while lag_of(bootstrap_servers, unique) > 0:
            assert time.monotonic() < deadline, found()
            poll()
    assert sorted(offset for offsets in found().values() for offset in offsets) == list(range(records))


@pytest.mark.parametrize("mode", ["implicit", "explicit"])
def test_librdkafkas_share_consumers_drain_a_queue_between_them(
    bootstrap_servers: str, unique: str, mode: str
) -> None:
    queue_of(bootstrap_servers, unique, 0)
    with WireClient(bootstrap_servers) as wire:
        fill(wire, unique, *[10] * 30)
    settings = {"share_acknowledgement_mode": mode, "max_poll_records": 20}
    clients = [Librdkafka(bootstrap_servers, unique, unique, **settings) for _ in range(3)]
    taken: list[int] = []
    deadline = time.monotonic() + WAIT_S
    while len(taken) < 300:
        assert time.monotonic() < deadline, f"{len(taken)} of 300 came"
        for client in clients:
            for one in client.poll(0.05):
                taken.append(one.offset)
                if mode == "explicit":
                    client.acknowledge(one)
    assert sorted(taken) == list(range(300))
    for client in clients:
        client.commit()
        client.close()
    assert lag_of(bootstrap_servers, unique) == 0


def test_the_console_tool_says_what_it_did_not_get(both: Both, unique: str) -> None:
    both.each(lambda tools: queue_of(tools.bootstrap_servers, unique, 0))
    options = ("--topic", unique, "--group", unique, "--timeout-ms", "1500")
    printed = both.run("kafka-console-share-consumer", *options, check=False)
    assert printed.same_lines() == []
    for output in (printed.ours, printed.theirs):
        assert "Processed a total of 0 messages" in "".join(comparable(output.stderr))
