"""Apache's tools that ask about the cluster: versions, features, transactions."""

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from confluent_kafka import Producer

from headrace.testing import KafkaTools
from tests.compat.both import Both, comparable
from tests.compat.confluent import WAIT_S

API = re.compile(r"(\w+)\((\d+)\): (\d+)(?: to (\d+))? \[usable")
# What our broker leaves out, and why. Strict: an API that it starts to serve must leave this list.
LEFT_OUT = {
    "delegation tokens": {38, 39, 40, 41},
    "quotas are described as empty, not kept": {49},
    "one node: no replicas to move, no quorum to change": {34, 45, 64, 80, 81},
    "Kafka Streams groups": {88, 89},
}

NEWER = {18: (0, 5), 28: (0, 6), 42: (0, 3)}
"""What Kafka 4.4 has added: the jars that the tests run are of Kafka 4.3."""


def ranges(tools: KafkaTools) -> dict[int, tuple[int, int]]:
    printed = tools.run("kafka-broker-api-versions").stdout
    return {int(key): (int(low), int(high or low)) for _, key, low, high in API.findall(printed)}


def test_every_api_has_apache_kafkas_versions_or_a_reason_to_be_left_out(both: Both) -> None:
    ours, theirs = both.each(ranges)
    left_out = set().union(*LEFT_OUT.values())
    assert ours == {key: versions for key, versions in theirs.items() if key not in left_out} | NEWER


def test_features_are_described(both: Both) -> None:
    def features(tools: KafkaTools) -> dict[str, str]:
        lines = comparable(tools.run("kafka-features", "describe").stdout)
        found = (re.match(r"Feature: (\S+) (.*) Epoch:", line) for line in lines)
        return {match.group(1): match.group(2) for match in found if match}

    ours, theirs = both.each(features)
    # Kafka 4.4 has dead-letter queues, and the jars that the tests run are of Kafka 4.3.
    assert (
        ours.pop("share.version") == "SupportedMinVersion: 0 SupportedMaxVersion: 2 FinalizedVersionLevel: 2"
    )
    assert ours == {name: levels for name, levels in theirs.items() if name in ours}
    assert {"metadata.version", "group.version", "transaction.version"} <= set(ours)


def test_the_cluster_has_an_id(both: Both) -> None:
    printed = both.run("kafka-cluster", "cluster-id")
    for output in (printed.ours, printed.theirs):
        assert re.fullmatch(r"Cluster ID: \S{22}", output.stdout.strip())


@contextmanager
def an_open_transaction_on_both(both: Both, name: str) -> Iterator[None]:
    with ExitStack() as stack:
        for tools in (both.ours, both.theirs):
            producer = Producer({"bootstrap.servers": tools.bootstrap_servers, "transactional.id": name})
            producer.init_transactions(WAIT_S)
            producer.begin_transaction()
            producer.produce(name, b"open")
            producer.flush(WAIT_S)
            stack.callback(producer.abort_transaction, WAIT_S)
        yield


def rows(output: str, name: str) -> list[list[str]]:
    """The rows of a table that name something, without the producer id, which is a cluster's own."""
    return [
        re.sub(r"^\d+$", "N", line, flags=re.MULTILINE).split() for line in comparable(output) if name in line
    ]


def test_an_open_transaction_is_listed_and_described(both: Both, unique: str) -> None:
    with an_open_transaction_on_both(both, unique):
        listed = both.run("kafka-transactions", "list")
        for output in (listed.ours, listed.theirs):
            ((name, coordinator, _, state),) = rows(output.stdout, unique)
            assert (name, coordinator, state) == (unique, "1", "Ongoing")
        described = both.run("kafka-transactions", "describe", "--transactional-id", unique)
        for output in (described.ours, described.theirs):
            heading, row = (line.split("\t") for line in output.lines)
            columns = {name.strip(): value.strip() for name, value in zip(heading, row, strict=True)}
            assert (columns["TransactionState"], columns["TopicPartitions"]) == ("Ongoing", f"{unique}-0")
            assert columns["TransactionTimeoutMs"] == "60000"
        producers = both.run(
            "kafka-transactions", "describe-producers", "--topic", unique, "--partition", "0"
        )
        for output in (producers.ours, producers.theirs):
            assert output.lines[1].split()[-1] == "0", "the open transaction starts at offset 0"
        assert both.run("kafka-transactions", "find-hanging", "--broker-id", "1").same_lines()[1:] == []
    missing = both.run(
        "kafka-transactions", "describe", "--transactional-id", f"{unique}-missing", check=False
    )
    assert missing.ours.stderr == missing.theirs.stderr
