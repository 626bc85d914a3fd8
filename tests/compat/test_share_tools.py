"""kafka-share-groups, kafka-groups and kafka-configs about share groups: the same words from both brokers."""

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from headrace.testing import KafkaTools
from tests.compat.both import Both, Pair, comparable
from tests.conformance.share.share_client import fill, new_queue, wait_until_share_coordinators_are_ready
from tests.conformance.steps import wait_until_coordinators_are_ready
from tests.conformance.wire_client import WireClient
from tests.share_consumers import REJECT, RELEASE, Librdkafka, take


@pytest.fixture(scope="module", autouse=True)
def _awake(both: Both) -> None:
    """Apache Kafka makes its internal topics when they are first asked for, and takes its time."""
    for tools in (both.ours, both.theirs):
        with WireClient(tools.bootstrap_servers) as wire:
            wait_until_coordinators_are_ready(wire)
            wait_until_share_coordinators_are_ready(wire)


def same(pair: Pair) -> list[str]:
    """The lines that both brokers brought about, on standard output and then on standard error, in any order."""
    ours, theirs = (
        sorted(comparable(f"{output.stdout}\n{output.stderr}")) for output in (pair.ours, pair.theirs)
    )
    assert ours == theirs
    assert pair.ours.status == pair.theirs.status
    return ours


@contextmanager
def a_member_on_both(both: Both, name: str) -> Iterator[None]:
    """A topic of two partitions with ten records in the first, of which the group's only member has accepted four."""
    with ExitStack() as stack:
        for tools in (both.ours, both.theirs):
            with WireClient(tools.bootstrap_servers) as wire:
                new_queue(wire, name, partitions=2)
                fill(wire, name, 10)
            reader = Librdkafka(
                tools.bootstrap_servers,
                name,
                name,
                client_id="reader",
                share_acknowledgement_mode="explicit",
            )
            stack.callback(reader.close)
            for delivery in take(reader, 10)[:4]:
                reader.acknowledge(delivery)
            reader.commit()
        yield


def test_a_group_with_a_member_is_described_the_same(both: Both, unique: str) -> None:
    def groups(*arguments: str) -> list[str]:
        return same(both.run("kafka-share-groups", *arguments, "--group", unique, check=False))

    with a_member_on_both(both, unique):
        assert f"{unique} {unique} 0 0 6" in groups("--describe")
        assert f"{unique} {unique} 0 0 0 6" in groups("--describe", "--offsets", "--verbose")
        members = groups("--describe", "--members", "--verbose")
        assert "GROUP CONSUMER-ID HOST CLIENT-ID #PARTITIONS MEMBER-EPOCH ASSIGNMENT" in members
        assert f"{unique} MEMBER-ID /127.0.0.1 reader 2 2 {unique}:0,1" in members
        assert f"{unique} SERVER (1) Stable 2 2 1" in groups("--describe", "--state", "--verbose")
        everything = ("--all-topics", "--to-earliest", "--execute")
        assert groups("--reset-offsets", *everything) == [f"Share group '{unique}' is not empty."]
        assert any("GroupNotEmptyException" in line for line in groups("--delete"))
        assert f"{unique} Error: The group is not empty." in groups("--delete-offsets", "--topic", unique)


def test_an_empty_groups_offsets_are_reset_deleted_and_gone(both: Both, unique: str) -> None:
    with a_member_on_both(both, unique):
        pass

    def groups(*arguments: str) -> list[str]:
        return same(both.run("kafka-share-groups", *arguments, "--group", unique, check=False))

    nobody = f"Share group '{unique}' has no active members."
    assert groups("--describe", "--members") == [nobody]
    assert groups("--describe", "--state")[-2:] == [nobody, f"{unique} SERVER (1) Empty 0"]
    of_topic = ("--topic", unique)
    planned = groups("--reset-offsets", "--all-topics", "--to-latest", "--dry-run")
    assert f"{unique} {unique} 0 10" in planned
    assert f"{unique} {unique} 0 0" in groups(
        "--reset-offsets", "--topic", f"{unique}:0", "--to-earliest", "--execute"
    )
    assert f"{unique} {unique} 0 0 10" in groups("--describe")
    groups("--reset-offsets", *of_topic, "--to-latest", "--execute")
    assert f"{unique} {unique} 0 10 0" in groups("--describe")
    at = ("--to-datetime", "2020-01-01T00:00:00.000", "--execute")
    assert f"{unique} {unique} 0 0" in groups("--reset-offsets", *of_topic, *at)
    assert f"{unique} Successful" in groups("--delete-offsets", *of_topic)
    assert f"{unique} Error: There is no offset information to delete." in groups(
        "--delete-offsets", *of_topic
    )
    assert groups("--describe") == [f"Share group '{unique}' has no offset information."]
    assert groups("--delete") == [f"Deletion of requested share groups ('{unique}') was successful."]
    assert any(f"Group '{unique}' is not a share group." in line for line in groups("--delete"))


