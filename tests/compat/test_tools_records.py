"""Apache's tools that move records or ask about them: the Java producer and consumer under their own roof."""

import json
import re
from pathlib import Path

import pytest

from headrace.testing import KafkaTools
from tests.compat.both import Both, comparable
from tests.compat.confluent import produce


def test_the_console_tools_pass_records_with_keys_and_headers(both: Both, unique: str) -> None:
    keyed = [
        f"--reader-property={name}" for name in ("parse.key=true", "key.separator=:", "parse.headers=true")
    ]
    both.run(
        "kafka-console-producer", "--topic", unique, *keyed, stdin="h1:v1\ta:1\nh1:v1\tb:2\nh2:v2\tc:3\n"
    )
    shown = [f"--formatter-property=print.{name}=true" for name in ("key", "headers", "partition", "offset")]
    arguments = (
        "--topic",
        unique,
        "--from-beginning",
        "--max-messages",
        "3",
        "--timeout-ms",
        "20000",
        *shown,
    )
    lines = both.run("kafka-console-consumer", *arguments).same_lines()
    assert lines == [f"Partition:0 Offset:{line}" for line in ("0 h1:v1 a 1", "1 h1:v1 b 2", "2 h2:v2 c 3")]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_the_console_consumer_joins_a_group_by_either_protocol(
    both: Both, unique: str, protocol: str
) -> None:
    both.each(lambda tools: produce(tools.bootstrap_servers, unique, ["one", "two"]))
    group = ("--group", unique, "--command-property", f"group.protocol={protocol}")
    arguments = (
        "--topic",
        unique,
        "--max-messages",
        "2",
        "--timeout-ms",
        "20000",
        "--from-beginning",
        *group,
    )
    assert both.run("kafka-console-consumer", *arguments).same_lines() == ["one", "two"]
    described = both.run("kafka-consumer-groups", "--describe", "--group", unique).same_lines()
    assert described[-1] == f"{unique} {unique} 0 2 2 0 - - -"


def test_the_verifiable_producer_counts_what_was_acknowledged(both: Both, unique: str) -> None:
    def acknowledged(tools: KafkaTools) -> list[tuple[str, int]]:
        printed = tools.run(
            "kafka-verifiable-producer", "--topic", unique, "--max-messages", "50", "--acks", "-1"
        )
        events = [json.loads(line) for line in printed.lines]
        assert (events[-1]["sent"], events[-1]["acked"]) == (50, 50)
        return [
            (event["value"], event["offset"]) for event in events if event["name"] == "producer_send_success"
        ]

    ours, theirs = both.each(acknowledged)
    assert sorted(ours) == sorted(theirs) == sorted((str(number), number) for number in range(50))


def test_the_performance_tools_move_every_record(both: Both, unique: str) -> None:
    load = ("--num-records", "20000", "--record-size", "100", "--throughput", "-1")
    settings = ("--command-property", "acks=all", "compression.type=lz4", "linger.ms=5")
    produced = both.run("kafka-producer-perf-test", "--topic", unique, *load, *settings)
    for output in (produced.ours, produced.theirs):
        assert re.search(r"^20000 records sent, .* records/sec", output.stdout, re.MULTILINE)
    consumed = both.run(
        "kafka-consumer-perf-test", "--topic", unique, "--num-records", "20000", "--timeout", "30000"
    )
    for output in (consumed.ours, consumed.theirs):
        heading, figures = output.lines[-2:]
        columns = dict(zip(heading.split(", "), figures.split(", "), strict=True))
        assert columns["data.consumed.in.nMsg"] == "20000"
    assert both.run("kafka-get-offsets", "--topic", unique).same_lines() == [f"{unique}:0:20000"]


def test_a_transactional_performance_run_is_committed(both: Both, unique: str) -> None:
    load = ("--num-records", "2000", "--record-size", "100", "--throughput", "-1")
    transactions = ("--transactional-id", unique, "--transaction-duration-ms", "50")
    produced = both.run("kafka-producer-perf-test", "--topic", unique, *load, *transactions)
    assert "2000 records sent" in produced.ours.stdout
    committed = ("--topic", unique, "--isolation-level", "read_committed", "--from-beginning")
    read = both.each(
        lambda tools: tools.run(
            "kafka-console-consumer", *committed, "--max-messages", "2000", "--timeout-ms", "20000"
        )
    )
    assert [len(output.lines) for output in read] == [2_000, 2_000]


def test_offsets_are_shown_and_records_deleted(both: Both, unique: str, tmp_path: Path) -> None:
    both.each(lambda tools: produce(tools.bootstrap_servers, unique, [str(number) for number in range(10)]))
    wanted = {"version": 1, "partitions": [{"topic": unique, "partition": 0, "offset": 4}]}
    (tmp_path / "offsets.json").write_text(json.dumps(wanted))
    deleted = both.run("kafka-delete-records", "--offset-json-file", tmp_path / "offsets.json")
    assert deleted.same_lines()[-1] == f"partition: {unique}-0 low_watermark: 4"
    for time, offset in [("earliest", 4), ("latest", 10), ("0", 4)]:
        shown = both.run("kafka-get-offsets", "--topic", unique, "--time", time)
        assert shown.same_lines() == [f"{unique}:0:{offset}"]
    beyond = {"version": 1, "partitions": [{"topic": unique, "partition": 0, "offset": 11}]}
    (tmp_path / "offsets.json").write_text(json.dumps(beyond))
    refused = both.run("kafka-delete-records", "--offset-json-file", tmp_path / "offsets.json")
    assert "OffsetOutOfRangeException" in refused.same_lines()[-1]


def test_the_log_folder_is_described(both: Both, unique: str) -> None:
    def described(tools: KafkaTools) -> dict[str, object]:
        produce(tools.bootstrap_servers, unique, ["a value"])
        printed = tools.run("kafka-log-dirs", "--describe", "--topic-list", unique).lines
        (broker,) = json.loads(printed[-1])["brokers"]
        (folder,) = broker["logDirs"]
        assert folder["error"] is None
        return {"broker": broker["broker"], "partitions": folder["partitions"]}

    ours, theirs = both.each(described)
    assert ours == theirs


def test_the_latency_tool_gets_each_record_back(both: Both, unique: str) -> None:
    settings = ("--topic", unique, "--num-records", "100", "--producer-acks", "all", "--record-size", "100")
    printed = both.run("kafka-e2e-latency", *settings)
    for output in (printed.ours, printed.theirs):
        assert any(line.startswith("Avg latency:") for line in comparable(output.stdout))
