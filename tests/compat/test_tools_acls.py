"""Apache's kafka-acls against our broker: the conveniences for producers and consumers, prefixes, removal."""

import re
from collections.abc import Iterator

import pytest

from headrace import Broker
from headrace.testing import KafkaTools

pytestmark = pytest.mark.needs_kafka
ENTRY = re.compile(r"\(principal=(\S+), host=(\S+), operation=(\w+), permissionType=(\w+)\)")


@pytest.fixture
def tools() -> Iterator[KafkaTools]:
    settings = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    with Broker(settings=settings) as broker:
        yield KafkaTools(broker.bootstrap_servers)


def listed(tools: KafkaTools, *arguments: str) -> set[tuple[str, ...]]:
    return set(ENTRY.findall(tools.run("kafka-acls", "--list", *arguments).stdout))


def test_entries_are_added_listed_and_removed(tools: KafkaTools) -> None:
    alice = ("--allow-principal", "User:alice")
    tools.run("kafka-acls", "--add", *alice, "--producer", "--topic", "orders")
    tools.run("kafka-acls", "--add", *alice, "--consumer", "--topic", "orders", "--group", "kitchen")
    prefixed = ("--resource-pattern-type", "prefixed", "--topic", "audit-")
    tools.run("kafka-acls", "--add", "--deny-principal", "User:*", "--operation", "Write", *prefixed)
    of_alice = {
        ("User:alice", "*", operation, "ALLOW") for operation in ("WRITE", "DESCRIBE", "CREATE", "READ")
    }
    assert listed(tools, "--topic", "orders") == of_alice
    assert listed(tools, "--group", "kitchen") == {("User:alice", "*", "READ", "ALLOW")}
    assert listed(tools, "--topic", "audit-1", "--resource-pattern-type", "match") == {
        ("User:*", "*", "WRITE", "DENY")
    }
    tools.run("kafka-acls", "--remove", "--force", "--topic", "orders")
    assert listed(tools, "--topic", "orders") == set()
    assert listed(tools) == {("User:alice", "*", "READ", "ALLOW"), ("User:*", "*", "WRITE", "DENY")}