def test_a_group_that_nobody_knows_is_refused_in_the_same_words(both: Both, unique: str) -> None:
    pair = both.run("kafka-share-groups", "--describe", "--group", unique, check=False)
    assert pair.same_lines() == [
        "Error: Executing share group command failed due to "
        f"org.apache.kafka.common.errors.GroupIdNotFoundException: Group {unique} not found."
    ]
    assert pair.same_refusal() == {"GroupIdNotFoundException"}


def test_share_groups_are_listed_by_both_tools(both: Both, unique: str) -> None:
    def listed(tool: str, *arguments: str) -> list[str]:
        """Of a list that other tests add to as well: the lines about this group."""
        pair = both.run(tool, "--list", *arguments)
        ours, theirs = (
            [line for line in comparable(output.stdout) if line.startswith(unique)]
            for output in (pair.ours, pair.theirs)
        )
        assert ours == theirs
        return ours

    with a_member_on_both(both, unique):
        assert listed("kafka-share-groups") == [unique]
        assert listed("kafka-share-groups", "--state") == [f"{unique} Stable"]
        assert listed("kafka-share-groups", "--state", "Empty") == []
        assert listed("kafka-groups", "--share") == [f"{unique} Share share"]
        assert listed("kafka-groups", "--consumer") == []
        assert listed("kafka-consumer-groups") == []


def test_a_groups_configs_are_set_and_shown(both: Both, unique: str) -> None:
    group = ("--entity-type", "groups", "--entity-name", unique)

    def change(*settings: str) -> Pair:
        return both.run("kafka-configs", *group, "--alter", *settings, check=False)

    settings = (
        "share.auto.offset.reset=earliest,share.delivery.count.limit=7,share.isolation.level=read_committed"
    )
    assert same(change("--add-config", settings)) == [f"Completed updating config for group {unique}."]
    shown = same(both.run("kafka-configs", *group, "--describe"))
    assert len(shown) == 4
    assert any(line.startswith("share.delivery.count.limit=7 ") for line in shown)
    same(change("--delete-config", "share.delivery.count.limit"))
    assert len(same(both.run("kafka-configs", *group, "--describe"))) == 3
    refused = change("--add-config", "share.delivery.count.limit=99")
    assert refused.same_refusal() == {"InvalidConfigurationException"}
    assert "group.share.max.delivery.count.limit" in refused.ours.stderr


def test_all_configs_of_a_group_are_shown(both: Both, unique: str) -> None:
    """Those of share groups: what other kinds of groups have is theirs to compare."""
    shown = both.run(
        "kafka-configs", "--entity-type", "groups", "--entity-name", unique, "--describe", "--all"
    )
    ours, theirs = (
        sorted(line for line in comparable(output.stdout) if line.startswith("share."))
        for output in (shown.ours, shown.theirs)
    )
    assert ours == theirs
    assert len(ours) == 9


def test_the_state_of_a_queue_reads_as_kafka_writes_it(both: Both, unique: str) -> None:
    """The records of `__share_group_state`, as Apache's own formatter prints them."""

    def written(tools: KafkaTools) -> list[object]:
        with WireClient(tools.bootstrap_servers) as wire:
            new_queue(wire, unique, 6)
        reader = Librdkafka(tools.bootstrap_servers, unique, unique, share_acknowledgement_mode="explicit")
        deliveries = take(reader, 6)
        for delivery, kind in [(deliveries[0], REJECT), (deliveries[5], RELEASE)]:
            reader.acknowledge(delivery, kind)
        reader.commit()
        for delivery in deliveries[1:5]:
            reader.acknowledge(delivery)
        reader.commit()
        reader.close()
        formatter = "org.apache.kafka.tools.consumer.group.share.ShareGroupStateMessageFormatter"
        options = ("--from-beginning", "--timeout-ms", "4000", "--formatter", formatter)
        printed = tools.run("kafka-console-consumer", "--topic", "__share_group_state", *options, check=False)
        return [one for one in records_in(printed.stdout) if one["key"]["data"]["groupId"] == unique]

    ours, theirs = both.each(written)
    assert json.dumps(without_own(ours), indent=1) == json.dumps(without_own(theirs), indent=1)
    assert len(ours) >= 3


def records_in(text: str) -> list[dict[str, dict[str, dict[str, object]]]]:
    """JSON documents that follow one another without a mark between them."""
    decoder, found, position = json.JSONDecoder(), [], 0
    while (start := text.find("{", position)) >= 0:
        record, position = decoder.raw_decode(text, start)
        found.append(record)
    return found


def without_own(value: object) -> object:
    """Without what is a cluster's own: ids and times."""
    if isinstance(value, list):
        return [without_own(one) for one in value]
    if not isinstance(value, dict):
        return value
    own = {"topicId", "createTimestamp", "writeTimestamp"}
    return {name: without_own(one) for name, one in value.items() if name not in own}
