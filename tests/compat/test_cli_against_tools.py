"""Our command and Apache's tools, asked about the same groups of one broker, print the same lines."""

import json
import re
from collections.abc import Iterator

import pytest
from typer.testing import CliRunner

from headrace import Admin, Broker, ShareConsumer
from headrace.cli.app import app
from headrace.testing import KafkaTools

pytestmark = pytest.mark.needs_kafka
GROUP, TOPIC, PLAIN = "kitchen", "orders", "billing"
FORMATTER = "org.apache.kafka.tools.consumer.group.share.ShareGroupStateMessageFormatter"


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    """A broker with a share group that has a member and has done something, and a consumer group that has stopped."""
    with Broker(settings={"group.initial.rebalance.delay.ms": 0}) as broker:
        with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            admin.create_topic(TOPIC, 2)
            admin.set_group_config(GROUP, {"share.auto.offset.reset": "earliest"})
        ours(broker.bootstrap_servers, "produce", TOPIC, "--perf", "--count", "20", "--size", "5")
        ours(broker.bootstrap_servers, *f"consume {TOPIC} -g {PLAIN} --consumer-group".split(),
             "--from-beginning", "--max", "20")  # fmt: skip
        with ShareConsumer(
            bootstrap_servers=broker.bootstrap_servers,
            group_id=GROUP,
            client_id="waiter",
            share_acknowledgement_mode="explicit",
        ) as consumer:
            consumer.subscribe([TOPIC])
            taken = 0
            while taken < 20:
                for delivery in consumer.poll(timeout=1.0):
                    taken += 1
                    delivery.reject() if delivery.offset == 2 else delivery.accept()
                consumer.commit_sync()
            yield broker.bootstrap_servers


def ours(servers: str, *arguments: str) -> list[str]:
    result = CliRunner().invoke(app, [*arguments, "-b", servers])
    assert result.exit_code == 0, result.output
    return [" ".join(line.split()) for line in result.stdout.splitlines() if line.strip()]


def theirs(servers: str, tool: str, *arguments: str) -> list[str]:
    return [" ".join(line.split()) for line in KafkaTools(servers).run(tool, *arguments).lines]


@pytest.mark.parametrize(
    "what",
    [(), ("--verbose",), ("--members",), ("--members", "--verbose"), ("--state",), ("--state", "--verbose")],
)
def test_a_share_group_is_described_in_the_same_lines(servers: str, what: tuple[str, ...]) -> None:
    tool = theirs(servers, "kafka-share-groups", "--describe", "--group", GROUP, *what)
    assert ours(servers, "group", "describe", GROUP, *what) == tool
    assert len(tool) > 1


@pytest.mark.parametrize("what", [(), ("--state",)])
def test_a_consumer_group_is_described_in_the_same_lines(servers: str, what: tuple[str, ...]) -> None:
    tool = theirs(servers, "kafka-consumer-groups", "--describe", "--group", PLAIN, *what)
    assert sorted(ours(servers, "group", "describe", PLAIN, *what)) == sorted(tool)
    assert len(tool) > 1


def test_a_planned_reset_names_the_same_offsets(servers: str) -> None:
    name = "planned"
    arguments = ("--topic", TOPIC, "--to-latest")
    tool = theirs(servers, "kafka-share-groups", "--reset-offsets", "--dry-run", "--group", name, *arguments)
    planned = [
        re.sub(r" (\S+) (\S+)$", r" \2", line) for line in ours(servers, "group", "reset", name, *arguments)
    ]
    assert planned == tool


def test_raw_state_is_what_apache_s_formatter_prints(servers: str) -> None:
    """Kafka's reader passes over our own field, which says who held the records."""
    lines = ours(servers, "state", GROUP, "--raw")
    with Admin(bootstrap_servers=servers) as admin:
        holds = [hold for record in admin.share_state_records(GROUP) for hold in record.holds]
    assert {hold.client_id for hold in holds} == {"waiter"}
    printed = KafkaTools(servers).run(
        "kafka-console-consumer",
        *("--topic", "__share_group_state", "--from-beginning", "--formatter", FORMATTER),
        *("--max-messages", str(len(lines)), "--timeout-ms", "60000"),
    )
    decoder, text, records = json.JSONDecoder(), printed.stdout, []
    while text.strip():
        record, end = decoder.raw_decode(text.lstrip())
        records.append(record)
        text = text.lstrip()[end:]
    assert sorted(map(json.dumps, map(json.loads, lines))) == sorted(map(json.dumps, records))
    assert len(lines) >= 3  # where two partitions begin, and what the member did with one of them
